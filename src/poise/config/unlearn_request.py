"""The options of an unlearning request, declared once.

`poise.unlearn`, ``poise unlearn``, the JSON API, the form of the console, the table
[requests] of presets and request.json are derived from the fields of `UnlearnRequest`.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from numbers import Integral
from typing import Any, Literal, cast, get_args

from poise.config.entries import entries_of, values_of
from poise.core.errors import InvalidOption, require
from poise.core.options import check_keys, option
from poise.privacy.budget import Budget, UnlearningPlan

Method = Literal[
    "sifu", "scratch", "fine-tune", "last", "dp", "fed-accum", "exact", "shards"
]
Noise = Literal["seeded", "secret"]
Guarantee = Literal["each", "group"]

METHODS: tuple[str, ...] = get_args(Method)


MOST_CLIENTS = 1_000_000
"""The longest range of clients in one request."""


def parse_clients(text: str) -> tuple[int, ...]:
    """Return the clients of a list in text form.

    >>> parse_clients("3,7"), parse_clients("0..2, 9")
    ((3, 7), (0, 1, 2, 9))
    """
    bare = text.replace(" ", "")
    if not re.fullmatch(r"\d{1,18}(\.\.\d{1,18})?(,\d{1,18}(\.\.\d{1,18})?)*", bare):
        raise InvalidOption(
            f"--clients {text!r} is not a list of clients",
            "write 3,7 or 0..4",
            where=("clients",),
        )
    clients: list[int] = []
    for item in bare.split(","):
        first, _, last = item.partition("..")
        span = range(int(first), int(last or first) + 1)
        if int(last or first) - int(first) >= MOST_CLIENTS:
            raise InvalidOption(
                f"--clients {item} is {len(span)} clients",
                f"name at most {MOST_CLIENTS} clients",
                where=("clients",),
            )
        clients += span
    return tuple(clients)


def client_numbers(clients: int | Iterable[int]) -> tuple[Any, ...]:
    """Return the clients that a Python caller gives, as one number or several."""
    if isinstance(clients, Integral):
        return (clients,)
    listed = isinstance(clients, Iterable) and not isinstance(clients, str | bytes)
    require(
        listed,
        f"clients = {clients!r} is not a list of clients",
        "write a list, as in [3, 7]",
        where="clients",
    )
    return tuple(cast(Iterable[int], clients))


@dataclass(frozen=True, kw_only=True)
class UnlearnRequest(Budget):
    """The clients to unlearn, the method, and the guarantee."""

    clients: tuple[int, ...] = option(
        help="the clients to unlearn, by name or numbered as in the training.",
        parser=parse_clients,
        example="3,7 or 0..4",
    )
    method: Method = option(
        "sifu",
        "``sifu`` (IFU for a first request), ``scratch``, ``fine-tune``, ``last``, ``dp`` (for a "
        "run trained with `Clipped` weights and a `Noisy` server), ``fed-accum`` (for a run with "
        "``keep_updates``), ``exact`` (for `poise.ridge`, with ``keep_updates``) or ``shards`` "
        "(for `poise.shards`).",
    )
    target: float | None = option(
        None,
        "accuracy on the remaining clients at which retraining ends (a loss, for tasks without "
        "accuracy); by default 99 % of the present model's accuracy on them.",
        label="Target score",
        example="99 % of the present one",
    )
    min_rounds: int = option(
        50, "retrain for at least this many rounds.", least=0, label="Minimum rounds"
    )
    max_rounds: int = option(
        10_000,
        "stop retraining after this many rounds.",
        least=1,
        label="Maximum rounds",
    )
    heuristic: bool = option(
        False,
        "continue where the bound has no proof; the certificate says so.",
        label="continue where the bound has no proof",
        advanced=True,
    )
    plan_sigma: bool = option(
        False,
        "choose sigma from the noise levels that training declared ([unlearning] sigmas), by the "
        'expected number of rounds; the same as ``sigma="plan"``.',
        label="choose sigma from the declared noise levels",
        advanced=True,
    )
    guarantee: Guarantee = option(
        "each",
        "``each`` guarantees (epsilon, delta) for every client of the request by itself; ``group`` "
        "for all of them together, which restarts earlier.",
    )
    noise: Noise = option(
        "secret",
        "``secret`` draws a seed that poise does not keep; the certificate only commits to it. "
        "``seeded`` draws the noise from the run's seed, for tests: the result is reproducible, "
        "and the noise hides nothing from anyone who knows the seed.",
        key="seeded_noise",
        switch="seeded",
        label="noise from the run's seed, for tests: it hides nothing from anyone who knows the "
        "seed",
        advanced=True,
    )
    measure_forgotten: bool = option(
        False,
        "also measure the new model on the unlearned clients, which reads their data.",
        label="also measure on the unlearned clients, which reads their data",
        advanced=True,
    )
    held_out: bool = option(
        False,
        "the target is the accuracy on the held-out data, not on the remaining clients' training "
        "data.",
        label="measure the target on the held-out data",
        advanced=True,
    )
    out: str | None = option(
        None, "folder of the branches; ``unlearning`` in the run's folder by default."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.min_rounds <= self.max_rounds,
            f"min_rounds {self.min_rounds} is above max_rounds {self.max_rounds}",
            where="min_rounds",
        )

    @classmethod
    def of(
        cls, given: Mapping[str, Any], declared: Mapping[str, Any] | None = None
    ) -> UnlearnRequest:
        """Return a request from a command line, a form or the JSON API.

        Args:
            given: values by key; None for an option that is left out.
            declared: the table [unlearning] of the training, for options that are left
                out.
        """
        entries = entries_of(cls)
        check_keys(given, entries, "a request")
        inherited = UnlearningPlan.of(declared or {}).budget.table()
        return cls(**{**inherited, **values_of(given, entries)})

    @property
    def budget(self) -> Budget:
        """The guarantee, and how sensitivities are counted."""
        values = vars(self)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the request already warned
            return Budget(
                **{field.name: values[field.name] for field in fields(Budget)}
            )

    def table(self) -> dict[str, Any]:
        """Return every option as plain data, for files and messages."""
        return {**asdict(self), "clients": list(self.clients)}
