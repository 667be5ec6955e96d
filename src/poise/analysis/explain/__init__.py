"""Predictions of the theory about a composition, before any training."""

from poise.analysis.explain.constants import Constants, constants
from poise.analysis.explain.explanation import Explanation, explain, explain_composition
from poise.analysis.explain.left_out import LeftOut, left_out
from poise.analysis.explain.remarks import Remark

__all__ = [
    "Constants",
    "Explanation",
    "LeftOut",
    "Remark",
    "constants",
    "explain",
    "explain_composition",
    "left_out",
]
