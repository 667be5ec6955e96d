"""Figures of a sweep."""

from __future__ import annotations

from poise.analysis.reports.estimates import estimate
from poise.analysis.reports.sweep_figures import SweptPoint, effect


def point(name: str, mean: float, **settings: float) -> SweptPoint:
    return SweptPoint(name, settings, estimate([mean]))


def test_the_only_point_of_a_value_stands_at_the_value() -> None:
    points = [point("b", 0.9, lr=0.1), point("a", 0.5, lr=0.01)]
    figure = effect(points, "lr", "accuracy")
    (drawn,) = figure.data
    assert list(drawn.x) == [1.0, 0.0]
    assert list(figure.layout.xaxis.tickvals) == [0, 1]
    assert "side by side" not in figure.layout.title.subtitle.text


def test_points_of_one_value_stand_around_it_and_the_caption_says_so() -> None:
    points = [
        point("best", 0.9, lr=0.01, steps=5),
        point("alone", 0.8, lr=0.1, steps=5),
        point("worse", 0.5, lr=0.01, steps=2),
    ]
    figure = effect(points, "lr", "accuracy")
    (drawn,) = figure.data
    best, alone, worse = drawn.x
    assert alone == 1.0
    assert -0.5 < best < 0.0 < worse < 0.5
    assert best == -worse
    note = figure.layout.title.subtitle.text
    assert "same lr stand side by side around its value, best on the left" in note
    assert "equal distances" in note
