"""Exports of runs to TensorBoard and MLflow; all values come from the ledger.

`tensorboard` and `mlflow` export an existing run. `Live` is a callback of `poise.train`
that exports rounds during training. Each needs its extra:
``pip install 'poise[tensorboard]'``, ``pip install 'poise[mlflow]'``.
"""

from poise.exports.live import Live
from poise.exports.mlflow import MLflow, mlflow
from poise.exports.scalars import Scalar, Sink, export, scalars
from poise.exports.tensorboard import TensorBoard, tensorboard

__all__ = [
    "Live",
    "MLflow",
    "Scalar",
    "Sink",
    "TensorBoard",
    "export",
    "mlflow",
    "scalars",
    "tensorboard",
]
