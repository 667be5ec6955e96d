"""Freed memory is kept: seen by the pages that the system has to bring anew."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

import poise
from poise.backends import local
from poise.core.allocator import SETTINGS

STEPS = """
import resource, sys
import torch
from poise.core.allocator import keep_freed_memory

torch.set_num_threads(1)
taken = keep_freed_memory() if sys.argv[1] == "kept" else False


layers, text = torch.nn.LSTM(8, 100, 2, batch_first=True), torch.randn(64, 80, 8)


def step():
    torch.autograd.grad(layers(text)[0].sum(), layers.parameters())


for _ in range(4):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(6):
    step()
print(taken, (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 6)
"""


def pages(mode: str, **environment: str) -> tuple[bool, float]:
    """Whether the setting was taken, and how many pages a step brought."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if name not in (*SETTINGS, "GLIBC_TUNABLES")
    }
    done = subprocess.run(
        [sys.executable, "-c", STEPS, mode],
        capture_output=True,
        text=True,
        check=True,
        env={**clean, **environment},
    )
    taken, brought = done.stdout.split()
    return taken == "True", float(brought)


gnu = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="only the GNU C library has the setting"
)


@gnu
def test_a_step_takes_up_the_pages_of_the_last_one() -> None:
    taken, brought = pages("kept")
    assert taken
    assert brought < 0.1 * pages("default")[1], (
        "a step has some 50 MB of activations, 12,000 small pages"
    )


@gnu
@pytest.mark.parametrize(
    ("name", "value", "taken"),
    [
        pytest.param(
            "MALLOC_TRIM_THRESHOLD_", "131072", False, marks=pytest.mark.thorough
        ),
        ("GLIBC_TUNABLES", "glibc.malloc.trim_threshold=131072", False),
        ("GLIBC_TUNABLES", "glibc.rtld.optional_static_tls=512", True),
    ],
)
def test_a_user_s_own_setting_is_left_alone(name: str, value: str, taken: bool) -> None:
    assert pages("kept", **{name: value})[0] is taken


def test_a_run_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(local, "keep_freed_memory", lambda: asked.append(True))
    quad = poise.quadratics([[0.0], [1.0]])
    poise.train(quad, quad.task, poise.solvers.SGD(lr=0.1, steps=1), rounds=1)
    assert asked == [True]
