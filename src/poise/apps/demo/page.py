"""The page of the demo: one section per act, as one file that works offline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from poise._version import __version__
from poise.analysis.reports import sections
from poise.analysis.reports.page import document, write_whole_page
from poise.apps.demo.act import Act

TITLE = "poise demo: 50 unequal clients, six questions"

LEAD = (
    "Handwritten digits, held by 50 clients of unequal size. A third of them hold wrong "
    "labels, two only pretend to work, four are slow. All numbers and curves on this page "
    "come from runs on your machine; none is prepared."
)


def write_story(acts: Sequence[Act], seeds: Sequence[int], path: Path) -> Path:
    """Write the page; returns its path."""
    return write_whole_page(path, render_story(acts, seeds))


def render_story(acts: Sequence[Act], seeds: Sequence[int]) -> str:
    """The page as text."""
    contents = "".join(
        f'<li><a href="#act-{number}">{sections.text(act.title)}</a></li>'
        for number, act in enumerate(acts, 1)
    )
    head = (
        f"<header>\n<h1>{sections.text(TITLE)}</h1>\n"
        f'<p class="lead">{sections.text(LEAD)}</p>\n'
        f"<nav><ol>{contents}</ol></nav>\n</header>\n"
    )
    body = "".join(_section(number, act) for number, act in enumerate(acts, 1))
    footer = (
        f"<footer>Seeds {sections.text(', '.join(map(str, seeds)))}. Made with poise "
        f"{sections.text(__version__)}.</footer>\n"
    )
    return document(TITLE, head + body + footer, drawn=True)


def _section(number: int, act: Act) -> str:
    """An act: question, findings, table, figures, and how to repeat it."""
    findings = "".join(f"<li>{sections.text(words)}</li>" for words in act.findings)
    drawn = "".join(
        sections.figure_box(f"{number}-{k}", plot) for k, plot in enumerate(act.figures)
    )
    return (
        f'<section id="act-{number}">\n'
        f"<h2>{number} · {sections.text(act.title)}</h2>\n"
        f'<p class="lead">{sections.text(act.question)}</p>\n<ul>{findings}</ul>\n'
        f"{sections.plain_table(act.table.heading, act.table.body, note=act.note)}\n"
        f"{drawn}{_repeat(act)}</section>\n"
    )


def _repeat(act: Act) -> str:
    """The lines of Python and the commands of an act."""
    commands = "\n".join(f"$ {command}" for command in act.commands)
    return (
        "<details open><summary>Do it yourself</summary>\n"
        f"<pre><code>{sections.text(act.python)}</code></pre>\n"
        f"<pre><code>{sections.text(commands)}</code></pre>\n</details>\n"
    )
