"""The verbs of ``poise``, and what becomes of errors."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, NoReturn, Optional

import click
import typer

from poise.apps.cli.backend_options import Place
from poise.apps.cli.deploy_verbs import deploy
from poise.apps.cli.export import export
from poise.apps.cli.options import AsJson, Given, Plan, PresetArm, Training, asks, unfolds
from poise.apps.cli.ui import ui
from poise.config.run_options import RunOptions
from poise.config.unlearn_request import UnlearnRequest
from poise.core.errors import PoiseError

app = typer.Typer(
    name="poise",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="""Federated learning that weighs what each client brings.

    First steps:  poise demo  ·  poise list  ·  poise run exp.toml  ·  poise report runs/exp""",
)
data = typer.Typer(no_args_is_help=True, help="Data sets: list them, fetch them, verify them.")
app.add_typer(data, name="data")
app.add_typer(deploy, name="deploy")
app.command()(export)
app.command()(ui)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Print the version, where asked."""
    if version:
        from poise._version import __version__

        print(__version__)
        raise typer.Exit


Runs = Annotated[list[Path], typer.Argument(help="Run folders, or folders with one run per seed.")]


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the runs.")] = Path("runs/demo"),
    page: Annotated[Path, typer.Option(help="Where to write the page.")] = Path("report.html"),
    json: AsJson = False,
) -> None:
    """Train on data that ships with scikit-learn, compare two choices of parts, write
    report.html.
    """
    from poise.apps.cli.demo import run_demo

    run_demo(out, page, json)


@app.command()
@asks(RunOptions, without=("seed", "backend", "start"), unset=True)
@unfolds
def run(
    file: Annotated[Path, typer.Argument(help="Experiment file (TOML).")],
    options: Given,
    set: Annotated[
        list[str] | None, typer.Option("--set", metavar="TABLE.KEY=VALUE", help="Change a value.")
    ] = None,
    seeds: Annotated[str, typer.Option(help="Seeds instead of the file's: 0..4 or 0,2,5.")] = "",
    out: Annotated[
        Path | None, typer.Option(help="Folder for the runs; runs/<file> by default.")
    ] = None,
    place: Place = Place(),
    json: AsJson = False,
) -> None:
    """Run an experiment: one run folder per seed, a progress bar, a summary.

    Options like --rounds change values under [run] of the file.

    Ctrl-C stops cleanly at the end of the round; `poise resume` goes on.
    """
    from poise.apps.cli.run import changes_of, run_file

    changes = [*(set or []), *changes_of(options)]
    run_file(file, changes, seeds=seeds, out=out, place=place, json=json)


@app.command()
@unfolds
def resume(
    path: Annotated[Path, typer.Argument(help="Run folder, or a folder with one run per seed.")],
    rounds: Annotated[Optional[int], typer.Option(help="A new number of rounds.")] = None,  # noqa: UP045
    place: Place = Place(),
    json: AsJson = False,
) -> None:
    """Take a run up at its last good round; it ends as if it had never stopped."""
    from poise.apps.cli.run import resume_runs

    resume_runs(path, rounds, place, json)


@app.command()
def inspect(
    what: Annotated[
        str, typer.Argument(metavar="FILE|SOURCE", help="Experiment file, or name of a data set.")
    ],
    set: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change an option of [data]."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the federation.")] = 0,
    labels: Annotated[
        bool, typer.Option("--labels", help="Compare classes together with features.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Where to write the page.")] = Path("inspection.html"),
    keep: Annotated[
        Path | None, typer.Option(help="Keep the graph in this file, too (safetensors).")
    ] = None,
    json: AsJson = False,
) -> None:
    """How different the clients are, before any training: sizes, classes, similarity graph, typical
    clients.

    For example: poise inspect digits --set partition=dirichlet --set alpha=0.1 --set clients=20
    """
    from poise.apps.cli.inspect_data import show_inspection

    show_inspection(what, set or [], seed=seed, labels=labels, out=out, json=json, keep=keep)


@app.command()
def audit(
    path: Annotated[Path, typer.Argument(help="Run folder, or a folder with one run per seed.")],
    alarm: Annotated[
        float, typer.Option(help="Suspect a client that works with this probability at most.")
    ] = 0.01,
    out: Annotated[Path, typer.Option(help="Where to write the page.")] = Path("audit.html"),
    json: AsJson = False,
) -> None:
    """Who only pretends to work: a score and a p-value for every client, and why. Needs no data."""
    from poise.apps.cli.audit import show_audit

    show_audit(path, alarm, out, json)


@app.command()
@asks(UnlearnRequest)
def unlearn(run: Training, options: Given, plan: Plan = False, json: AsJson = False) -> None:
    """Forget clients: restart from a model they hardly moved, hide the rest by noise, retrain
    without them.

    Writes a new branch of the run and certificate.json. Requests add up; an interrupted one is
    finished by asking for it again. See what it would cost first: poise unlearn RUN --clients 3,7
    --plan
    """
    from poise.apps.cli.unlearn import forget

    forget(run, options, plan, json)


@app.command()
def verify(
    certificate: Annotated[Path, typer.Argument(help="certificate.json, in its branch's folder.")],
    run: Annotated[
        Path | None, typer.Option(help="The training, where branches do not lie in it.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Recompute what a certificate says from the run's ledger and models; any altered byte is
    named.
    """
    from poise.apps.cli.unlearn import check

    check(certificate, run, json)


@app.command()
@unfolds
def explain(
    what: Annotated[
        str,
        typer.Argument(
            metavar="FILE|RUN|NAME", help="Experiment file, run folder, or name of a reproduction."
        ),
    ],
    set: Annotated[
        list[str] | None, typer.Option("--set", metavar="TABLE.KEY=VALUE", help="Change a value.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed instead of the experiment's first.")
    ] = None,
    preset: PresetArm = PresetArm(),
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            help="Write a page, with bound, predicted bias and run in one picture (convex tasks)."
        ),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep it in the run folder, where `poise ui` shows it.")
    ] = False,
    json: AsJson = False,
) -> None:
    """What the theory says before training: the objective really minimised, noise, bounds, warnings
    with their fix.

    For example: poise explain exp.toml --set sampler.name=md
    """
    from poise.apps.cli.explain import show_explanation

    show_explanation(what, set or [], seed=seed, preset=preset, out=out, keep=keep, json=json)


@app.command("list")
def list_parts(
    slot: Annotated[
        str,
        typer.Argument(help="solvers, samplers, clocks, weightings, servers, models, recipes, …"),
    ] = "",
    json: AsJson = False,
) -> None:
    """What can be put into each slot, with its options."""
    from poise.apps.cli.listing import show_parts

    show_parts(slot, json)


@app.command()
def reproduce(
    name: Annotated[str, typer.Argument(help="Which reproduction.")] = "",
    scale: Annotated[
        str, typer.Option(help="small (minutes on two cores) or paper (the paper's sizes).")
    ] = "small",
    out: Annotated[Optional[Path], typer.Option(help="Folder for the runs.")] = None,  # noqa: UP045
    list: Annotated[bool, typer.Option("--list", help="What can be reproduced.")] = False,
    json: AsJson = False,
) -> None:
    """Run a paper's comparison, put its figures beside ours, and say which of its claims hold.

    Interrupted reproductions go on where they stopped.
    """
    from poise.apps.cli import reproduce as reproduction

    reproduction.show_presets(json) if list or not name else reproduction.reproduce(
        name, scale, out, json
    )


@app.command()
def report(
    runs: Runs,
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
    json: AsJson = False,
) -> None:
    """Write one self-contained HTML page about runs: curves, weights, clients, scores."""
    from poise.apps.cli.report import write_report

    write_report(runs, out, json)


@app.command()
def compare(
    runs: Runs,
    target: Annotated[
        list[float] | None, typer.Option(help="Accuracy whose first round to report.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Put runs side by side: scores with 95 % intervals over seeds, and which differences are
    significant.
    """
    from poise.apps.cli.report import show_comparison

    show_comparison(runs, target or [], json)


@data.command("list")
def data_list(json: AsJson = False) -> None:
    """The data sets poise knows, and which of them are on this machine."""
    from poise.apps.cli.datasets import show_datasets

    show_datasets(json)


@data.command("fetch")
def data_fetch(name: str, json: AsJson = False) -> None:
    """Download a data set from its official source, with checksum; an interrupted download goes
    on.
    """
    from poise.apps.cli.datasets import fetch_dataset

    fetch_dataset(name, json)


@data.command("verify")
def data_verify(name: str, json: AsJson = False) -> None:
    """Check a data set's files against their checksums."""
    from poise.apps.cli.datasets import verify_dataset

    verify_dataset(name, json)


def main() -> None:
    """Run the command line; a user's mistake never shows a traceback."""
    try:
        code = app(prog_name="poise", standalone_mode=False)
    except PoiseError as error:
        _fail(error.message, error.hint, error.exit_code)
    except click.ClickException as error:
        error.show()
        _fail(error.format_message(), "", error.exit_code, said=True)
    except OSError as error:
        _fail(f"{error.filename or 'the system'}: {error.strerror or error}", "", 1)
    if code == INTERRUPTED:
        _fail("stopped; every finished round is kept", "", code)
    raise SystemExit(code)


INTERRUPTED = 130


def _fail(message: str, hint: str, code: int, said: bool = False) -> NoReturn:
    """Say what went wrong on stderr, and with ``--json`` as the one document on stdout."""
    if "--json" in sys.argv:
        print(json.dumps({"error": message, "hint": hint}))
    if not said:
        print(f"error: {message}", file=sys.stderr)
        if hint:
            print(f"hint:  {hint}", file=sys.stderr)
    raise SystemExit(code) from None
