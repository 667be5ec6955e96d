"""What ``poise run`` will do, in a few lines before it starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from poise.analysis.reports.numbers import number
from poise.analysis.reports.wording import phrase
from poise.config.experiment import Experiment
from poise.config.run_options import RunOptions
from poise.core.algorithm_state import NamedVectors, memory_of
from poise.core.capabilities import HasTitle, SaysHow
from poise.core.errors import PoiseError
from poise.core.parts import describe
from poise.core.slots import DEFAULTS
from poise.core.traits import ClockTraits, SamplerTraits, traits_of
from poise.engine import Parts
from poise.results.words import brief
from poise.training import (
    NODES,
    Composition,
    Prepared,
    compose,
    options_in,
    parts_in,
    prepare,
    use_code,
)

MOST_SEEDS = 8
"""Number of seeds that the plan names one by one."""

ON_NODES = "flower"
"""The backend of runs on real nodes."""


def plan_of(
    composition: Composition,
    seeds: Sequence[int],
    folder: Path,
    taken: Path | None,
    nodes: str = "",
) -> list[tuple[str, str]]:
    """Return the plan of a run as (heading, text).

    Args:
        composition: of the first seed.
        seeds: of all runs.
        folder: of the runs.
        taken: the folder that was meant, if it has runs already.
        nodes: where the data are if not here, such as ``4 nodes of trial``.
    """
    prepared = prepare(composition)
    data = _data(composition)
    backend = brief(describe(composition.backend))
    if nodes:
        data = f"{data}; on {nodes}"
        backend = ON_NODES
    rows = [("data", data)]
    if composition.assumed:
        rows.append(("", composition.assumed))
    rows += [
        ("task", _task(prepared)),
        ("parts", _parts(composition.parts)),
        ("run", _length(composition.options, seeds, backend)),
        ("traffic", _traffic(prepared)),
        *_folder_rows(folder, seeds, taken),
    ]
    return rows


def plan_on_nodes(
    experiment: Experiment,
    seeds: Sequence[int],
    folder: Path,
    taken: Path | None,
    nodes: str,
) -> list[tuple[str, str]]:
    """Return the plan of a run on real nodes as (heading, text).

    If only the nodes have the data, it says what the experiment file says.
    """
    if experiment.table("data").get("source") != NODES:
        with suppress(PoiseError):  # the server reports problems of the whole run
            composition = compose(experiment, seeds[0])
            return plan_of(composition, seeds, folder, taken, nodes)
    use_code(experiment)
    options = options_in(experiment, seeds[0])
    return [
        ("data", f"on {nodes}"),
        ("task", phrase(experiment.table("task"))),
        ("parts", _parts(parts_in(experiment))),
        ("run", _length(options, seeds, ON_NODES)),
        ("traffic", "known when the nodes have registered their data"),
        *_folder_rows(folder, seeds, taken),
    ]


def _folder_rows(
    folder: Path, seeds: Sequence[int], taken: Path | None
) -> list[tuple[str, str]]:
    """The folder of the runs, with a hint if another one was meant."""
    rows = [("folder", _folder(folder, seeds))]
    if taken is not None:
        hint = f"{taken} exists already; to continue it: poise resume {taken}"
        rows.append(("", hint))
    return rows


def _data(composition: Composition) -> str:
    federation = composition.federation
    title = str(federation)
    if isinstance(federation, HasTitle):
        title = federation.title
    if federation.on_demand:
        return title
    sizes = np.asarray(federation.sizes)
    return (
        f"{title}; {sizes.sum():,} training samples, {sizes.min():,} to "
        f"{sizes.max():,} per client"
    )


def _task(prepared: Prepared) -> str:
    spec = prepared.composition.task.spec
    title = "your model"
    if spec is not None:
        title = brief(
            {"name": spec.get("model", spec.get("module", "")), **_rest(spec)}
        )
    layout = prepared.oracle.layout
    text = f"{title}: {layout.trainable:,} parameters"
    if isinstance(prepared.oracle, SaysHow) and prepared.oracle.computation:
        text += f"; {prepared.oracle.computation}"
    return text


def _rest(spec: object) -> dict[str, object]:
    """The options of a table [task] beside its model."""
    if not isinstance(spec, dict):
        return {}
    return {k: v for k, v in spec.items() if k not in ("model", "module")}


def _parts(parts: Parts) -> str:
    """The solver, and every part that is not the default of its slot."""
    texts = []
    for slot, part in parts.chosen():
        table = describe(part)
        if slot == "solver" or table != {"name": DEFAULTS.get(slot)}:
            texts.append(f"{slot} {brief(table)}")
    attacks = [brief(describe(attack)) for attack in parts.attacks]
    if attacks:
        texts.append(f"attacks {', '.join(attacks)}")
    return " · ".join(texts)


def _length(options: RunOptions, seeds: Sequence[int], backend: str) -> str:
    lengths = []
    if options.rounds is not None:
        lengths.append(_count(options.rounds, "round"))
    if options.time is not None:
        lengths.append(f"simulated time {options.time:g}")
    named = ", ".join(map(str, seeds[:MOST_SEEDS]))
    if len(seeds) > MOST_SEEDS:
        named += ", …"
    text = f"{' or '.join(lengths)}, {_count(len(seeds), 'seed')} ({named})"
    return f"{text}; backend {backend}"


def _count(number_of: int, word: str) -> str:
    if number_of == 1:
        return f"1 {word}"
    return f"{number_of:,} {word}s"


def _traffic(prepared: Prepared) -> str:
    """Bytes of one update and, if the number of clients is known, of a whole run."""
    theta = prepared.oracle.initial(prepared.composition.seed)
    parts = prepared.plan.parts
    wire = prepared.wire
    up = wire.bytes_up(wire.template(theta), len(parts.reports))
    memory = memory_of(parts.solver)
    shared: NamedVectors = {}
    if memory is not None:
        shared = memory.shared(theta[: prepared.oracle.layout.trainable])
    down = wire.bytes_down(theta, shared)
    text = f"{number(up, 'bytes')} up and {number(down, 'bytes')} down per client"
    rounds = prepared.composition.options.rounds
    clients = _clients_per_round(prepared)
    if rounds is None or clients is None:
        return text
    updates = rounds * clients
    return (
        f"{text}; about {number(up * updates, 'bytes')} up and "
        f"{number(down * updates, 'bytes')} down per seed ({clients:,} clients per round)"
    )


def _clients_per_round(prepared: Prepared) -> int | None:
    """The clients of one round; None if the clock decides how many answers count."""
    if traits_of(prepared.plan.parts.clock, ClockTraits).leaves_clients_behind:
        return None
    drawn = traits_of(prepared.plan.parts.sampler, SamplerTraits)
    if drawn.selects_everyone:
        return prepared.plan.setting.clients
    return drawn.per_round


def _folder(folder: Path, seeds: Sequence[int]) -> str:
    if len(seeds) == 1:
        return str(folder / f"seed-{seeds[0]}")
    return f"{folder}/seed-{seeds[0]} … seed-{seeds[-1]}"


def plan_lines(rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield the plan as aligned lines.

    >>> list(plan_lines([("data", "digits"), ("", "no alpha given")]))
    ['data     digits', '         no alpha given']
    """
    for heading, text in rows:
        yield f"{heading:<8} {text}"
