"""The sections of a page, as HTML. Whatever comes from a ledger is escaped here, and only here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from poise.analysis.reports.compare import Comparison
from poise.analysis.reports.groups import Group
from poise.analysis.reports.plots import Plot
from poise.analysis.reports.rows import ScoreRow
from poise.analysis.reports.tables import score_grid
from poise.analysis.reports.wording import QUESTIONS, choices, sentence


def text(words: object) -> str:
    """Anything as text that HTML cannot mistake for its own.

    >>> text("<b>5 & 6</b>")
    '&lt;b&gt;5 &amp; 6&lt;/b&gt;'
    """
    return escape(str(words), quote=True)


def headline(title: str, groups: Sequence[Group]) -> str:
    """The title, how much was run, and a warning about runs that did not end."""
    runs = [run for group in groups for run in group.runs]
    clients, rounds = ({run.clients for run in runs}, {run.rounds for run in runs})
    facts = (
        f"{_count(len(groups), 'experiment')}, {_count(len(runs), 'run')}, {_range(clients)} clients, "
        f"{_range(rounds)} aggregations."
    )
    open_ends = [run for run in runs if run.meta.get("status") != "done" or run.damage]
    warning = (
        f'<p class="warning">{_unfinished(len(open_ends), len(runs))}</p>' if open_ends else ""
    )
    knowing = sorted({run.meta["omniscient"] for run in runs if "omniscient" in run.meta})
    if knowing:
        words = f"Attacks that saw the updates of honest clients: {', '.join(knowing)}."
        warning += f'<p class="warning">{text(words)}</p>'
    return (
        f'<header>\n<h1>{text(title)}</h1>\n<p class="lead">{text(facts)}</p>\n{warning}</header>\n'
    )


def findings(comparison: Comparison) -> str:
    """What can be said about the differences; nothing for a single group."""
    if not comparison.contrasts:
        return ""
    sides: dict[str, list[str]] = {}
    for contrast in comparison.contrasts:
        sides.setdefault(contrast.sides, []).append(f"<li>{text(sentence(contrast.finding))}.</li>")
    said = (f"<h3>{text(who)}</h3><ul>{''.join(items)}</ul>" for who, items in sides.items())
    note = f'<p class="note">{text(comparison.caution)}</p>' if comparison.caution else ""
    return _section("Findings", "".join(said) + note)


def what_was_run(groups: Sequence[Group]) -> str:
    """The choice for each slot, in words; what all groups share stands once."""
    said = [choices(group.experiment) for group in groups]
    slots = dict.fromkeys(slot for own in said for slot in own)
    head = "".join(f'<th scope="col">{text(group.label)}</th>' for group in groups)
    lines = []
    for slot in slots:
        cells = [own.get(slot, "none") for own in said]
        shared = len(set(cells)) == 1 and len(cells) > 1
        data = (
            f'<td class="shared" colspan="{len(cells)}">{text(cells[0])}</td>'
            if shared
            else _cells(cells)
        )
        lines.append(
            f'<tr><th scope="row">{text(slot)}<small>{text(QUESTIONS.get(slot, ""))}</small></th>{data}</tr>'
        )
    note = "<caption>Options at their default are left out.</caption>"
    table = (
        f'<thead><tr><th scope="col">slot</th>{head}</tr></thead><tbody>{"".join(lines)}</tbody>'
    )
    return _section("What was run", _table(note + table))


def scores(rows: Sequence[ScoreRow]) -> str:
    """The score table."""
    grid = score_grid(rows)
    several = any(len(row.seeds) > 1 for row in rows)
    note = (
        "Mean ± half of the 95 % confidence interval over seeds (Student)."
        if several
        else "One seed: no interval."
    )
    head = "".join(f'<th scope="col">{text(cell)}</th>' for cell in grid.heading)
    lines = (
        f'<tr><th scope="row">{text(first)}</th>{_cells(rest)}</tr>' for first, *rest in grid.body
    )
    table = (
        f"<caption>{note}</caption><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody>"
    )
    return _section("Scores", _table(table, "scores"))


def claims(judged: Sequence[tuple[str, bool, str]]) -> str:
    """What was claimed: the words, whether it holds, and what was measured."""
    items = (
        f"<li><strong>{'holds' if holds else 'does not hold'}</strong>: {text(words)} ({text(measured)})</li>"
        for words, holds, measured in judged
    )
    return _section("Claims", f"<ul>{''.join(items)}</ul>") if judged else ""


def numbers(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A plain table of texts."""
    top = "".join(f'<th scope="col">{text(cell)}</th>' for cell in head)
    lines = (f'<tr><th scope="row">{text(first)}</th>{_cells(rest)}</tr>' for first, *rest in rows)
    return _section(
        "Scores", _table(f"<thead><tr>{top}</tr></thead><tbody>{''.join(lines)}</tbody>", "scores")
    )


def figures(drawn: Sequence[Plot]) -> str:
    """Places for the figures, each with its data; a script draws them."""
    if not drawn:
        return _section("Figures", '<p class="note">Nothing was recorded that could be drawn.</p>')
    plain = (
        '<noscript><p class="note">The figures need JavaScript; the tables do not.</p></noscript>'
    )
    return _section("Figures", plain + "".join(_figure(k, plot) for k, plot in enumerate(drawn)))


def runs(groups: Sequence[Group]) -> str:
    """Every run: how it ended, and the digest that vouches for its records."""
    names = ("experiment", "seed", "state", "aggregations", "poise", "folder", "digest")
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    lines = []
    for group in groups:
        for run, seed in zip(group.runs, group.seeds, strict=True):
            folder = run.path.name if run.path is not None else "in memory"
            state = f"damaged: {run.damage}" if run.damage else run.meta.get("status", "unknown")
            cells = _cells((seed, state, run.rounds, run.meta.get("poise", "unknown"), folder))
            digest = f"<td><code>{text(run.digest)}</code></td>"
            lines.append(f'<tr><th scope="row">{text(group.label)}</th>{cells}{digest}</tr>')
    note = "<caption>Equal digests mean equal records, round by round.</caption>"
    table = f"<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody>"
    return _section("Runs", _table(note + table))


def experiments(groups: Sequence[Group]) -> str:
    """The experiment file of each group, as its first run keeps it."""
    files = (
        f"<details{' open' if len(groups) == 1 else ''}><summary>{text(group.label)}</summary>"
        f"<pre><code>{text(group.runs[0].experiment.strip())}</code></pre></details>\n"
        for group in groups
    )
    return _section("Experiment files", "".join(files))


def footer(groups: Sequence[Group]) -> str:
    """Which poise made the runs."""
    made = sorted({run.meta.get("poise", "unknown") for group in groups for run in group.runs})
    return f"<footer>Runs made with poise {text(', '.join(made))}.</footer>\n"


def _figure(k: int, plot: Plot) -> str:
    data = "[" + ",".join(figure for _, figure in plot.views) + "]"
    inline = data.replace("<", "\\u003c")  # no tag can end the script early
    note = f'<p class="note">{text(plot.note)}</p>' if plot.note else ""
    return (
        f"<figure>\n<figcaption><h3>{text(plot.title)}</h3>{note}</figcaption>\n{_choice(k, plot)}"
        f'<div class="canvas" role="img" aria-label="{text(plot.title)}" style="height:{plot.height}px"></div>\n'
        f'<script type="application/json">{inline}</script>\n</figure>\n'
    )


def _choice(k: int, plot: Plot) -> str:
    """Buttons to choose between the views of a figure."""
    if len(plot.views) == 1:
        return ""
    buttons = (
        f'<label><input type="radio" name="view-{k}" value="{v}"{" checked" if v == 0 else ""}> {text(name)}</label>'
        for v, (name, _) in enumerate(plot.views)
    )
    return f"<fieldset><legend>against</legend>{''.join(buttons)}</fieldset>\n"


def _section(title: str, inside: str) -> str:
    return f"<section>\n<h2>{title}</h2>\n{inside}\n</section>\n"


def _table(inside: str, kind: str = "") -> str:
    return f'<div class="scroll" tabindex="0"><table class="{kind}">{inside}</table></div>'


def _cells(values: Iterable[object]) -> str:
    return "".join(f"<td>{text(value)}</td>" for value in values)


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def _range(numbers: set[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def _unfinished(n: int, total: int) -> str:
    verb = "is" if n == 1 else "are"
    return f"{n} of {_count(total, 'run')} {verb} not finished: the scores are those so far."
