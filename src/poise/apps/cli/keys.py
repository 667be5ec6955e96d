"""The verbs of ``poise keys``: the keys that sign certificates and digests."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from poise.apps.cli.options import AsJson
from poise.apps.cli.terminal import console, print_json, remark
from poise.evidence.keys import (
    DEFAULT,
    PublicKey,
    key_names,
    keys_folder,
    load_key,
    new_key,
)

keys = typer.Typer(
    no_args_is_help=True,
    help="Make, list and export the keys that sign your certificates and digests.",
)

Name = Annotated[str, typer.Argument(help="Name of the key.")]


@keys.command("new")
def keys_new(name: Name = DEFAULT, json: AsJson = False) -> None:
    """Make a key pair; poise signs with the key named default."""
    key = new_key(name)
    _show(name, key.public, json=json)
    if not json:
        remark(f"keep a copy of {keys_folder() / name}.key: it cannot be made again")


@keys.command("list")
def keys_list(json: AsJson = False) -> None:
    """List your keys, and where they are."""
    known = {name: load_key(name).public.id for name in key_names()}
    if json:
        print_json({"folder": str(keys_folder()), "keys": known})
        return
    table = Table(title=f"Keys in {keys_folder()}", title_justify="left")
    table.add_column("name")
    table.add_column("id")
    for name, identity in known.items():
        table.add_row(name, identity)
    console.print(table)


@keys.command("show")
def keys_show(name: Name = DEFAULT, json: AsJson = False) -> None:
    """Show the id of a key: `poise verify` prints it for every signature."""
    _show(name, load_key(name).public, json=json)


@keys.command("export")
def keys_export(
    name: Name = DEFAULT,
    out: Annotated[
        Path | None, typer.Option(help="File to write; standard output by default.")
    ] = None,
) -> None:
    """Write a public key as PEM, for `poise verify --public-key`."""
    pem = load_key(name).public.pem
    if out is None:
        sys.stdout.write(pem.decode())
    else:
        out.write_bytes(pem)


def _show(name: str, public: PublicKey, *, json: bool) -> None:
    file = keys_folder() / f"{name}.pub"
    if json:
        print_json({"name": name, "id": public.id, "public key": str(file)})
        return
    for line in (public.id, str(file)):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
