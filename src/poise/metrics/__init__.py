"""Metrics of a set of samples: values that are no mean of values per sample."""

from __future__ import annotations

from poise.metrics.calibration import CalibrationError
from poise.metrics.concordance import Concordance
from poise.metrics.confusion import F1, BalancedAccuracy, Dice, IoU
from poise.metrics.metric import Metric
from poise.metrics.of_set import OfSet, from_torchmetrics
from poise.metrics.perplexity import Perplexity
from poise.metrics.ranking import AUPRC, AUROC
from poise.metrics.regression import R2

__all__ = [
    "AUPRC",
    "AUROC",
    "F1",
    "R2",
    "BalancedAccuracy",
    "CalibrationError",
    "Concordance",
    "Dice",
    "IoU",
    "Metric",
    "OfSet",
    "Perplexity",
    "from_torchmetrics",
]
