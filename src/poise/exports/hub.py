"""A folder for a model hub: weights, configuration and model card; and its reader."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn

from poise.core.errors import InvalidOption, PoiseError
from poise.core.federations import TaskLike
from poise.exports.markdown import fence
from poise.exports.model_cards import CardOptions, Subject, card, card_of
from poise.exports.model_cards.subject import without_folders
from poise.exports.trained import TrainedModel
from poise.exports.weights import WEIGHTS, weights_file
from poise.exports.writing import file_at, write
from poise.results import Run
from poise.results.modules import SAMPLE_FORM
from poise.tasks import task_of
from poise.tasks.forms import form_of, form_text
from poise.tasks.named import task_modules
from poise.tasks.trained import MakesModule

CONFIG = "config.json"
CARD = "README.md"

FORMAT = 1
"""The version of the configuration."""


def hub_folder(
    run: Run,
    folder: str | Path,
    siblings: Sequence[Run] = (),
    *,
    n: int | None = None,
    client: int | str | None = None,
    task: TaskLike | None = None,
    options: CardOptions | None = None,
) -> Path:
    """Write a folder in the layout of model hubs; upload nothing.

    ``model.safetensors`` has the weights, ``config.json`` architecture, classes and form
    of the inputs, ``README.md`` the model card. `load_module` reads the folder. Other files in
    the folder stay.

    Args:
        run: the run.
        folder: the folder.
        siblings: runs of other seeds, for the intervals of the card.
        n: the model after n aggregations; the newest by default.
        client: the model that this client uses, with its personal layers.
        task: the task of the run; see `safetensors`.
        options: licence, headline, and whether the card lists clients.

    >>> import poise, tempfile
    >>> fed = poise.federation("digits", clients=5)
    >>> solver = poise.solvers.SGD(lr=0.1, steps=5, batch_size=20)
    >>> run = poise.train(fed, poise.task("logistic"), solver, rounds=2)
    >>> folder = poise.exports.hub_folder(run, tempfile.mkdtemp())
    >>> sorted(file.name for file in folder.iterdir())
    ['README.md', 'config.json', 'model.safetensors']
    >>> poise.exports.load_module(folder)(torch.zeros(1, 1, 8, 8)).shape
    torch.Size([1, 10])
    """
    place = Path(folder)
    model = TrainedModel(run, n, client, task)
    subject = Subject.of(run, siblings, n=n, client=client, options=options)
    config = configuration(model, subject)
    files = {
        place / WEIGHTS: weights_file(model),
        place / CONFIG: f"{json.dumps(config, indent=2)}\n".encode(),
        place / CARD: card_of(subject, usage(config)).encode(),
    }
    write(files)
    return place


def write_card(
    run: Run,
    path: str | Path,
    siblings: Sequence[Run] = (),
    *,
    n: int | None = None,
    client: int | str | None = None,
    options: CardOptions | None = None,
) -> Path:
    """Write the model card of a run (`card`) into a file, or as README.md into a folder."""
    text = card(run, siblings, n=n, client=client, options=options)
    file = file_at(path, CARD)
    write({file: text.encode()})
    return file


def configuration(model: TrainedModel, subject: Subject) -> dict[str, Any]:
    """Return the configuration of a model: architecture, classes, inputs and origin."""
    table = without_folders(model.task_table)
    config: dict[str, Any] = {
        "model_type": "poise",
        "architectures": [subject.model],
        "library_name": "pytorch",
    }
    if subject.class_names:
        config["id2label"] = dict(enumerate(subject.class_names))
        config["label2id"] = {name: k for k, name in enumerate(subject.class_names)}
    described = _form(model)
    if described:
        config["num_labels"] = described.get("classes", 0)
        config["inputs"] = inputs_of(described)
        config["sample_form"] = described
    origin = {key.partition(".")[2]: value for key, value in model.facts.items()}
    hidden = ("sample form", "class names")
    origin = {key: value for key, value in origin.items() if key not in hidden}
    return {
        **config,
        "poise": {
            "config": FORMAT,
            "entries": len(model.run.model),
            "task": table,
            **origin,
        },
    }


def _form(model: TrainedModel) -> dict[str, Any]:
    """Return the form of a sample; empty if an older run did not record it."""
    text = model.run.meta.get(SAMPLE_FORM)
    if text is None:
        try:
            text = form_text(model.form)
        except PoiseError:
            return {}
    described: dict[str, Any] = json.loads(text)
    return described


def inputs_of(form: dict[str, Any]) -> list[dict[str, Any]]:
    """Return name, shape and meaning of every input of the model.

    >>> inputs_of({"shapes": [[1, 8, 8]], "plain": False, "scales": [0.0625], "shifts": [0.0]})
    [{'name': 'x', 'shape': [1, 8, 8], 'dtype': 'float', 'preprocessing': 'value * 0.0625 + 0.0'}]
    """
    shapes = form["shapes"]
    names = form.get("names") or [f"x{k}" for k in range(len(shapes))]
    if len(shapes) == 1 and not form.get("names"):
        names = ["x"]
    described = []
    for k, (name, shape) in enumerate(zip(names, shapes, strict=True)):
        tokens = "tokens" in form and form["tokens"][k]
        entry = {"name": name, "shape": shape, "dtype": "int64" if tokens else "float"}
        if tokens:
            entry["vocabulary"] = form["vocabularies"][k]
        elif not form.get("plain", True):
            entry["preprocessing"] = _preprocessing(form, k)
        described.append(entry)
    return described


def _preprocessing(form: dict[str, Any], k: int) -> str:
    """Return how a stored value becomes an input."""
    scale, shift = (
        form.get(name, [None] * (k + 1))[k] for name in ("scales", "shifts")
    )
    shown = ["one number per entry" if v is None else v for v in (scale, shift)]
    return f"value * {shown[0]} + {shown[1]}"


def usage(config: dict[str, Any]) -> str:
    """Return how to read the folder, as Markdown."""
    table = config["poise"]["task"]
    lines = [
        "import poise.exports",
        'module = poise.exports.load_module(".")  # an nn.Module in evaluation mode',
    ]
    if task_modules(table):
        lines[1] = (
            'module = poise.exports.load_module(".", trust_code=True)  # imports its code'
        )
    if not table:
        lines = [
            "from safetensors.torch import load_file",
            f'module.load_state_dict(load_file("{WEIGHTS}"))  # module: your own nn.Module',
        ]
    parts = [fence("\n".join(lines), "python")]
    for entry in config.get("inputs", ()):
        shape = ", ".join(["batch", *map(str, entry["shape"])])
        text = f"Input `{entry['name']}`: {entry['dtype']}, shape ({shape})"
        if "vocabulary" in entry:
            text += f", tokens 0 … {entry['vocabulary'] - 1}"
        if "preprocessing" in entry:
            text += f"; from stored values: {entry['preprocessing']}"
        parts.append(f"{text}.")
    return "\n\n".join(parts)


def load_module(folder: str | Path, *, trust_code: bool = False) -> nn.Module:
    """Return the module in a folder of `hub_folder`, in evaluation mode.

    Args:
        folder: the folder.
        trust_code: whether to import the code that the configuration names. A folder
            can name any code: allow this only for folders that you trust.
    """
    place = Path(folder)
    try:
        config = json.loads((place / CONFIG).read_text(encoding="utf-8"))
        origin = config["poise"]
        table = dict(origin["task"])
        form = json.dumps(config["sample_form"])
        entries = int(origin["entries"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidOption(
            f"{place / CONFIG} is not a configuration of poise: {error}",
            "name a folder that `poise export RUN --hub-folder DIR` wrote",
        ) from error
    if not table:
        raise InvalidOption(
            f"{place / CONFIG} has no name of the model, which was a Python object",
            f"make your module and load {WEIGHTS} into it",
        )
    modules = task_modules(table)
    if modules and not trust_code:
        raise InvalidOption(
            f"{place} names code of its own: {', '.join(modules)}",
            "load_module(folder, trust_code=True) imports it, if you trust it",
        )
    return _with_weights(_empty_module(table, form, entries), place / WEIGHTS)


def _empty_module(table: dict[str, Any], form: str, entries: int) -> nn.Module:
    """Return the module of a task, whose weights are all 0."""
    task = task_of(table)
    assert isinstance(task, MakesModule)
    try:
        samples = form_of(form).samples
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise InvalidOption(f"the sample form cannot be read: {error}") from error
    zeros = torch.zeros(()).expand(entries)
    return task.trained(samples, zeros).module


def _with_weights(module: nn.Module, file: Path) -> nn.Module:
    """Load weights into a module."""
    from safetensors.torch import load_file

    try:
        module.load_state_dict(load_file(file))
    except (SafetensorError, OSError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise PoiseError(
            f"{file} does not fit the model of its configuration: {reason}",
            "export the folder again",
        ) from error
    return module.eval()
