"""Sensitivities of a run that another process made."""

import subprocess
import sys
from pathlib import Path

import poise


def test_sensitivities_can_be_counted_by_a_process_that_trained_nothing(
    tmp_path: Path,
) -> None:
    fed = poise.quadratics([[0.0], [1.0], [5.0]])
    poise.train(
        fed,
        fed.task,
        poise.solvers.SGD(lr=0.1, steps=1),
        rounds=2,
        out=tmp_path / "run",
    )
    code = (
        "import sys; from poise.results import open_run; "
        "from poise.unlearning import sensitivity; "
        "print(sensitivity(open_run(sys.argv[1])).shape)"
    )
    said = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "run")],
        capture_output=True,
        text=True,
    )
    assert said.stdout.strip() == "(3, 3)", said.stderr
