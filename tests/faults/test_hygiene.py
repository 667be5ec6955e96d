"""Effects on the machine: no pickle, no files outside the run folder, the user's umask."""

from __future__ import annotations

import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import poise
from faults.support import Command, files, shell, small

SOURCE = Path(poise.__file__).parent
FORBIDDEN = re.compile(
    r"\b(?:import|from)\s+(?:pickle|cPickle|dill|cloudpickle|joblib|shelve|marshal)\b"
    r"|\btorch\.(?:load|save)\b|\bpickle\b|allow_pickle\s*=\s*True|read_pickle"
)


def harmless(file: Path, line: str) -> bool:
    """Reading nothing but tensors cannot run code; writing tensors runs none here."""
    writes = file == SOURCE / "exports" / "weights.py" and "torch.save(tensors" in line
    reads = re.search(r"torch\.load\(\w+, weights_only=True\)", line)
    return writes or reads is not None


@pytest.mark.parametrize(
    "file", sorted(SOURCE.rglob("*.py")), ids=lambda f: str(f.relative_to(SOURCE))
)
def test_no_pickle(file: Path) -> None:
    """A run folder or a data file from somewhere else must never be able to run code."""
    found = [
        f"{n}: {line}"
        for n, line in enumerate(file.read_text().splitlines(), 1)
        if FORBIDDEN.search(line) and not harmless(file, line)
    ]
    assert not found


def test_the_search_for_pickle_finds_it() -> None:
    assert FORBIDDEN.search("import pickle")
    assert FORBIDDEN.search("model = torch.load(path)")
    assert not FORBIDDEN.search("from safetensors.torch import load, save")


@pytest.mark.slow
def test_nothing_is_written_outside_the_run_folder(tmp_path: Path) -> None:
    home, cwd, out = (tmp_path / name for name in ("home", "cwd", "out"))
    for folder in (home, cwd):
        folder.mkdir()
    (cwd / "exp.toml").write_text(small(rounds=3))
    before = files(home), files(cwd)
    outside = {
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / "cache"),
        "TMPDIR": str(home),
    }
    outcome = shell("run", "exp.toml", "--out", out, cwd=cwd, env=outside)
    assert outcome.code == 0, outcome.err
    assert (files(home), files(cwd)) == before
    assert sorted(p.name for p in (out / "seed-0").iterdir()) == [
        "evidence.jsonl",
        "experiment.toml",
        "ledger.sqlite",
        "lock",
        "models",
    ]
    assert {p.suffix for p in (out / "seed-0" / "models").iterdir()} == {".safetensors"}


@pytest.mark.parametrize("umask", [0o077, 0o022, 0o027], ids=oct)
def test_files_get_the_users_umask(umask: int, tmp_path: Path) -> None:
    (tmp_path / "exp.toml").write_text(small(rounds=3))
    outcome = Command(
        tmp_path, "run", tmp_path / "exp.toml", "--out", tmp_path / "out", umask=umask
    ).wait()
    assert outcome.code == 0, outcome.err
    for path in (tmp_path / "out", *(tmp_path / "out").rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        full = 0o777 if path.is_dir() else 0o666
        assert not mode & umask, (path, oct(mode))
        assert mode & 0o600 == full & 0o600, (path, oct(mode))


COMMAND = (
    "import sys, poise.apps.cli\nsys.argv = ['poise', '{}']\ntry:\n    "
    "poise.apps.cli.main()\nexcept SystemExit:\n    pass"
)
ALL_HEAVY = ("torch", "numpy", "plotly", "scipy", "sklearn")
LIGHT = {
    "import poise": (*ALL_HEAVY, "typer"),
    "import poise.apps.cli": ALL_HEAVY,
    COMMAND.format("--help"): ALL_HEAVY,
    COMMAND.format("list"): ALL_HEAVY,
    "import poise.apps.cli.run": ("plotly",),
    "import poise; poise.federation('digits', clients=2)": ("sklearn", "pandas"),
    "import poise.analysis.explain": ("scipy", "sklearn", "pandas"),
}


@pytest.mark.parametrize(
    "script",
    LIGHT,
    ids=["poise", "poise.apps.cli", "--help", "list", "run", "digits", "explain"],
)
def test_importing_stays_light(script: str) -> None:
    heavy = LIGHT[script]
    code = (
        f"{script}\nimport sys\nprint('loaded:', *[m for m in {heavy!r} if m in sys.modules], "
        "file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "loaded:"
