"""One seed, one run: the digest does not depend on the process, its threads, or its workers."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = """
import sys, poise
fed = poise.federation("digits", partition="dirichlet", alpha=0.3, clients=20)
run = poise.train(
    fed, poise.task("logistic"), solver=poise.solvers.SGD(lr=0.05, steps=5, batch_size=16),
    sampler=poise.samplers.Uniform(4), rounds=10, metrics=["client_loss"],
    backend=poise.backends.Local(workers=int(sys.argv[1])),
)
print(run.digest)
"""


@pytest.mark.slow
def test_same_digest_in_processes_with_other_thread_settings() -> None:
    digests = set()
    for workers, threads in (("1", "1"), ("2", "2"), ("3", "4")):
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
        }
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, workers],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        )
        digests.add(done.stdout.strip())
    assert len(digests) == 1
