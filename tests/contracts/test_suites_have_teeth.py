"""The suites refuse parts that break a clause, and say which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

import poise.aggregators
from poise import testing
from poise.backends import Local
from poise.clocks import Synchronous
from poise.core.equation import combine
from poise.core.errors import IncompatibleParts
from poise.core.protocols import Encoded, StepRule
from poise.core.round_updates import RoundUpdates
from poise.core.traits import AggregatorTraits, ChannelTraits, SolverTraits
from poise.core.types import (
    Assignment,
    AttackerView,
    Cohort,
    ForgedUpdate,
    InFlight,
    Setting,
    Step,
)
from poise.samplers import Uniform
from poise.servers import Add
from poise.solvers import SGD
from poise.weightings import Proportional


@dataclass(frozen=True)
class Biased:
    """Forgets N/m, but promises the statistics of uniform sampling."""

    m: int = 3
    needs: ClassVar[frozenset[str]] = frozenset()

    def fit(self, setting: Setting) -> None: ...

    def draw(
        self, setting: Setting, rng: np.random.Generator, round: int, past: Any
    ) -> Cohort:
        clients = rng.choice(
            setting.clients, min(self.m, setting.clients), replace=False
        )
        return Cohort(clients, setting.importance[clients])

    def statistics(self, importance: np.ndarray) -> Any:
        return Uniform(self.m).statistics(importance)


@dataclass(frozen=True)
class WrongVariance(Biased):
    def draw(
        self, setting: Setting, rng: np.random.Generator, round: int, past: Any
    ) -> Cohort:
        return Uniform(min(self.m, setting.clients)).draw(setting, rng, round, past)

    def statistics(self, importance: np.ndarray) -> Any:
        right = Uniform(self.m).statistics(importance)
        return replace(
            right,
            variance=right.variance * 1.3,
            sum_variance=right.sum_variance + 0.3 * right.sigma,
        )


@dataclass(frozen=True)
class OutOfRange(Biased):
    def draw(
        self, setting: Setting, rng: np.random.Generator, round: int, past: Any
    ) -> Cohort:
        return Cohort(np.array([setting.clients]), np.ones(1))


@dataclass
class Remembers:
    """Depends on what was drawn before."""

    turn: int = 0
    needs: ClassVar[frozenset[str]] = frozenset()

    def fit(self, setting: Setting) -> None: ...

    def draw(
        self, setting: Setting, rng: np.random.Generator, round: int, past: Any
    ) -> Cohort:
        self.turn += 1
        return Cohort(np.array([self.turn % setting.clients]), np.ones(1))


@pytest.mark.parametrize(
    ("sampler", "clause"),
    [
        (Biased(), r"E\[omega\] agrees"),
        (WrongVariance(), r"Cov\(omega\) agrees"),
        (OutOfRange(), "clients in range"),
        (Remembers(), "same stream, same cohort"),
    ],
)
def test_bad_samplers_are_caught(sampler: Any, clause: str) -> None:
    with pytest.raises(AssertionError, match=clause):
        testing.check_sampler(sampler)


def test_a_sampler_without_replacement_must_refuse_too_many() -> None:
    with pytest.raises(AssertionError, match="fit refuses m > N"):
        testing.check_sampler(OutOfRangeNever(3), replacement=False)


@dataclass(frozen=True)
class OutOfRangeNever(Biased):
    def draw(
        self, setting: Setting, rng: np.random.Generator, round: int, past: Any
    ) -> Cohort:
        return Uniform(min(self.m, setting.clients)).draw(setting, rng, round, past)


@dataclass(frozen=True)
class BadClock:
    """A synchronous clock with one thing wrong."""

    wrong: str
    waits: ClassVar[bool] = True

    def fit(self, setting: Setting) -> None: ...

    def times(self, clients: int) -> Any:
        return Synchronous().times(clients)

    def advance(
        self, in_flight: InFlight, started: Sequence[Assignment], index: int
    ) -> tuple[Step, InFlight]:
        step, after = Synchronous().advance(in_flight, started, index)
        if self.wrong == "loses":
            return Step(index, step.time, step.assignments[1:]), after
        if self.wrong == "early":
            return Step(index, in_flight.now + 0.5, step.assignments), InFlight(
                in_flight.now + 0.5
            )
        if self.wrong == "back":
            return Step(index, in_flight.now - 1, ()), InFlight(
                in_flight.now - 1, step.assignments
            )
        return Step(index + 1, step.time, step.assignments), after


@pytest.mark.parametrize(
    ("wrong", "clause"),
    [
        ("loses", "no work is lost"),
        ("early", "has finished"),
        ("back", "time never goes back"),
        ("index", "in order"),
    ],
)
def test_bad_clocks_are_caught(wrong: str, clause: str) -> None:
    with pytest.raises(AssertionError, match=clause):
        testing.check_clock(BadClock(wrong))


@dataclass(frozen=True)
class BadWeighting:
    wrong: str
    waits: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset()

    def fit(self, setting: Setting) -> None: ...

    def coefficients(self, updates: RoundUpdates) -> np.ndarray:
        base, losses = updates.base_weights, updates.loss_before
        if self.wrong == "edits":
            base *= 2
            return base
        if self.wrong == "position":
            return base * np.arange(len(base))
        if self.wrong == "negative":
            return -base
        if self.wrong == "greedy":
            return base * (1.0 if losses is None else losses)
        return base / base.max()  # fails for nobody


@pytest.mark.parametrize(
    ("wrong", "clause"),
    [
        ("edits", "not modified"),
        ("position", "permuting rows"),
        ("negative", "not negative"),
        ("greedy", "does not need are ignored"),
        ("empty", "a cohort of 0"),
    ],
)
def test_bad_weightings_are_caught(wrong: str, clause: str) -> None:
    with pytest.raises(AssertionError, match=clause):
        testing.check_weighting(BadWeighting(wrong))


@dataclass(frozen=True)
class BadAggregator:
    """The weighted mean times the sum of the weights, with one thing wrong."""

    wrong: str
    traits: ClassVar[AggregatorTraits] = AggregatorTraits(linear=True)

    def fit(self, setting: Setting) -> None: ...

    def combine(self, deltas: torch.Tensor, weights: np.ndarray) -> torch.Tensor:
        if self.wrong == "edits updates":
            deltas *= 2
        if self.wrong == "edits weights":
            weights /= 2
        if self.wrong == "position":
            weights = weights * np.arange(1, len(weights) + 1)
        if self.wrong == "counts rows":
            weights = np.full(len(weights), weights.sum() / max(1, len(weights)))
        if self.wrong == "normalises":
            weights = weights / weights.sum() if weights.any() else weights
        if self.wrong == "lengthens":
            return 1.5 * combine(weights, deltas)
        if self.wrong == "doubles":
            return combine(weights, deltas).double()
        if self.wrong == "keeps rows":
            return deltas * torch.from_numpy(weights)[:, None].to(deltas)
        if self.wrong == "empty":
            return weights.sum() * deltas.max(dim=0).values
        if self.wrong == "nonlinear":
            return poise.aggregators.Median().combine(deltas, weights)
        if self.wrong == "infinite":
            return combine(weights, deltas) / 0
        return combine(weights, deltas)


@pytest.mark.parametrize(
    ("wrong", "clause"),
    [
        ("edits updates", "updates are not modified"),
        ("edits weights", "weights are not modified"),
        ("position", "permuting rows"),
        ("counts rows", "weight 0 count nothing"),
        ("normalises", "scales with the weights"),
        ("lengthens", "equal rows give"),
        ("doubles", "type of the updates"),
        ("keeps rows", "length of an update"),
        ("empty", "weight 0 count nothing"),
        ("nonlinear", "declared linear"),
        ("infinite", "is finite"),
    ],
)
def test_bad_aggregators_are_caught(wrong: str, clause: str) -> None:
    testing.check_aggregator(BadAggregator("nothing"))
    with pytest.raises(AssertionError, match=clause):
        testing.check_aggregator(BadAggregator(wrong))


def test_an_aggregator_must_survive_an_empty_round() -> None:
    class Mean:
        def fit(self, setting: Setting) -> None: ...

        def combine(self, deltas: torch.Tensor, weights: np.ndarray) -> torch.Tensor:
            return (
                torch.from_numpy(
                    np.average(deltas.numpy(), axis=0, weights=weights)
                ).to(deltas)
                * weights.sum()
            )

    with pytest.raises(AssertionError, match="combines 0 rows"):
        testing.check_aggregator(Mean())


@dataclass(frozen=True)
class BadChannel:
    """Sends the first half of each update and keeps the rest, with one thing wrong."""

    wrong: str
    keeps: ClassVar[tuple[str, ...]] = ("residual",)
    calls: ClassVar[list[int]] = []

    @property
    def traits(self) -> ChannelTraits:
        return ChannelTraits(identity=self.wrong == "lossy identity")

    def fit(self, setting: Setting) -> None: ...

    def encode(
        self, deltas: torch.Tensor, kept: Mapping[str, torch.Tensor], streams: Any
    ) -> Encoded:
        half = (deltas.shape[1] + 1) // 2
        wanted = deltas + kept["residual"]
        if self.wrong == "edits updates":
            deltas.zero_()
        if self.wrong == "edits kept":
            kept["residual"].zero_()
        if self.wrong == "forgets":
            wanted = deltas
        if self.wrong == "mixes payload":
            wanted = wanted - wanted.mean(dim=0)
        if self.wrong == "remembers":
            self.calls.append(1)
            wanted = wanted * len(self.calls)
        residual = wanted.clone()
        residual[:, :half] = 0
        payload = {"head": wanted[:, :half]}
        if self.wrong == "extra row":
            payload["scale"] = torch.ones(1)
        if self.wrong == "mixes kept":
            residual = residual.mean(dim=0).expand_as(residual)
        if self.wrong == "keeps more":
            return Encoded(payload, {"residual": residual, "momentum": residual})
        if self.wrong == "shorter":
            residual = residual[:, :half]
        return Encoded(payload, {"residual": residual})

    def decode(self, payload: Mapping[str, torch.Tensor], size: int) -> torch.Tensor:
        head = payload["head"]
        rest = head.new_zeros(len(head), size - head.shape[1])
        if self.wrong == "edits payload":
            head.mul_(2)
        if self.wrong == "mixes decoded":
            head = head - head.mean(dim=0)
        if self.wrong == "offset":
            rest = rest + 1e-3
            head = head + 1e-3
        if self.wrong == "half":
            return head
        found = torch.cat([head, rest], dim=1)
        return found.float() if self.wrong == "single precision" else found


@pytest.mark.parametrize(
    ("wrong", "clause"),
    [
        ("edits updates", "updates are not modified"),
        ("edits kept", "what clients keep is not modified"),
        ("edits payload", "payload is not modified"),
        ("forgets", "what arrives plus the residual"),
        ("mixes payload", "the payload of an update depends"),
        ("mixes kept", "what a client keeps depends"),
        ("mixes decoded", "what arrives depends"),
        ("remembers", "same updates, same payload"),
        ("extra row", "one row per update"),
        ("keeps more", "`keeps` names"),
        ("shorter", "type and size of an update"),
        ("half", "keeps the shape"),
        ("single precision", "keeps the type"),
        ("lossy identity", "declared identity"),
        ("offset", "what arrives plus the residual"),
    ],
)
def test_bad_channels_are_caught(wrong: str, clause: str) -> None:
    testing.check_channel(BadChannel("nothing"))
    with pytest.raises(AssertionError, match=clause):
        testing.check_channel(BadChannel(wrong))


def test_a_channel_must_send_nothing_for_no_change_and_survive_an_empty_round() -> None:
    class Sign:
        keeps = ()

        def fit(self, setting: Setting) -> None: ...

        def encode(
            self, deltas: torch.Tensor, kept: Mapping[str, torch.Tensor], streams: Any
        ) -> Encoded:
            return Encoded({"up": deltas >= 0, "like": deltas[:, :0]})

        def decode(
            self, payload: Mapping[str, torch.Tensor], size: int
        ) -> torch.Tensor:
            return payload["up"].to(payload["like"]) * 2 - 1

    class Scaled(Sign):
        def encode(
            self, deltas: torch.Tensor, kept: Mapping[str, torch.Tensor], streams: Any
        ) -> Encoded:
            return Encoded(
                {"update": deltas, "largest": deltas.abs().max(dim=0).values[None]}
            )

    with pytest.raises(AssertionError, match="an update of 0 arrives as 0"):
        testing.check_channel(Sign())
    with pytest.raises(AssertionError, match="one row per update"):
        testing.check_channel(Scaled())


@dataclass(frozen=True)
class BadPersonal:
    """Keeps the bias of a linear layer, with one thing wrong."""

    wrong: str
    calls: ClassVar[list[str]] = []

    def fit(self, setting: Setting) -> None:
        if setting.on_demand and self.wrong != "accepts":
            raise IncompatibleParts("nobody comes back")

    def names(self, module: torch.nn.Module) -> list[str]:
        if self.wrong == "edits":
            module.bias.data.add_(1)
        if self.wrong == "remembers":
            self.calls.append("bias")
            return ["bias", "weight"][: len(self.calls)]
        if self.wrong == "looks":
            return ["bias"] if module.bias.any() else ["weight"]
        wrong = {
            "unknown": ["biases"],
            "twice": ["bias", "bias"],
            "all": ["bias", "weight"],
            "none": [],
        }
        return wrong.get(self.wrong, ["bias"])


@pytest.mark.parametrize(
    ("wrong", "clause"),
    [
        ("accepts", "made on demand are refused"),
        ("edits", "model is not modified"),
        ("remembers", "same model, same names"),
        ("looks", "do not depend on the values"),
        ("unknown", "entries of the model"),
        ("twice", "given once"),
        ("all", "left to the server"),
        ("none", "at least one entry"),
    ],
)
def test_bad_personal_layers_are_caught(wrong: str, clause: str) -> None:
    testing.check_personal(BadPersonal("nothing"), torch.nn.Linear(2, 2))
    with pytest.raises(AssertionError, match=clause):
        testing.check_personal(BadPersonal(wrong), torch.nn.Linear(2, 2))


@dataclass(frozen=True)
class BadServer:
    wrong: str
    waits: ClassVar[bool] = True

    def fit(self, setting: Setting) -> None: ...

    def init(self, theta: torch.Tensor) -> Mapping[str, torch.Tensor]:
        return {"v": torch.zeros_like(theta)}

    def apply(
        self,
        theta: torch.Tensor,
        direction: torch.Tensor,
        state: Mapping[str, torch.Tensor],
    ) -> Any:
        if self.wrong == "theta":
            return theta.add_(direction), state
        if self.wrong == "state":
            return theta + state["v"].mul_(0.9).add_(direction), state
        return theta - direction, state


@pytest.mark.parametrize(
    ("wrong", "clause"),
    [
        ("theta", "model given is not modified"),
        ("state", "state given is not modified"),
        ("sign", "optimum"),
    ],
)
def test_bad_servers_are_caught(wrong: str, clause: str) -> None:
    with pytest.raises(AssertionError, match=clause):
        testing.check_server(BadServer(wrong))


@dataclass(frozen=True)
class MeanGradient:
    """Mixes the rows of its stack."""

    inner: SGD

    @property
    def batch_size(self) -> int | None:
        return self.inner.batch_size

    def fit(self, setting: Setting) -> None: ...

    def steps_for(self, sizes: np.ndarray) -> np.ndarray:
        return self.inner.steps_for(sizes)

    def rate(self, version: int) -> float:
        return 0.1

    def rule(self, start: torch.Tensor, version: int) -> StepRule:
        return StepRule(0.1, (lambda g, w: g.mean(dim=0, keepdim=True).expand_as(g),))


@dataclass(frozen=True)
class Uphill(MeanGradient):
    def rule(self, start: torch.Tensor, version: int) -> StepRule:
        return StepRule(-0.01)


def test_bad_solvers_are_caught() -> None:
    with pytest.raises(AssertionError, match="row-wise"):
        testing.check_solver(MeanGradient(SGD(lr=0.1, steps=2)), fixed_point=False)
    with pytest.raises(AssertionError, match="ends at its optimum"):
        testing.check_solver(Uphill(SGD(lr=0.1, steps=2)))


@dataclass(frozen=True)
class BadAdam(MeanGradient):
    """Adam with one mistake."""

    wrong: str = ""

    traits: ClassVar[SolverTraits] = SolverTraits(scale_free=True, first_step=1.0)

    def rule(self, start: torch.Tensor, version: int) -> StepRule:
        mean = torch.zeros_like(start)
        square = torch.zeros_like(start)
        count = 0

        def adam(gradients: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
            nonlocal count
            count += 1
            m = mean[: len(gradients)].mul_(0.9).add_(gradients, alpha=0.1)
            v = square[: len(gradients)].mul_(0.999)
            v.addcmul_(gradients, gradients, value=0.001)
            power = count + (self.wrong == "counts from 0")
            bias = 1 - 0.9**power, 1 - 0.999**power
            if self.wrong == "no bias correction":
                bias = 1.0, 1.0
            root = v / bias[1] if self.wrong == "no root" else (v / bias[1]).sqrt()
            eps = 1.0 if self.wrong == "large eps" else 1e-8
            return m / bias[0] / (root + eps)

        return StepRule(0.1, (adam,))


def test_a_right_adam_is_admitted() -> None:
    testing.check_solver(BadAdam(SGD(lr=0.1, steps=2)))


@pytest.mark.parametrize(
    ("wrong", "clause"),
    [
        ("no bias correction", "first_step"),
        ("counts from 0", "first_step"),
        ("no root", "scale_free"),
        ("large eps", "scale_free"),
    ],
)
def test_a_wrong_adam_is_caught(wrong: str, clause: str) -> None:
    with pytest.raises(AssertionError, match=clause):
        testing.check_solver(BadAdam(SGD(lr=0.1, steps=2), wrong))


@dataclass(frozen=True)
class Noise:
    """A proper attack, or one with something wrong."""

    clients: tuple[int, ...] = (1, 4)
    wrong: str = ""

    def fit(self, setting: Setting) -> None:
        from poise.core.errors import IncompatibleParts

        if max(self.clients) >= setting.clients and self.wrong != "accepts":
            raise IncompatibleParts("no such client")

    works: ClassVar[bool] = False
    calls: ClassVar[list[int]] = []

    def answer(self, seen: AttackerView, seed: int) -> ForgedUpdate:
        from poise.core.rng import torch_generator

        self.calls.append(seen.client)
        named = (
            (seen.version, len(self.calls))
            if self.wrong == "remembers"
            else (seen.version, seen.client)
        )
        drawn = torch.randn(
            len(seen.received), generator=torch_generator(seed, "noise", *named)
        )
        seen.received.zero_()  # its own copy: nobody is harmed
        return ForgedUpdate(
            drawn.to(seen.received) * (torch.inf if self.wrong == "infinite" else 1.0)
        )


def test_attack_suite_accepts_a_proper_attack_and_refuses_others() -> None:
    testing.check_attack(Noise())
    testing.check_attack(Noise(clients=(0,)))
    with pytest.raises(AssertionError, match="replay is identical"):
        testing.check_attack(Noise(wrong="remembers"))
    with pytest.raises(AssertionError, match="is finite"):
        testing.check_attack(Noise(wrong="infinite"))
    with pytest.raises(AssertionError, match="do not exist are refused"):
        testing.check_attack(Noise(wrong="accepts"))


def test_a_backend_that_shuffles_rows_is_caught() -> None:
    @dataclass(frozen=True)
    class Shuffles:
        def open(self, *arguments: Any) -> Any:
            workers = Local(workers=1).open(*arguments)
            honest = workers.work
            workers.work = lambda order: honest(order).rows(  # type: ignore[method-assign]
                np.arange(len(order.assignments))[::-1].copy()
            )
            return workers

    with pytest.raises(AssertionError, match="row by row"):
        testing.check_backend(Shuffles())


def test_undeclared_classes_are_no_parts() -> None:
    with pytest.raises(AssertionError, match="declared with @part"):
        testing.check_part(Noise())
    for proper in (Proportional(), Add(lr=2), Synchronous("F20")):
        testing.check_part(proper)
