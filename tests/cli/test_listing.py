"""The list of parts that ``poise list`` shows without importing them."""

import importlib
import json
import subprocess
import sys

import pytest

import poise
from poise.apps.cli.catalogue import parts_by_slot
from poise.apps.cli.listing import CATALOGUE
from poise.core.own_parts import PACKAGES
from poise.core.parts import SLOTS, parts_of


def test_the_list_on_disk_is_that_of_the_parts() -> None:
    ours = {
        slot: [row for row in rows if row["name"] in _own_names(slot)]
        for slot, rows in parts_by_slot().items()
    }
    assert json.loads(CATALOGUE.read_text(encoding="utf-8")) == ours, (
        "run: python tools/catalogue.py"
    )


def _own_names(slot: str) -> set[str]:
    """Names of poise's own parts; other tests may have declared more."""
    singular = slot.removesuffix("s")
    for known in (slot, singular):
        if known in SLOTS:
            classes = parts_of(known).items()
            return {n for n, cls in classes if cls.__module__.startswith("poise.")}
    return {row["name"] for row in parts_by_slot()[slot]}


@pytest.mark.parametrize("slot", SLOTS)
def test_a_part_is_found_by_its_name_alone(slot: str) -> None:
    names = {n for n, c in parts_of(slot).items() if c.__module__.startswith("poise.")}
    assert names
    code = (
        "import sys\nfrom poise.core.parts import part_named\n"
        f"print(*[part_named({slot!r}, n).name for n in sys.argv[1:]])"
    )
    for name in sorted(names)[:2]:
        done = subprocess.run(
            [sys.executable, "-c", code, name], capture_output=True, text=True
        )
        assert done.stdout.split() == [name], done.stderr


@pytest.mark.parametrize("slot", SLOTS)
def test_class_names_say_the_names_of_parts(slot: str) -> None:
    for name, cls in parts_of(slot).items():
        if cls.__module__.startswith("poise."):
            assert cls.__name__.lower() == name.replace("-", ""), (slot, name)


@pytest.mark.parametrize("package", sorted(set(PACKAGES.values())))
def test_every_public_name_of_a_slot_can_be_imported(package: str) -> None:
    module = importlib.import_module(package)
    for name in module.__all__:
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'Unknown'"):
        _ = module.Unknown


def test_a_part_loads_no_other_parts() -> None:
    code = (
        "import sys, poise\npoise.samplers.Uniform(2)\n"
        "print('poise.samplers.md' in sys.modules, 'poise.backends.flower' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["False", "False"], done.stderr
    assert poise.samplers.MD(2).m == 2
