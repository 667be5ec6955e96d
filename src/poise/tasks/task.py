"""`Task`: an architecture, a loss, and metrics."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import nn

from poise.core.curvature import ConvexKind
from poise.core.errors import IncompatibleParts, InvalidOption, require, suggest
from poise.core.rng import address
from poise.core.samples import Samples
from poise.core.traits import TaskTraits, still_holds
from poise.core.vectors import Layout, Vector
from poise.tasks.kernels import choose
from poise.tasks.losses import LOSSES, METRICS, PerSample
from poise.tasks.models import MODELS
from poise.tasks.oracle import HasShards, SampleOracle, device_named, example_of
from poise.tasks.probe import (
    called,
    check_loss,
    check_metrics,
    check_module,
    check_outputs,
)

Loss: TypeAlias = Literal["cross-entropy", "mse"] | PerSample

DTYPES = {"float32": torch.float32, "float64": torch.float64}

CONVEX: dict[str, ConvexKind] = {"cross-entropy": "logistic", "mse": "least-squares"}
"""The kind of convex loss that a linear model has with each named loss."""


@dataclass(frozen=True)
class Task:
    """The model to train, its loss and its metrics: give a ``model`` by name, or any ``module``.

    Args:
        model: name of an architecture (`poise.task` is the short form).
        options: options of that architecture.
        module: an ``nn.Module``, whose present weights are the initial model, or a
            function that returns one (called once per seed). Frozen parameters
            (``requires_grad=False``) are part of the task: poise does not train or send
            them, and they are the same for every seed.
        loss: ``"cross-entropy"``, ``"mse"``, or a function of (outputs, labels) that
            returns one value per sample or their mean; None chooses by the labels.
        metrics: names (``"accuracy"``, ``"mae"``) or functions of (outputs, labels)
            that return one value per sample; None chooses by the loss.
        dtype: ``"float32"`` or ``"float64"``.
        path: ``"rows"`` runs the module for one client at a time; None chooses by the
            layers.

    >>> Task("mlp", {"hidden": 50}, loss="mse").spec
    {'model': 'mlp', 'hidden': 50, 'loss': 'mse'}
    """

    model: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    module: nn.Module | Callable[[], nn.Module] | None = None
    loss: Loss | None = None
    metrics: tuple[str, ...] | Mapping[str, PerSample] | None = None
    dtype: Literal["float32", "float64"] = "float32"
    path: Literal["rows"] | None = None

    def __post_init__(self) -> None:
        require(
            (self.model is None) != (self.module is None),
            "Task: exactly one of model and module is required",
            where="model",
        )
        require(
            self.dtype in DTYPES,
            f"Task: unknown dtype {self.dtype!r}",
            suggest(str(self.dtype), DTYPES),
            where="dtype",
        )
        require(
            self.loss is None or callable(self.loss) or self.loss in LOSSES,
            f"Task: unknown loss {self.loss!r}",
            suggest(str(self.loss), LOSSES),
            where="loss",
        )
        require(
            self.path in (None, "rows"),
            f"Task: unknown path {self.path!r}",
            "known: rows",
            where="path",
        )
        functions = self.metrics.values() if isinstance(self.metrics, Mapping) else ()
        require(
            all(callable(function) for function in functions),
            "Task: metrics must be names, or functions by name",
            suggest("", METRICS),
            where="metrics",
        )
        for name in self.metrics or ():
            known = isinstance(self.metrics, Mapping) or name in METRICS
            require(
                known,
                f"Task: unknown metric {name!r}",
                suggest(str(name), METRICS),
                where="metrics",
            )
        if self.model is not None:
            _check_model(self.model, self.options)

    @property
    def traits(self) -> TaskTraits:
        """Declare that named losses are never below 0, and which tasks are convex."""
        if callable(self.loss):
            return TaskTraits()
        logistic = self.model == "logistic"
        return TaskTraits(convex="logistic" if logistic else None, lowest_loss=0.0)

    @property
    def spec(self) -> dict[str, Any] | None:
        """The table of an experiment file, or None if the task contains Python objects."""
        if (
            self.model is None
            or callable(self.loss)
            or isinstance(self.metrics, Mapping)
        ):
            return None
        rest = {
            "loss": self.loss,
            "metrics": self.metrics and list(self.metrics),
            "path": self.path,
        }
        dtype = {"dtype": self.dtype} if self.dtype != "float32" else {}
        return {
            "model": self.model,
            **self.options,
            **{k: v for k, v in rest.items() if v is not None},
            **dtype,
        }

    def bind(self, federation: HasShards, device: str = "cpu") -> SampleOracle:
        """Return the gradient oracle of this task on a federation."""
        samples = federation.shards(np.zeros(1, dtype=np.int64)).samples
        classification = samples.classes > 0
        loss = self.loss or ("cross-entropy" if classification else "mse")
        if loss == "cross-entropy" and not classification:
            raise IncompatibleParts(
                "Task: cross-entropy needs class labels, but the labels are numbers",
                "use 'mse'",
                where=("loss",),
            )
        if loss == "mse" and classification and self.model is not None:
            raise IncompatibleParts(
                "Task: mse needs numbers, but the labels are classes",
                "give y as floats",
                where=("loss",),
            )
        target = device_named(device)
        dtype = DTYPES[self.dtype]
        module = self._module(samples, 0)
        check_module(module)
        self._probe(module, samples, loss)
        kernel = choose(
            module, loss, example_of(samples), dtype, force_rows=self.path == "rows"
        )
        per_sample = LOSSES[loss] if isinstance(loss, str) else loss

        def start(seed: int) -> Vector:
            initial = self._module(samples, seed)
            return Layout.of_module(initial).flatten(
                initial.state_dict(keep_vars=True), dtype
            )

        return SampleOracle(
            federation,
            kernel,
            start=start,
            loss=per_sample,
            scores=self._scores(loss),
            device=target,
            module=module,
            convex=self._convex(loss),
        )

    def _convex(self, loss: str | PerSample) -> ConvexKind | None:
        """Return the kind of convex loss; None for other models and losses of your own."""
        if self.model != "logistic" or not isinstance(loss, str):
            return None
        if not still_holds(self, "_convex"):  # a subclass may train another model
            return None
        return CONVEX[loss]

    def _module(self, samples: Samples, seed: int) -> nn.Module:
        """Return the module with the initial weights of a seed."""
        if isinstance(self.module, nn.Module):
            check_module(self.module)
            return copy.deepcopy(self.module).cpu()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(address(seed, "init") & (2**63 - 1))
            if self.module is not None:
                require(
                    callable(self.module),
                    f"Task: module = {self.module!r} is neither a module nor a function",
                    where="module",
                )
                made: nn.Module = called("module", self.module)
                return made
            assert self.model is not None
            return MODELS[self.model](samples, max(samples.classes, 1), **self.options)

    def _scores(self, loss: str | PerSample) -> dict[str, PerSample]:
        if isinstance(self.metrics, Mapping):
            return dict(self.metrics)
        names = self.metrics
        if names is None:
            defaults = {"cross-entropy": ("accuracy",), "mse": ("mae",)}
            names = defaults.get(loss, ()) if isinstance(loss, str) else ()
        return {name: METRICS[name] for name in names}

    def _probe(
        self, module: nn.Module, samples: Samples, loss: str | PerSample
    ) -> None:
        """Run one forward pass, to refuse a module that does not fit the data before training."""
        example = example_of(samples)
        dtype = DTYPES[self.dtype]
        example = example.to(dtype) if example.is_floating_point() else example
        try:
            outputs = copy.deepcopy(module).to(dtype).eval()(example)
        except Exception as error:  # the module is the user's: it may raise anything
            raise IncompatibleParts(
                (
                    f"Task: {type(module).__name__} does not take samples of shape "
                    f"{samples.shape}: {error or type(error).__name__}"
                ),
                "choose a model that fits the data, or reshape the data",
                where=("model",),
            ) from error
        check_outputs(outputs, len(example))
        labels = samples.labels[torch.zeros(len(example), dtype=torch.int64)]
        if not isinstance(loss, str):
            check_loss(loss, outputs, labels)
        if isinstance(self.metrics, Mapping):
            check_metrics(self.metrics, outputs, labels)
        if loss == "cross-entropy" and (
            outputs.dim() != 2 or outputs.shape[1] < samples.classes
        ):
            raise IncompatibleParts(
                (
                    f"Task: the model gives outputs of shape {tuple(outputs.shape[1:])} for "
                    f"{samples.classes} classes"
                ),
                where=("model",),
            )


def task(
    model: str,
    *,
    loss: Loss | None = None,
    metrics: list[str] | tuple[str, ...] | Mapping[str, PerSample] | None = None,
    dtype: Literal["float32", "float64"] = "float32",
    path: Literal["rows"] | None = None,
    **options: Any,
) -> Task:
    """Return a task by the name of its architecture.

    >>> task("mlp", hidden=50).options["hidden"]
    50
    >>> task("mpl")
    Traceback (most recent call last):
    ...
    poise.core.errors.InvalidOption: unknown model 'mpl' (did you mean 'mlp'?)
    """
    chosen = tuple(metrics) if isinstance(metrics, list) else metrics
    return Task(model, options, loss=loss, metrics=chosen, dtype=dtype, path=path)


def _check_model(model: str, options: Mapping[str, Any]) -> None:
    if model == "ridge":
        raise InvalidOption(
            "the head of 'ridge' is solved, not trained",
            "use poise.ridge(…) with the solver Sums()",
            where=("model",),
        )
    if model not in MODELS:
        raise InvalidOption(
            f"unknown model {model!r}", suggest(model, MODELS), where=("model",)
        )
    known = list(inspect.signature(MODELS[model]).parameters)[2:]
    for key in options:
        hint = suggest(key, known) if known else "it has no options"
        require(key in known, f"model {model!r} has no option {key!r}", hint, where=key)
