"""fed-accum: re-aggregated updates against worked examples and an independent loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poise
from poise.core.errors import IncompatibleParts, LedgerError
from poise.samplers import MD, Binomial, Full, Uniform
from poise.servers import Add, Momentum, Noisy
from poise.solvers import SGD, Scaffold
from poise.unlearning import verify
from poise.unlearning.fed_accum import reaggregate
from poise.unlearning.histories import Histories
from poise.unlearning.retraining import composition_of
from poise.weightings import Clipped

FED = poise.quadratics(
    np.random.default_rng(3).normal(size=(6, 4)),
    curvature=[1, 2, 0.5, 1, 3, 1],
    sizes=[1, 2, 3, 4, 5, 6],
)
SHORT: dict[str, Any] = {
    "method": "fed-accum",
    "min_rounds": 3,
    "max_rounds": 3,
    "target": 0.0,
}


def trained(fed: Any = FED, out: Path | None = None, **options: Any) -> poise.Run:
    given = {
        "solver": SGD(lr=0.2, steps=2),
        "sampler": Uniform(3),
        "rounds": 7,
        "keep_updates": True,
        **options,
    }
    return poise.train(fed, fed.task, out=out, **given)


def forget(run: poise.Run, clients: list[int], fed: Any = FED, **options: Any) -> Any:
    return poise.unlearn(
        run, clients, federation=fed, task=fed.task, **{**SHORT, **options}
    )


@pytest.mark.parametrize(("gone", "start"), [(1, 1.0), (0, 5.0)])
def test_two_clients_and_two_rounds_by_hand(gone: int, start: float) -> None:
    """Optima 2 and 6, one step of rate 1/2: updates (1, 3) at 0, then (0, 2) at 2; alone, 0+1+0 = 1
    and 0+3+2 = 5."""
    fed = poise.quadratics([[2.0], [6.0]])
    run = trained(fed, solver=SGD(lr=0.5, steps=1), sampler=Full(), rounds=2)
    assert [run.updates(n)[:, 0].tolist() for n in range(2)] == [[1.0, 3.0], [0.0, 2.0]]
    assert run.model.tolist() == [3.0]
    assert forget(run, [gone], fed).run.models(0).tolist() == [start]


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"sampler": MD(4)},
        {"sampler": Binomial(1)},
        {"server": Momentum(lr=0.5)},
        {"weighting": Clipped(0.2), "server": Noisy(0.1, of=Add(0.5))},
    ],
)
def test_with_nobody_gone_it_is_the_run_itself_to_the_bit(
    parts: dict[str, Any],
) -> None:
    run = trained(**parts)
    whole = composition_of(run, FED, FED.task)
    again = reaggregate(
        Histories.of(run), [(0, run.rounds)], parts=whole.parts, removed=[]
    )
    assert again.numpy().tobytes() == run.model.tobytes()


def test_a_client_that_was_never_drawn_leaves_the_final_model() -> None:
    run = trained(sampler=Uniform(1), rounds=3)
    never = sorted(set(range(6)) - set(run.contributions["client"].tolist()))
    assert forget(run, never[:2]).run.models(0).tobytes() == run.model.tobytes()


def naive(
    run: poise.Run, theta: np.ndarray, members: list[int], gone: set[int]
) -> np.ndarray:
    """One branch, row by row."""
    for n in range(run.rounds):
        rows = [
            (c, d)
            for c, d in zip(
                run.contributions[run.contributions["round"] == n],
                run.updates(n),
                strict=True,
            )
        ]
        total = sum(c["coefficient"] for c, _ in rows)
        stay = [
            (c["coefficient"], d) for c, d in rows if members[c["client"]] not in gone
        ]
        left = sum(w for w, _ in stay)
        for weight, delta in stay:
            theta = theta + weight * total / left * delta
    return theta


@pytest.mark.parametrize("sampler", [Full(), Uniform(3), MD(3)])
def test_a_sequence_of_requests_re_aggregates_every_branch(sampler: Any) -> None:
    run = trained(sampler=sampler)
    first = forget(run, [1])
    second = forget(first.run, [4, 0])
    zero = np.zeros(4)
    np.testing.assert_allclose(
        first.run.models(0), naive(run, zero, list(range(6)), {1}), rtol=1e-12
    )
    there = naive(run, zero, list(range(6)), {0, 1, 4})
    expected = naive(first.run, there, [0, 2, 3, 4, 5], {0, 1, 4})
    np.testing.assert_allclose(second.run.models(0), expected, rtol=1e-12)
    assert second.certificate["guarantee"]["promised"] is False
    assert second.restart == (1, 3)


def test_the_certificate_can_be_checked_and_an_altered_update_shows(
    tmp_path: Path,
) -> None:
    run = trained(out=tmp_path / "run")
    done = forget(run, [2])
    again = forget(run, [5])
    for made in (done, again):
        assert made.path is not None
        assert any("stored updates" in check.label for check in verify(made.path))
    file = tmp_path / "run" / "models" / "00000004.updates.safetensors"
    content = bytearray(file.read_bytes())
    content[-3] ^= 4
    file.write_bytes(content)
    with pytest.raises(LedgerError, match="updates"):
        verify(again.path)


def test_an_interrupted_request_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    whole = forget(trained(out=tmp_path / "a"), [2])
    run, seen = trained(out=tmp_path / "b"), []
    forget(run, [2], callbacks=[seen.append], stop=lambda: len(seen) >= 1)
    assert forget(run, [2]).run.digest == whole.run.digest


def test_a_run_without_updates_and_a_server_with_a_memory_are_refused() -> None:
    with pytest.raises(IncompatibleParts, match="keep_updates"):
        forget(trained(keep_updates=False), [0])
    with pytest.raises(IncompatibleParts, match="Scaffold"):
        forget(trained(solver=Scaffold(lr=0.1, steps=2)), [0])


def test_it_does_not_mix_with_other_methods() -> None:
    done = forget(trained(), [0])
    with pytest.raises(IncompatibleParts, match="fed-accum"):
        forget(done.run, [1], method="scratch")
