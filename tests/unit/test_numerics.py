"""A process that cannot promise the same bits says so."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

EARLY = "import torch; torch.randn(200, 200) @ torch.randn(200, 200)\n"
SCRIPT = """
import warnings, poise
quad = poise.quadratics([[0.0], [1.0]])
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    poise.train(quad, quad.task, poise.solvers.SGD(lr=0.1, steps=1), rounds=1)
from poise.core.numerics import mkl_mode
print(mkl_mode(), any("bit" in str(w.message) for w in caught))
"""


@pytest.mark.slow
@pytest.mark.parametrize("early", [False, True])
def test_a_warning_where_mkl_was_used_before_poise_was_imported(early: bool) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "MKL_CBWR"}
    script = (EARLY if early else "") + SCRIPT
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    mode, warned = (
        done.stdout.split() if len(done.stdout.split()) == 2 else ("", "False")
    )
    if mode == "":
        pytest.skip("PyTorch has no MKL here")
    assert (mode == "off", warned) == ((True, "True") if early else (False, "False"))
