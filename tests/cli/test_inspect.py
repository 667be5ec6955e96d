"""``poise inspect``: numbers against the library, a page, and clear refusals."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import poise
from faults.support import call, small
from poise.graph.divergence import jensen_shannon, total_variation


def test_a_source_with_options(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    said = call(
        "inspect",
        "digits",
        "--set",
        "partition=one-class",
        "--set",
        "clients=10",
        "--out",
        page,
        "--json",
    )
    assert said.code == 0, said.err
    data = json.loads(said.out)
    fed = poise.federation("digits", "one-class", clients=10, seed=0)
    assert data["homogeneity"] == pytest.approx(poise.graph.similarity(fed).homogeneity)
    assert data["classes per client"] == 1
    assert data["divergence"]["total variation"]["mean"] == pytest.approx(0.9, abs=0.01)
    assert data["size"]["largest"] == fed.sizes.max()
    text = page.read_text(encoding="utf-8")
    for words in (
        "Misalignment of the clients",
        "Distribution of the misalignment",
        "Spectrum",
        "Similarity graph",
        "Classes of the clients",
    ):
        assert words in text


def test_an_experiment_file_and_the_table(tmp_path: Path) -> None:
    file = tmp_path / "e.toml"
    file.write_text(small())
    said = call("inspect", file, "--out", tmp_path / "page.html")
    assert said.code == 0, said.err
    for words in ("homogeneity", "samples per client", "Jensen-Shannon", "page.html"):
        assert words in said.out


def test_what_cannot_be_inspected_is_said() -> None:
    unknown = call("inspect", "digitz")
    assert (unknown.code, "did you mean 'digits'" in unknown.err) == (2, True)
    crowd = call(
        "inspect",
        "synthetic",
        "--set",
        "clients=5000",
        "--set",
        "size=10",
        "--set",
        "on_demand=true",
    )
    assert crowd.code == 2
    assert "5,000 clients" in crowd.err


def test_divergences_by_hand() -> None:
    counts = np.array([[4, 0], [2, 2]])  # all: 3/4, 1/4
    assert np.allclose(total_variation(counts), [0.25, 0.25])
    middle = np.array([0.875, 0.125])
    first = 0.5 * np.log2(1 / middle[0]) + 0.5 * (
        0.75 * np.log2(0.75 / middle[0]) + 0.25 * np.log2(0.25 / middle[1])
    )
    assert jensen_shannon(counts)[0] == pytest.approx(first)
    assert jensen_shannon([[1, 0], [0, 1]]).tolist() == pytest.approx(
        [0.311278] * 2, abs=1e-6
    )
