"""Mutated experiment files: each runs, or gets one sentence about what is wrong."""

from __future__ import annotations

import random
import re
import time
import tomllib
import warnings
from pathlib import Path

import pytest
import tomli_w

import poise.config
from faults.support import SMALL
from poise.apps.experiments.reproduction import load_reproduction, presets
from poise.config.experiment import parse
from poise.core.errors import PoiseError
from poise.training import begin, compose

LIMIT = 2.0  # seconds of the processor
DEMOS = sorted((Path(poise.config.__file__).parent / "presets/demo").glob("*.toml"))

VALUES = [
    "0", "-1", "1", "0.5", "1e400", "-0.0", "nan", "inf", "10000000000000000000000",
    "999999999999999999", "true", "false", '""', '"x"', '"sgd"', '"local"', "[]", "[1]",
    "[[]]", "{}", "{a = 1}", "1979-05-27", "07:32:00", "[0, 0]", '["accuracy"]', "'\\u0000'",
]  # fmt: skip
JUNK = [
    "=",
    "[",
    "]",
    '"',
    "\n",
    "#",
    ".",
    ",",
    "\x00",
    "é",
    "[run]",
    "[solver]\n",
    "𝟛",
]


def mutated(text: str, rng: random.Random) -> str:
    """A file with one or two changes: values, keys, lines, tables or characters."""
    for _ in range(rng.choice([1, 1, 2])):
        lines = text.splitlines()
        row = rng.randrange(len(lines))
        kind = rng.choices(range(7), weights=[6, 3, 2, 1, 1, 1, 1])[0]
        if kind == 0 and "=" in lines[row]:
            lines[row] = lines[row].split("=")[0] + f"= {rng.choice(VALUES)}"
        elif kind == 1:
            lines[row] = re.sub(r"[\d.]+", lambda m: rng.choice(VALUES), lines[row])
        elif kind == 2:
            del lines[row]
        elif kind == 3:
            lines.insert(rng.randrange(len(lines)), lines[row])
        elif kind == 4:
            at = rng.randrange(len(lines[row]) + 1)
            lines[row] = lines[row][:at] + rng.choice(JUNK) + lines[row][at:]
        elif kind == 5:
            other = rng.randrange(len(lines))
            lines[row], lines[other] = lines[other], lines[row]
        else:
            at = rng.randrange(len(lines[row]) + 1)
            lines[row] = lines[row][:at] + lines[row][at + rng.randint(1, 4) :]
        text = "\n".join(lines or [""]) + "\n"
    return text


def outcome(text: str, rounds: int) -> str:
    """Run some rounds of an experiment file; return the sentence of its refusal."""
    done: list[object] = []
    began = time.process_time()
    message = ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            experiment = parse(text)
            composition = compose(experiment, experiment.seeds[0])
            begin(
                composition, callbacks=[done.append], stop=lambda: len(done) >= rounds
            )
    except PoiseError as error:
        message = error.message.strip() or "no sentence"
    assert time.process_time() - began < LIMIT, text
    assert message != "no sentence"
    return message


def check(texts: list[str], seed: int, count: int, rounds: int) -> None:
    rng = random.Random(seed)
    messages = []
    for number in range(count):
        text = mutated(texts[number % len(texts)], rng)
        try:
            messages.append(outcome(text, rounds))
        except Exception as error:
            raise AssertionError(
                f"mutation {number} of seed {seed}:\n{text}"
            ) from error
    assert "" in messages
    assert len(set(messages)) > count // 5


def preset_texts() -> list[str]:
    """The first experiment of every preset, on the data of the small experiment."""
    texts = [path.read_text(encoding="utf-8") for path in DEMOS]
    data = tomllib.loads(SMALL)["data"]
    for name in presets():
        preset = load_reproduction(name)
        cell = preset.cells[0]
        tables = preset.experiment(cell, preset.arms_of(cell)[0]).tables
        texts.append(tomli_w.dumps({**tables, "data": data}))
    return texts


@pytest.mark.parametrize(
    ("seed", "count"), [(0, 40), pytest.param(1, 200, marks=pytest.mark.thorough)]
)
def test_mutations_of_the_small_experiment(seed: int, count: int) -> None:
    check([SMALL], seed, count, rounds=1)


@pytest.mark.parametrize(
    ("seed", "count"), [(0, 30), pytest.param(1, 200, marks=pytest.mark.thorough)]
)
def test_mutations_of_presets(seed: int, count: int) -> None:
    check(preset_texts(), seed, count, rounds=0)
