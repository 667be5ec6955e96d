"""A user's package on disk, and an experiment that names it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MODELS = """\
import torch
from torch import nn
from subprocess import run

def make(hidden=8):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), nn.Tanh(), nn.Linear(hidden, 10))

def smooth(outputs, labels):
    return nn.functional.cross_entropy(outputs, labels, label_smoothing=0.1, reduction="none")

def top_two(outputs, labels):
    return (outputs.topk(2).indices == labels[:, None]).any(dim=1).float()
"""
DATA = """\
from sklearn.datasets import load_digits

def load(rows=300):
    digits = load_digits()
    return (digits.images[:rows, None] / 16).astype("float32"), digits.target[:rows]
"""
PARTS = """\
import numpy as np
from poise.core.parts import part

@part("weighting", "{name}-equal")
class Equal:
    needs = frozenset()
    def fit(self, setting): ...
    def coefficients(self, updates):
        total = updates.base_weights.sum()
        return np.full(len(updates.base_weights), total / len(updates.base_weights))
"""
EXPERIMENT = """\
import = ["{name}.parts"]
[data]
source = "{name}.data:load"
options = {{rows = 240}}
clients = 6
test_share = 0.2
[task]
module = "{name}.models:make"
options = {{hidden = 6}}
loss = "{name}.models:smooth"
metrics = ["accuracy", "{name}.models:top_two"]
[solver]
name = "sgd"
lr = 0.1
steps = 2
batch_size = 10
[weighting]
name = "{name}-equal"
[run]
rounds = 6
keep = "all"
"""


def write_package(folder: Path, name: str) -> Path:
    """Write a package and its experiment; return the file of the experiment."""
    package = folder / name
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "models.py").write_text(MODELS)
    (package / "data.py").write_text(DATA)
    (package / "parts.py").write_text(PARTS.format(name=name))
    file = folder / "exp.toml"
    file.write_text(EXPERIMENT.format(name=name))
    return file


def write_spy(folder: Path, name: str) -> Path:
    """Write a package whose import leaves a file; return that file."""
    package = folder / name
    package.mkdir(parents=True)
    witness = folder / f"{name}-was-imported"
    line = f"open({str(witness)!r}, 'w').close()\n"
    for module, text in (("models", MODELS), ("data", DATA), ("__init__", "")):
        (package / f"{module}.py").write_text(line + text)
    (package / "parts.py").write_text(line + PARTS.format(name=name))
    return witness


@contextmanager
def forgotten_modules() -> Iterator[None]:
    """Restore the path and the imported modules after the block."""
    path = list(sys.path)
    known = set(sys.modules)
    try:
        yield
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - known:
            if not name.startswith(("poise", "torch", "numpy", "sklearn", "scipy")):
                del sys.modules[name]
