"""Runs in other programs: TensorBoard and MLflow, written from the ledger and from nothing else.

`tensorboard` and `mlflow` export a run that is there; `Live` is a callback of `poise.train` that
exports each round after the ledger has it. Both need their extra: ``pip install
'poise[tensorboard]'``, ``pip install 'poise[mlflow]'``.
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
