"""Exports of runs: model files, model cards, and trackers; all values come from the ledger.

`safetensors`, `pytorch`, `onnx` and `hub_folder` take the model out, `card` describes it.
`tensorboard`, `mlflow` and `wandb` export the values of an existing run. `Live` is a
callback of `poise.train` that exports rounds during training. Some need an extra:
``pip install 'poise[onnx]'``, ``'poise[tensorboard]'``, ``'poise[mlflow]'``,
``'poise[wandb]'``.
"""

from poise.exports.choice import Chosen, best_of, chosen_seed
from poise.exports.hub import hub_folder, load_module, write_card
from poise.exports.live import Live
from poise.exports.mlflow import MLflow, mlflow
from poise.exports.model_cards import CardOptions, card
from poise.exports.onnx_file import onnx
from poise.exports.scalars import Scalar, Sink, export, scalars
from poise.exports.tensorboard import TensorBoard, tensorboard
from poise.exports.wandb import WandB, wandb
from poise.exports.weights import pytorch, safetensors

__all__ = [
    "CardOptions",
    "Chosen",
    "Live",
    "MLflow",
    "Scalar",
    "Sink",
    "TensorBoard",
    "WandB",
    "best_of",
    "card",
    "chosen_seed",
    "export",
    "hub_folder",
    "load_module",
    "mlflow",
    "onnx",
    "pytorch",
    "safetensors",
    "scalars",
    "tensorboard",
    "wandb",
    "write_card",
]
