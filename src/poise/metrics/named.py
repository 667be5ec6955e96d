"""The metrics of a set that have a name."""

from __future__ import annotations

from poise.metrics.calibration import CalibrationError
from poise.metrics.concordance import Concordance
from poise.metrics.confusion import F1, BalancedAccuracy, Dice, IoU
from poise.metrics.metric import Metric
from poise.metrics.perplexity import Perplexity
from poise.metrics.ranking import AUPRC, AUROC
from poise.metrics.regression import R2

NAMED: dict[str, Metric] = {
    "auprc": AUPRC(),
    "auroc": AUROC(),
    "balanced-accuracy": BalancedAccuracy(),
    "calibration-error": CalibrationError(),
    "concordance": Concordance(),
    "dice": Dice(),
    "f1": F1(),
    "f1-micro": F1("micro"),
    "iou": IoU(),
    "perplexity": Perplexity(),
    "r2": R2(),
}
