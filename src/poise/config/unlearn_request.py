"""The options of a request to forget, declared once.

`poise.unlearn`, ``poise unlearn``, the JSON API, the form of the console, the table [requests] of
presets and request.json derive from the fields of `UnlearnRequest`.
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
from poise.core.options import check_keys, option, options_of
from poise.privacy.budget import Budget

Method = Literal["sifu", "scratch", "fine-tune", "last", "dp", "fed-accum"]
Noise = Literal["seeded", "secret"]

METHODS: tuple[str, ...] = get_args(Method)


def parse_clients(text: str) -> tuple[int, ...]:
    """Clients as the user writes them.

    >>> parse_clients("3,7"), parse_clients("0..2, 9")
    ((3, 7), (0, 1, 2, 9))
    """
    bare = text.replace(" ", "")
    if not re.fullmatch(r"\d+(\.\.\d+)?(,\d+(\.\.\d+)?)*", bare):
        raise InvalidOption(
            f"--clients {text!r} is not a list of clients", "write 3,7 or 0..4", where=("clients",)
        )
    found: list[int] = []
    for piece in bare.split(","):
        first, _, last = piece.partition("..")
        found += range(int(first), int(last or first) + 1)
    return tuple(found)


def client_numbers(clients: int | Iterable[int]) -> tuple[Any, ...]:
    """The clients that a user names in Python: one number, or any number of them."""
    if isinstance(clients, Integral):
        return (clients,)
    listed = isinstance(clients, Iterable) and not isinstance(clients, str)
    require(
        listed, f"clients = {clients!r} is not a list of clients", "as in [3, 7]", where="clients"
    )
    return tuple(cast(Iterable[int], clients))


@dataclass(frozen=True, kw_only=True)
class UnlearnRequest(Budget):
    """Who is to be forgotten, how, and what is guaranteed; `poise.core.options` checks every
    value.
    """

    clients: tuple[int, ...] = option(
        help="who is to be forgotten, numbered as in the training.",
        parser=parse_clients,
        example="3,7 or 0..4",
    )
    method: Method = option(
        "sifu",
        "``sifu`` (IFU for a first request), ``scratch``, ``fine-tune``, ``last``, ``dp`` (for a run trained with "
        "`Clipped` weights and a `Noisy` server) or ``fed-accum`` (for a run with ``keep_updates``).",
    )
    target: float | None = option(
        None,
        "accuracy on the remaining clients at which retraining ends (a loss, for tasks without accuracy); by default "
        "99 % of what the present model has on them.",
        label="Target score",
        example="99 % of the present one",
    )
    min_rounds: int = option(
        50, "retrain for at least this many rounds.", least=0, label="At least rounds"
    )
    max_rounds: int = option(
        10_000, "give up after this many rounds.", least=1, label="At most rounds"
    )
    heuristic: bool = option(
        False,
        "go on where the bound has no proof; the certificate says so.",
        label="go on where the bound has no proof",
        advanced=True,
    )
    noise: Noise = option(
        "seeded",
        "``seeded`` draws it from the run's seed, which makes the result reproducible and the noise known to whoever "
        "has the run; ``secret`` draws a seed that is not kept, and the certificate only commits to it.",
        key="secret_noise",
        switch="secret",
        label="noise that nobody can draw again",
        advanced=True,
    )
    measure_forgotten: bool = option(
        False,
        "measure the new model on the forgotten clients too, which reads their data.",
        label="measure on the forgotten too, which reads their data",
        advanced=True,
    )
    held_out: bool = option(
        False,
        "aim at the accuracy on the held-out data instead of that on the remaining clients' own.",
        label="aim at the held-out data",
        advanced=True,
    )
    out: str | None = option(
        None, "folder of the branches; ``unlearning`` in the run's folder by default."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        orderly = self.min_rounds <= self.max_rounds
        message = f"min_rounds {self.min_rounds} is above max_rounds {self.max_rounds}"
        require(orderly, message, where="min_rounds")

    @classmethod
    def of(
        cls, given: Mapping[str, Any], declared: Mapping[str, Any] | None = None
    ) -> UnlearnRequest:
        """A request from a command line, a form or the JSON API.

        Args:
            given: values by key; None stands for an option that is not given.
            declared: the table [unlearning] of the training, whose values hold where the request
                gives none.
        """
        entries = entries_of(cls)
        check_keys(given, entries, "a request")
        check_keys(declared or {}, options_of(Budget), "[unlearning]")
        return cls(**{**(declared or {}), **values_of(given, entries)})

    @property
    def budget(self) -> Budget:
        """What is guaranteed, and how sensitivities are counted."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # said when the request was made
            given = vars(self)
            return Budget(**{field.name: given[field.name] for field in fields(Budget)})

    def table(self) -> dict[str, Any]:
        """Every option as plain data, for files and messages."""
        return {**asdict(self), "clients": list(self.clients)}
