"""`Task`: an architecture, a loss, and metrics."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import numpy as np
import torch
from torch import nn

from poise.core.curvature import ConvexKind
from poise.core.errors import IncompatibleParts, InvalidOption, require, suggest
from poise.core.objects import is_name
from poise.core.rng import address
from poise.core.samples import Samples
from poise.core.traits import TaskTraits, still_holds
from poise.core.trees import first, mapped
from poise.core.vectors import Layout, Vector
from poise.metrics.metric import Metric
from poise.metrics.of_set import TorchMetric
from poise.tasks.calls import called as run_module
from poise.tasks.devices import autocast_type, device_named
from poise.tasks.fitting_metrics import check_metrics, metrics_for_own_loss
from poise.tasks.kernels import PATHS, Model, Path, choose
from poise.tasks.losses import LOSSES, USUAL_METRICS, PerSample
from poise.tasks.metric_kinds import (
    KNOWN,
    AnyMetric,
    MetricKinds,
    declared_directions,
    metric_kinds,
)
from poise.tasks.models import MODELS
from poise.tasks.named import (
    check_maker_options,
    function_specs,
    loss_named,
    metrics_named,
    module_named,
    module_spec,
    names_metrics,
    transform_named,
    without_name,
)
from poise.tasks.oracle import HasShards, SampleOracle, example_of
from poise.tasks.probe import (
    called,
    check_labels,
    check_largest_class,
    check_module,
    check_outputs,
    check_shapes,
    check_vocabulary,
    checked_loss,
    copied,
    is_lazy,
    materialised,
    probe_size,
    usual_loss,
)
from poise.tasks.trained import TrainedModule, loaded
from poise.tasks.transforms import (
    TRANSFORMS,
    Transform,
    chain,
    check_transform,
    names_of,
)

Loss: TypeAlias = (
    Literal["bce", "cross-entropy", "double-softmax", "mse"] | str | PerSample
)

DTYPES = {"float32": torch.float32, "float64": torch.float64}

CONVEX: dict[str, ConvexKind] = {"cross-entropy": "logistic", "mse": "least-squares"}
"""The kind of convex loss that a linear model has with each named loss."""


@dataclass(frozen=True)
class Task:
    """The model to train, its loss and its metrics: give a ``model`` by name, or any ``module``.

    Args:
        model: name of an architecture (`poise.task` is the short form).
        options: options of that architecture, or of the function in ``module``.
        module: an ``nn.Module``, whose present weights are the initial model, or a
            function that returns one (called once per seed), or the name of the
            function, ``"package.module:name"``. Frozen parameters
            (``requires_grad=False``) are part of the task: poise does not train or send
            them, and they are the same for every seed.
        loss: ``"cross-entropy"``, ``"double-softmax"``, ``"mse"``, ``"bce"``, or a
            function of (outputs, labels) that returns one value per sample, (n,), or
            per entry, (n, …), or the mean, or the name of the function; None chooses by
            the labels.
        metrics: names (``"accuracy"``, ``"auroc"``, …) or names of functions; or by
            title: functions of (outputs, labels) that return one value per sample, or
            one number for a whole set; metrics of `poise.metrics`; torchmetrics
            objects. None chooses by the loss.
        dtype: ``"float32"`` or ``"float64"``.
        path: ``"rows"`` runs the module for one client at a time, ``"functional"``
            stacks 32 clients, ``"dense"`` takes chains of dense layers; None chooses by
            the layers and their sizes.
        transform: ``"flip"``, ``"crop"``, ``"noise"``, several joined by ``+``, or a
            function of (x, generator) that returns changed samples; only in training.
        autocast: ``"bfloat16"`` computes the training passes in mixed precision, on the
            row path; None computes them in ``dtype``.

    >>> Task("mlp", {"hidden": 50}, loss="mse").spec
    {'model': 'mlp', 'hidden': 50, 'loss': 'mse'}
    """

    model: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    module: nn.Module | Callable[..., nn.Module] | str | None = None
    loss: Loss | None = None
    metrics: tuple[str, ...] | Mapping[str, AnyMetric] | None = None
    dtype: Literal["float32", "float64"] = "float32"
    path: Path | None = None
    transform: str | Transform | None = None
    autocast: Literal["bfloat16"] | None = None

    def __post_init__(self) -> None:
        require(
            (self.model is None) != (self.module is None),
            "Task: exactly one of model and module is required",
            where="model",
        )
        require(
            self.model is None or isinstance(self.model, str),
            f"Task: model = {self.model!r:.60} is not the name of a model",
            "for a module of your own write poise.Task(module=…)",
            where="model",
        )
        require(
            self.dtype in DTYPES,
            f"Task: unknown dtype {self.dtype!r}",
            suggest(str(self.dtype), DTYPES),
            where="dtype",
        )
        self._load_named()
        require(
            self.loss is None or callable(self.loss) or self.loss in LOSSES,
            f"Task: unknown loss {self.loss!r}",
            suggest(str(self.loss), LOSSES),
            where="loss",
        )
        require(
            self.path is None or self.path in PATHS,
            f"Task: unknown path {self.path!r}",
            suggest(str(self.path), PATHS),
            where="path",
        )
        require(
            self.autocast in (None, "bfloat16"),
            f"Task: unknown autocast {self.autocast!r}",
            "known: bfloat16",
            where="autocast",
        )
        require(
            self.autocast is None or self.dtype == "float32",
            "Task: autocast is for float32 models",
            "remove autocast or dtype",
            where="autocast",
        )
        functions = self.metrics.values() if isinstance(self.metrics, Mapping) else ()
        require(
            all(callable(f) or isinstance(f, Metric | TorchMetric) for f in functions),
            "Task: metrics must be names, or functions by name",
            suggest("", KNOWN),
            where="metrics",
        )
        require(
            not isinstance(self.metrics, str),
            f"Task: metrics = {self.metrics!r} is no list",
            f"write metrics=[{self.metrics!r}]",
            where="metrics",
        )
        for name in self.metrics or ():
            known = isinstance(self.metrics, Mapping) or name in KNOWN
            require(
                known,
                f"Task: unknown metric {name!r}",
                suggest(str(name), KNOWN),
                where="metrics",
            )
        require(
            self.transform is None
            or isinstance(self.transform, str)
            or callable(self.transform),
            f"Task: transform = {self.transform!r} is neither a name nor a function",
            suggest("", TRANSFORMS),
            where="transform",
        )
        if isinstance(self.transform, str):
            names_of(self.transform)
        if self.model is not None:
            _check_model(self.model, self.options)
        else:
            check_maker_options(self.module, self.options)

    def _load_named(self) -> None:
        """Replace names of users' objects by the objects."""
        require(
            not isinstance(self.module, Task),
            "Task: module is already a task",
            "give that task itself to poise.train",
            where="module",
        )
        if isinstance(self.module, str):
            object.__setattr__(self, "module", module_named(self.module))
        if is_name(self.loss):
            object.__setattr__(self, "loss", loss_named(self.loss))
        if self.metrics is not None and names_metrics(self.metrics):
            object.__setattr__(self, "metrics", metrics_named(self.metrics))
        if is_name(self.transform):
            object.__setattr__(self, "transform", transform_named(self.transform))

    @property
    def traits(self) -> TaskTraits:
        """Declare that named losses are never below 0, and which tasks are convex."""
        directions = declared_directions(self._metrics(self.loss or ""))
        if callable(self.loss):
            return TaskTraits(directions=directions)
        logistic = self.model == "logistic" and self._as_is
        return TaskTraits(
            convex="logistic" if logistic else None,
            lowest_loss=0.0,
            directions=directions,
        )

    @property
    def _as_is(self) -> bool:
        """Whether training uses the samples and the numbers as they are."""
        return self.transform is None and self.autocast is None

    @property
    def spec(self) -> dict[str, Any] | None:
        """The table of an experiment file, or None if the task has objects without a name."""
        functions = function_specs(self.loss, self.metrics, self.transform)
        architecture: dict[str, Any] | None = {"model": self.model, **self.options}
        if self.model is None:
            architecture = module_spec(self.module, self.options)
        if functions is None or architecture is None:
            return None
        chosen = {"path": self.path, "autocast": self.autocast}
        rest = {name: value for name, value in chosen.items() if value is not None}
        dtype = {"dtype": self.dtype} if self.dtype != "float32" else {}
        return {**architecture, **functions, **rest, **dtype}

    @property
    def without_name(self) -> str:
        """What keeps the task out of experiment files, for messages; empty if nothing."""
        if self.spec is not None:
            return ""
        function = without_name(self.loss, self.metrics, self.transform)
        return function or "the module"

    def bind(self, federation: HasShards, device: str = "cpu") -> SampleOracle:
        """Return the gradient oracle of this task on a federation."""
        samples = federation.shards(np.zeros(1, dtype=np.int64)).samples
        loss: str | PerSample = self.loss or usual_loss(samples)
        check_labels(loss, samples, named_model=self.model is not None)
        target = device_named(device)
        dtype = DTYPES[self.dtype]
        module = self._module(samples, 0)
        check_module(module)
        fitted = self._probe(module, samples, loss)
        example = example_of(samples)
        labels = samples.labels[torch.zeros(2, dtype=torch.int64)]
        autocast = autocast_type(self.autocast, target)
        chosen = choose(
            Model(module, loss, example, labels, dtype=dtype, autocast=autocast),
            self.path,
            built_in=self.module is None,
        )

        def start(seed: int) -> Vector:
            initial = self._module(samples, seed)
            return Layout.of_module(initial).flatten(
                initial.state_dict(keep_vars=True), dtype
            )

        return SampleOracle(
            federation,
            chosen.kernel,
            start=start,
            loss=fitted.loss,
            scores=fitted.metrics.per_sample,
            set_metrics=fitted.metrics.of_set,
            device=target,
            module=module,
            convex=self._convex(loss, samples),
            transform=self._transform(samples),
            computation=str(chosen),
        )

    def trained(self, samples: Samples, theta: Vector) -> TrainedModule:
        """Return the module of a model; only the form of the samples matters."""
        return loaded(self._module(samples, 0), theta, DTYPES[self.dtype])

    def _transform(self, samples: Samples) -> Transform | None:
        """Return the transform after a trial on two samples."""
        transform = self.transform
        if isinstance(transform, str):
            transform = chain(transform, samples)
        if transform is not None:
            check_transform(transform, example_of(samples))
        return transform

    def _convex(self, loss: str | PerSample, samples: Samples) -> ConvexKind | None:
        """Return the kind of convex loss; None for other models, losses and labels."""
        if self.model != "logistic" or not self._as_is:
            return None
        if not isinstance(loss, str) or loss not in CONVEX or samples.target_shape:
            return None
        if not still_holds(self, "_convex"):  # a subclass may train another model
            return None
        return CONVEX[loss]

    def _module(self, samples: Samples, seed: int) -> nn.Module:
        """Return the module with the initial weights of a seed."""
        if isinstance(self.module, nn.Module):
            check_module(self.module)
            made = copied(self.module).cpu()
            if is_lazy(made):
                with torch.random.fork_rng(devices=[]):
                    torch.manual_seed(address(seed, "init") & (2**63 - 1))
                    return self._materialised(made, samples)
            return made
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(address(seed, "init") & (2**63 - 1))
            if self.module is not None:
                assert not isinstance(self.module, str)  # `_load_named` replaced it
                require(
                    callable(self.module),
                    f"Task: module = {self.module!r} is neither a module nor a function",
                    where="module",
                )
                made = called("module", partial(self.module, **self.options))
                check_module(made)
                return self._materialised(made, samples)
            assert self.model is not None
            return MODELS[self.model](samples, samples.outputs, **self.options)

    def _materialised(self, module: nn.Module, samples: Samples) -> nn.Module:
        """Return the module with the sizes of its lazy layers."""
        if not is_lazy(module):
            return module
        return cast(
            nn.Module, called("module", materialised, module, example_of(samples))
        )

    def _metrics(
        self, loss: str | PerSample, usual: tuple[str, ...] = ()
    ) -> Mapping[str, AnyMetric]:
        """Return the metrics by name; those that fit the loss if the task names none.

        ``usual`` are those for a loss of the user's own.
        """
        if isinstance(self.metrics, Mapping):
            return self.metrics
        names = self.metrics
        if names is None:
            names = usual
            if isinstance(loss, str):
                names = USUAL_METRICS.get(loss, ())
        return {name: KNOWN[name] for name in names}

    def _probe(
        self, module: nn.Module, samples: Samples, loss: str | PerSample
    ) -> _Fitted:
        """Run one forward pass, to refuse a module that does not fit the data before training."""
        dtype = DTYPES[self.dtype]
        example = mapped(
            lambda part: part.to(dtype) if part.is_floating_point() else part,
            example_of(samples, probe_size(samples)),
        )
        module = copied(module).to(dtype).eval()
        try:
            outputs = run_module(module, example)
        except Exception as error:  # the module is the user's: it may raise anything
            raise IncompatibleParts(
                (
                    f"Task: {type(module).__name__} does not take samples of "
                    f"{samples.form}: {error or type(error).__name__}"
                ),
                "choose a model that fits the data, or reshape the data",
                where=("model",),
            ) from error
        check_vocabulary(module, example, samples)
        count = len(first(example))
        check_outputs(outputs, count, named_loss=isinstance(loss, str))
        labels = samples.labels[torch.zeros(count, dtype=torch.int64)]
        if isinstance(loss, str):
            fitted_loss = LOSSES[loss]
        else:
            fitted_loss = checked_loss(loss, outputs, labels)
            classes = samples.classes or samples.element_classes
            check_largest_class(loss, outputs, labels, classes)
        if isinstance(outputs, torch.Tensor):
            check_shapes(loss, outputs, samples)
        usual: tuple[str, ...] = ()
        if not isinstance(loss, str):
            usual = metrics_for_own_loss(outputs, samples)
        metrics = self._metrics(loss, usual)
        named = [name for name, f in metrics.items() if f is KNOWN.get(name)]
        check_metrics(named, outputs, samples)
        kinds = metric_kinds(metrics, outputs, labels, named_loss=isinstance(loss, str))
        return _Fitted(fitted_loss, kinds)


class _Fitted(NamedTuple):
    """The loss and the metrics after a forward pass on a few samples."""

    loss: PerSample
    metrics: MetricKinds


def task(
    model: str,
    *,
    loss: Loss | None = None,
    metrics: list[str] | tuple[str, ...] | Mapping[str, AnyMetric] | None = None,
    dtype: Literal["float32", "float64"] = "float32",
    path: Path | None = None,
    transform: str | Transform | None = None,
    autocast: Literal["bfloat16"] | None = None,
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
    return Task(
        model,
        options,
        loss=loss,
        metrics=chosen,
        dtype=dtype,
        path=path,
        transform=transform,
        autocast=autocast,
    )


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
