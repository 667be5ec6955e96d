"""`SoftMax` and `SoftMin`: larger or smaller losses count more, smoothly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING, Self

from poise.core.errors import require
from poise.core.parts import part
from poise.core.traits import Tilt, WeightingTraits
from poise.core.types import Floats, Setting
from poise.core.weights import (
    REPORTS_OF_LOSS,
    Floor,
    LossOf,
    by_columns,
    capped,
    check_cap,
    check_effective,
    check_floor,
    floors_for,
    loss_gaps,
    mild_temperature,
    renormalised,
)

if TYPE_CHECKING:
    from poise.core.round_updates import RoundUpdates


@dataclass(frozen=True)
class _Soft:
    """``c_i ~ omega_i exp(sign (F_i - F_i*)/T)``, summing to one."""

    temperature: float = 0.2
    floor: Floor = 0.0
    cap: float | None = None
    effective: float | None = None
    loss: LossOf = "before"

    sign = 1.0

    def __post_init__(self) -> None:
        name = type(self).__name__
        require(
            self.temperature > 0 and isfinite(self.temperature),
            f"{name}: temperature must be above 0, not {self.temperature}",
            where="temperature",
        )
        check_floor(name, self.floor)
        check_cap(name, self.cap)
        check_effective(name, self.effective)

    @property
    def needs(self) -> frozenset[str]:
        """The losses that clients report."""
        return REPORTS_OF_LOSS[self.loss]

    def for_clients(self, stay: Sequence[int]) -> Self:
        """Return the weighting with the floors of the clients that stay."""
        return replace(self, floor=floors_for(self.floor, stay))

    def fit(self, setting: Setting) -> None:
        """Accept every setting."""

    @by_columns
    def coefficients(self, updates: RoundUpdates) -> Floats:
        """Return the base weights times an exponential of the loss."""
        losses = self.sign * loss_gaps(self.floor, updates, self.loss)
        base = updates.base_weights
        temperature = self.temperature
        if self.effective is not None:
            temperature = mild_temperature(
                base, losses, least=temperature, share=self.effective
            )
        return capped(renormalised(base, losses / temperature), base, self.cap)

    @property
    def _tilt(self) -> Tilt | None:
        """The exponential of the loss before work, if T is fixed and nothing caps it."""
        if self.cap is not None or self.effective is not None or self.loss != "before":
            return None
        return Tilt("loss", "temperature", rate=self.sign / self.temperature)


@part("weighting", "soft-max")
class SoftMax(_Soft):
    """``c_i ~ omega_i exp((F_i - F_i*)/T)``, summing to one.

    Published as FedSoftWorse and FedSoftMax. T -> infinity gives the (renormalised)
    base weights, T -> 0 the client with the largest loss alone. ([Mansour 2023] plots
    1/T under the name of temperature; here a high temperature is a mild weighting, as
    in [Mansour 2022].)

    Args:
        temperature: T > 0; 0.2 in [Mansour 2022].
        floor: F_i*, as in `Max`.
        cap: the largest share of the weight of one client, as in `Max`.
        effective: the least effective number of clients, 1/Σ c_i², as a share of that
            of the base weights. In a round that falls below, T is raised until it
            does not. None keeps T fixed. A fixed T = 1 did better in most cells of the
            reproduction ``mansour-adam``.
        loss: F_i, as in `Max`.

    Source: [Mansour 2022, §3.1], [Mansour 2023, §2.3].

    >>> import numpy as np
    >>> losses = np.array([3.0, 3.0])
    >>> SoftMax(temperature=1.0).coefficients(np.array([0.5, 0.5]), loss_before=losses)
    array([0.5, 0.5])
    """

    @property
    def traits(self) -> WeightingTraits:
        """Declare the exponential of the loss, if nothing caps the weights."""
        return WeightingTraits(
            reads_updates=False,
            continuous=self.effective is None,
            larger_losses_count_more=self.cap is None and self.loss == "before",
            tilt=self._tilt,
            favours="have larger losses count more",
        )


@part("weighting", "soft-min")
class SoftMin(_Soft):
    """``c_i ~ omega_i exp(-(F_i - F_i*)/T)``, of sum one: the opposite of `SoftMax`.

    Published as FedSoftBetter.

    Args:
        temperature: T > 0; 0.2 in [Mansour 2022].
        floor: F_i*, as in `Max`.
        cap: the largest share of the weight of one client, as in `Max`.
        effective: the least effective number of clients, 1/Σ c_i², as a share of that
            of the base weights. In a round that falls below, T is raised until it
            does not. None keeps T fixed.
        loss: F_i, as in `Max`.

    Source: [Mansour 2022, §3.1].

    >>> import numpy as np
    >>> losses = np.array([3.0, 3.0])
    >>> SoftMin(temperature=1.0).coefficients(np.array([0.5, 0.5]), loss_before=losses)
    array([0.5, 0.5])
    """

    sign = -1.0

    @property
    def traits(self) -> WeightingTraits:
        """Declare the exponential of the loss, if nothing caps the weights."""
        return WeightingTraits(
            reads_updates=False,
            continuous=self.effective is None,
            tilt=self._tilt,
            favours="have smaller losses count more",
        )
