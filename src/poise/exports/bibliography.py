"""The works that poise cites, and those that the docstrings of parts cite."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import poise.training.slots  # noqa: F401 - declares the parts of all slots
from poise.core.parts import parts_of
from poise.core.slots import DEFAULTS, RUN_SLOTS
from poise.data.partitions import PARTITIONS
from poise.data.sources import SOURCES
from poise.tasks.models import MODELS

FILE = "references.bib"

_ENTRY = re.compile(r"@\w+\{(?P<key>[^,]+),\n(?P<fields>.*?)\n\}", re.DOTALL)
_FIELD = re.compile(r"^  (\w+) = \{+(.*?)\}+,$", re.MULTILINE)
_CITED = re.compile(r"\[([A-Z][\w-]*)\s+((?:19|20)\d\d)(?:,[^\[\]]*)?\]")


@dataclass(frozen=True)
class Work:
    """One entry of the bibliography.

    Args:
        key: for example ``fraboni-2023``.
        fields: author, title, year and where it was published.
    """

    key: str
    fields: Mapping[str, str]

    @property
    def label(self) -> str:
        """The name of the work in a text, such as ``Fraboni 2023``."""
        name, _, year = self.key.rpartition("-")
        if name == "exp-alpha":
            return f"Exp-α {year}"
        first_author = self.fields["author"].partition(" and ")[0]
        return f"{first_author.split()[-1]} {year}"

    @property
    def place(self) -> str:
        """The journal, conference or school; empty for a preprint."""
        kinds = ("journal", "booktitle", "school", "institution", "howpublished")
        return next((self.fields[k] for k in kinds if k in self.fields), "")

    @property
    def link(self) -> str:
        """The address of the work; empty if there is none."""
        if "doi" in self.fields:
            return f"https://doi.org/{self.fields['doi']}"
        if "eprint" in self.fields:
            return f"https://arxiv.org/abs/{self.fields['eprint']}"
        return self.fields.get("url", "")

    def __str__(self) -> str:
        authors = self.fields["author"].replace(" and ", ", ")
        parts = [f"{authors}. *{self.fields['title']}.*", self.place]
        where = " ".join(filter(None, parts))
        text = f"**[{self.label}]** {where}, {self.fields['year']}."
        if not self.place:
            text = f"**[{self.label}]** {where} {self.fields['year']}."
        if self.link:
            return f"{text} <{self.link}>"
        return text


@cache
def works() -> dict[str, Work]:
    """Return the works of the bibliography by key.

    >>> works()["li-2021"].label
    'Li 2021'
    """
    text = files("poise.exports").joinpath(FILE).read_text(encoding="utf-8")
    found = {}
    for entry in _ENTRY.finditer(text):
        fields = dict(_FIELD.findall(entry["fields"].replace(r"\&", "&")))
        found[entry["key"]] = Work(entry["key"], fields)
    return found


def cited_in(text: str) -> list[Work]:
    """Return the works that a text cites, in order and once each.

    >>> [work.key for work in cited_in("as in [Exp-α 2023, §4], [Li 2021] and [Nobody]")]
    ['exp-alpha-2023', 'li-2021']
    """
    known = works()
    found: dict[str, Work] = {}
    for name, year in _CITED.findall(text):
        key = f"{name.lower().replace('α', 'alpha')}-{year}"
        if key in known:
            found[key] = known[key]
    return list(found.values())


def sources_of(experiment: Mapping[str, Any]) -> dict[str, list[Work]]:
    """Return the works behind each table of an experiment.

    They are those that the docstring of the named part, model or partition cites. Names
    that this process does not know, such as parts of the user's own, have none.

    >>> [w.label for w in sources_of({"sampler": {"name": "md", "m": 3}})["sampler"]]
    ['Fraboni 2023']
    """
    found: dict[str, list[Work]] = {}
    for section, objects in _objects(experiment).items():
        texts = [inspect.getdoc(thing) or "" for thing in objects]
        cited = cited_in("\n".join(texts))
        if cited:
            found[section] = cited
    return found


def _objects(experiment: Mapping[str, Any]) -> dict[str, list[object]]:
    """Return the objects of poise that the tables of an experiment name."""
    data = experiment.get("data", {})
    objects: dict[str, list[object]] = {
        "data": [
            *_known(SOURCES, [data.get("source")]),
            *_known(PARTITIONS, [data.get("partition")]),
        ],
        "task": _known(MODELS, [experiment.get("task", {}).get("model")]),
    }
    for slot in RUN_SLOTS:
        default = {"name": DEFAULTS.get(slot)}
        names = list(_names(experiment.get(slot, default)))
        objects[slot] = _known(parts_of(slot), names)
    attacks = [table.get("name") for table in experiment.get("attacks", ())]
    objects["attacks"] = _known(parts_of("attack"), attacks)
    return objects


def _names(value: object) -> Iterable[object]:
    """Yield the name of a part, and those of the parts in its options."""
    if isinstance(value, Mapping):
        yield value.get("name")
        for option in value.values():
            yield from _names(option)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _names(item)


def _known(objects: Mapping[str, object], names: Iterable[object]) -> list[object]:
    """Return the objects with these names, without unknown names."""
    return [
        objects[name] for name in names if isinstance(name, str) and name in objects
    ]
