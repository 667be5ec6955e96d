"""Compare the unlearning methods of a preset: cost, accuracy, what the models still know.

    python benchmarks/unlearning_compared.py sifu-provable --cell centred \
        --runs runs/provable --write docs/reproductions.md

For every method and seed: rounds of retraining, accuracy on the remaining and on the
forgotten clients, AUC of membership inference on the forgotten clients' samples, rounds
until the trained model's accuracy on them is back when they rejoin, and the certified
epsilon. ``--runs`` is the folder of ``poise reproduce --out``. Every row is appended to
``compared-CELL.jsonl`` in that folder, and is not measured again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from page import put

from poise.apps.experiments.reproduction import Reproduction, load_reproduction
from poise.apps.experiments.unlearning_arms import certificates
from poise.results import Run, open_run
from poise.unlearning import examine, membership_auc, rounds_to_relearn
from poise.unlearning.histories import CERTIFICATE

COLUMNS = (
    "method",
    "rounds",
    "accuracy on the rest (%)",
    "on the forgotten (%)",
    "membership AUC",
    "rounds to relearn",
    "certified ε",
)
TRAINED = "trained model, before"


def main() -> None:
    """Measure what is missing, print the table, and write it into a page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("preset")
    parser.add_argument("--cell", default="")
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--most", type=int, default=300, help="rounds of relearning")
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    preset = load_reproduction(given.preset)
    file = given.runs / f"compared-{given.cell or 'all'}.jsonl"
    rows = _read(file)
    known = {(row["method"], row["seed"]) for row in rows}
    for row in _measured(
        preset, given.cell, folder=given.runs, most=given.most, known=known
    ):
        rows.append(row)
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(row) + "\n")
        print(row, flush=True)
    text = table(rows, given.most)
    print(text)
    if given.write:
        name = " ".join(filter(None, ("compared", given.preset, given.cell)))
        put(given.write, name, text)


def _read(file: Path) -> list[dict[str, Any]]:
    """Return the rows that were measured before."""
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def _measured(
    preset: Reproduction,
    cell: str,
    *,
    folder: Path,
    most: int,
    known: set[tuple[str, int]],
) -> Iterator[dict[str, Any]]:
    """Yield the rows of all finished methods and seeds that are not known."""
    first = preset.arms_of(cell)[0]
    for seed in preset.seeds:
        for arm in preset.arms_of(cell):
            history = folder / (cell or "all") / arm / f"seed-{seed}"
            branches = sorted(history.glob(f"*/{CERTIFICATE}"))
            if not branches:
                print(f"{history}: not run; run poise reproduce {preset.name} first")
                continue
            run = open_run(branches[-1].parent)
            name = preset.training_of(cell, arm)
            training = open_run(folder / "training" / name / f"seed-{seed}")
            clients = certificates(run)[-1]["forgotten so far"]
            if arm == first and (TRAINED, seed) not in known:
                yield {"seed": seed, **_trained_row(training, clients)}
            if (arm, seed) not in known:
                row = _row(training, run, clients, most=most)
                yield {"method": arm, "seed": seed, **row}
            training.close()
            run.close()


def _trained_row(training: Run, clients: Sequence[int]) -> dict[str, Any]:
    """Return the row of the model before the request."""
    rest = [c for c in range(training.clients) if c not in set(clients)]
    return {
        "method": TRAINED,
        "rounds": None,
        "rest": examine(training, {"": training}, rest)[""].score,
        "forgotten": examine(training, {"": training}, clients)[""].score,
        "auc": membership_auc(training, {"": training}, clients)[""],
        "relearn": None,
        "epsilon": None,
    }


def _row(
    training: Run, run: Run, clients: Sequence[int], *, most: int
) -> dict[str, Any]:
    """Return the figures of one method and seed."""
    document = certificates(run)[-1]
    result = document["result"]
    guarantee = document["guarantee"]
    again = rounds_to_relearn(training, run, clients, max_rounds=most)
    return {
        "rounds": result["rounds"],
        "reached": result["target reached"],
        "rest": result["on remaining clients"],
        "forgotten": result["on forgotten clients"],
        "auc": membership_auc(training, {"": run}, clients)[""],
        "relearn": most + 1 if again is None else again,
        "epsilon": guarantee["epsilon"] if guarantee["promised"] else None,
        "delta": guarantee["delta"],
        "for": guarantee.get("for", ""),
    }


def table(rows: Sequence[dict[str, Any]], most: int) -> str:
    """Return the table in Markdown: medians, with the lowest and the highest seed."""
    lines = [
        "| " + " | ".join(COLUMNS) + " |",
        "|" + "---|" * len(COLUMNS),
    ]
    for method in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == method]
        cells = [
            method,
            _rounds(own),
            _spread([100 * row["rest"] for row in own], 1),
            _spread([100 * row["forgotten"] for row in own], 1),
            _spread([row["auc"] for row in own], 3),
            _relearning(own, most),
            _epsilon(own),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    seeds = sorted({row["seed"] for row in rows})
    lines.append("")
    lines.append(f"Seeds {seeds[0]}–{seeds[-1]}: median (lowest–highest).")
    return "\n".join(lines) + "\n"


def _rounds(rows: Sequence[dict[str, Any]]) -> str:
    if rows[0]["rounds"] is None:
        return ""
    text = _spread([row["rounds"] for row in rows], 0)
    missed = sum(not row["reached"] for row in rows)
    return f"{text}, target missed {missed} ×" if missed else text


def _relearning(rows: Sequence[dict[str, Any]], most: int) -> str:
    if rows[0]["relearn"] is None:
        return ""
    return _spread([row["relearn"] for row in rows], 0).replace(
        str(most + 1), f"> {most}"
    )


def _epsilon(rows: Sequence[dict[str, Any]]) -> str:
    if rows[0]["method"] == TRAINED:
        return ""
    values = [row["epsilon"] for row in rows]
    if any(value is None for value in values):
        return "none"
    if not any(values):
        return "0 (complete removal)"
    text = f"{_spread(values, 1)} at δ = {rows[0]['delta']:g}"
    return f"{text}, together" if rows[0]["for"].startswith("all") else text


def _spread(values: Sequence[float], digits: int) -> str:
    """Return the median with the lowest and the highest value.

    >>> _spread([3, 1, 2], 0), _spread([2.0, 2.0], 1)
    ('2 (1–3)', '2.0')
    """
    middle, low, high = (
        f"{value:.{digits}f}"
        for value in (np.median(values), np.min(values), np.max(values))
    )
    return middle if low == high else f"{middle} ({low}–{high})"


if __name__ == "__main__":
    main()
