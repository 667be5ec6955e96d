"""Scores, tables, figures and pages of runs, all read from their ledgers."""

from poise.analysis.reports.compare import Comparison, Contrast, compare
from poise.analysis.reports.estimates import Difference, Estimate, estimate
from poise.analysis.reports.figures import (
    class_composition,
    learning_curves,
    participation,
    trait_weights,
    weight_departure,
    weight_map,
)
from poise.analysis.reports.groups import Group, group_runs
from poise.analysis.reports.page import render_page, write_page
from poise.analysis.reports.rows import Score, ScoreRow, score_table
from poise.analysis.reports.tables import (
    comparison_as_data,
    rows_as_data,
    terminal_notes,
    terminal_table,
)
from poise.analysis.reports.weight_shifts import (
    TraitWeight,
    departure,
    weights_by_trait,
)

__all__ = [
    "Comparison",
    "Contrast",
    "Difference",
    "Estimate",
    "Group",
    "Score",
    "ScoreRow",
    "TraitWeight",
    "class_composition",
    "compare",
    "comparison_as_data",
    "departure",
    "estimate",
    "group_runs",
    "learning_curves",
    "participation",
    "render_page",
    "rows_as_data",
    "score_table",
    "terminal_notes",
    "terminal_table",
    "trait_weights",
    "weight_departure",
    "weight_map",
    "weights_by_trait",
    "write_page",
]
