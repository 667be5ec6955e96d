"""The sections of a page as HTML; this module escapes all texts from a ledger."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from poise.analysis.reports.client_tables import client_table
from poise.analysis.reports.compare import Comparison
from poise.analysis.reports.groups import Group
from poise.analysis.reports.plots import Plot
from poise.analysis.reports.ranking import main_score, ranked
from poise.analysis.reports.rows import ScoreRow, rows_by_data, score_note
from poise.analysis.reports.tables import score_grid, terminal_notes
from poise.analysis.reports.wording import ROLES, choices, sentence
from poise.core.own_code import recorded_code


def text(words: object) -> str:
    """Escape any value for HTML.

    >>> text("<b>5 & 6</b>")
    '&lt;b&gt;5 &amp; 6&lt;/b&gt;'
    """
    return escape(str(words), quote=True)


def breakable(name: str) -> str:
    """Escape a long name; a line of it ends only behind a comma or a slash.

    >>> breakable("lr=0.1,steps=10")
    'lr=0.1,<wbr>steps=10'
    """
    return text(name).replace(",", ",<wbr>").replace("/", "/<wbr>")


def headline(title: str, groups: Sequence[Group]) -> str:
    """The title, the number of runs, and a warning about unfinished runs."""
    runs = [run for group in groups for run in group.runs]
    clients = {run.clients for run in runs}
    rounds = {run.rounds for run in runs}
    facts = (
        f"{_count(len(groups), 'experiment')}, {_count(len(runs), 'run')}, "
        f"{_range(clients)} clients, {_range(rounds)} aggregations."
    )
    warning = ""
    ended = ("done", "diverged")
    unfinished = [
        run for run in runs if run.meta.get("status") not in ended or run.damage
    ]
    if unfinished:
        warning = f'<p class="warning">{_unfinished(len(unfinished), len(runs))}</p>'
    diverged = [run for run in runs if run.meta.get("status") == "diverged"]
    if diverged:
        words = f"{_count(len(diverged), 'run')} diverged: the last loss is far above the lowest."
        warning += f'<p class="warning">{words}</p>'
    omniscient = sorted(
        {run.meta["omniscient"] for run in runs if "omniscient" in run.meta}
    )
    if omniscient:
        words = (
            f"Attacks that saw the updates of honest clients: {', '.join(omniscient)}."
        )
        warning += f'<p class="warning">{text(words)}</p>'
    code = sorted(
        {
            f"{package} ({known})"
            for run in runs
            for package, known in recorded_code(run.meta).items()
        }
    )
    if code:
        warning += f"<p>{text('Code beside poise: ' + '; '.join(code) + '.')}</p>"
    return (
        f"<header>\n<h1>{text(title)}</h1>\n<p "
        f'class="lead">{text(facts)}</p>\n{warning}</header>\n'
    )


def findings(comparison: Comparison) -> str:
    """The rankings, the differences in words, and last what cannot be compared.

    Groups with other data come before all rankings.
    """
    if len(comparison.rows) < 2:
        return ""
    body = ""
    if comparison.other_data:
        body += f'<p class="warning">{text(comparison.other_data)}</p>'
    for data, rows in rows_by_data(comparison.rows).items():
        if comparison.other_data:
            body += _ranking(rows, f" on {data or 'other data'}")
        else:
            body += _ranking(rows)
    body += _descriptions(comparison.rows)
    items_by_sides: dict[str, list[str]] = {}
    for contrast in comparison.comparable:
        item = f"<li>{text(sentence(contrast.finding))}.</li>"
        items_by_sides.setdefault(contrast.sides, []).append(item)
    for sides, items in items_by_sides.items():
        body += f"<h3>{text(sides)}</h3><ul>{''.join(items)}</ul>"
    unknown = [c.sentence for c in comparison.contrasts if not c.finite]
    if unknown:
        items = [f"<li>{text(words)}</li>" for words in unknown]
        body += f"<h3>Not comparable</h3><ul>{''.join(items)}</ul>"
    if comparison.caution:
        body += f'<p class="note">{text(comparison.caution)}</p>'
    return _section("Findings", body)


def _ranking(rows: Sequence[ScoreRow], where: str = "") -> str:
    """The groups by the first score with a better side, best first, as a list."""
    name = main_score(rows)
    if name is None:
        return ""
    ranks = ranked(rows, name)
    items = [
        f"<li><strong>{text(rank.row.label)}</strong>: {text(rank.score_text)}</li>"
        for rank in ranks
        if rank.place is not None
    ]
    heading = f"<h3>Ranking by {text(name)}{text(where)}</h3>"
    body = f'{heading}<ol class="ranking">{"".join(items)}</ol>'
    unranked = [rank.row.label for rank in ranks if rank.place is None]
    if unranked:
        body += f'<p class="note">Without a value: {text("; ".join(unranked))}.</p>'
    return body


def _descriptions(rows: Sequence[ScoreRow]) -> str:
    """How the experiments differ, where their names do not say it."""
    items = "".join(
        f"<li><strong>{text(row.label)}</strong>: {text(row.description)}</li>"
        for row in rows
        if row.description
    )
    if not items:
        return ""
    return f"<h3>The names</h3><ul>{items}</ul>"


def what_was_run(groups: Sequence[Group]) -> str:
    """The choice for each slot, in words; shows choices common to all groups once."""
    choices_by_group = [choices(group.experiment) for group in groups]
    slots = dict.fromkeys(slot for chosen in choices_by_group for slot in chosen)
    head = "".join(f'<th scope="col">{text(group.label)}</th>' for group in groups)
    lines = []
    for slot in slots:
        cells = [chosen.get(slot, "none") for chosen in choices_by_group]
        data = _cells(cells)
        if len(set(cells)) == 1 and len(cells) > 1:
            data = f'<td class="shared" colspan="{len(cells)}">{text(cells[0])}</td>'
        small = f"<small>{text(ROLES.get(slot, ''))}</small>"
        lines.append(f'<tr><th scope="row">{text(slot)}{small}</th>{data}</tr>')
    note = "<caption>Options with default values are not shown.</caption>"
    body = "".join(lines)
    table = (
        f'<thead><tr><th scope="col">slot</th>{head}</tr></thead><tbody>{body}</tbody>'
    )
    return _section("What was run", _table(note + table))


def scores(rows: Sequence[ScoreRow]) -> str:
    """The score table, with an explanation of every score."""
    grid = score_grid(rows)
    note = "One seed: no interval."
    if any(len(row.seeds) > 1 for row in rows):
        note = (
            "Mean ± half the width of the 95 % confidence interval over seeds "
            "(Student)."
        )
    head = "".join(_score_heading(cell, "col") for cell in grid.heading)
    lines = [
        f"<tr>{_score_heading(first, 'row')}{_cells(rest)}</tr>"
        for first, *rest in grid.body
    ]
    body = "".join(lines)
    table = (
        f"<caption>{note}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    )
    return _section("Scores", _table(table, "scores") + _score_notes(rows))


def _score_heading(name: str, scope: str) -> str:
    """A table heading; names of scores get their explanation as a tooltip."""
    note = score_note(name)
    tooltip = ""
    if note:
        tooltip = f' title="{text(sentence(note))}."'
    return f'<th scope="{scope}"{tooltip}>{text(name)}</th>'


def _score_notes(rows: Sequence[ScoreRow]) -> str:
    """The explanations of the scores, folded away."""
    notes = terminal_notes(rows)
    if not notes:
        return ""
    items = "".join(f"<li>{text(sentence(note))}.</li>" for note in notes)
    return (
        f"\n<details><summary>What the scores mean</summary><ul>{items}</ul></details>"
    )


def clients(groups: Sequence[Group]) -> str:
    """A table of the clients of each group, by name; those that fare worst first."""
    body = ""
    for group in groups:
        found = client_table(group)
        if found is None:
            continue
        top = "".join(f'<th scope="col">{text(cell)}</th>' for cell in found.heading)
        lines = "".join(
            f'<tr><th scope="row">{breakable(first)}</th>{_cells(rest)}</tr>'
            for first, *rest in found.lines
        )
        table = _table(
            f"<caption>{text(found.note)}</caption><thead><tr>{top}</tr></thead>"
            f"<tbody>{lines}</tbody>",
            "scores",
        )
        if len(groups) > 1:
            table = f"<h3>{text(group.label)}</h3>{table}"
        body += table
    if not body:
        return ""
    return _section("Clients", body)


def claims(results: Sequence[tuple[str, bool, str]]) -> str:
    """The claims of a paper: text, whether the claim holds, and the measured values."""
    if not results:
        return ""
    items = ""
    for claim, holds, measured in results:
        outcome = "does not hold"
        if holds:
            outcome = "holds"
        items += (
            f"<li><strong>{outcome}</strong>: {text(claim)} ({text(measured)})</li>"
        )
    return _section("Claims", f"<ul>{items}</ul>")


def numbers(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A section with a plain table of texts."""
    return _section("Scores", plain_table(head, rows, kind="scores"))


def plain_table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    note: str = "",
    kind: str = "",
) -> str:
    """A plain table of texts, with a note below it; ``kind`` is its style class."""
    top = "".join(f'<th scope="col">{text(cell)}</th>' for cell in head)
    lines = [
        f'<tr><th scope="row">{breakable(first)}</th>{_cells(rest)}</tr>'
        for first, *rest in rows
    ]
    caption = ""
    if note:
        caption = f"<caption>{text(note)}</caption>"
    body = f"<thead><tr>{top}</tr></thead><tbody>{''.join(lines)}</tbody>"
    return _table(caption + body, kind)


def figures(drawn: Sequence[Plot]) -> str:
    """Containers for the figures, each with its data; the page's script draws them."""
    if not drawn:
        return _section(
            "Figures", '<p class="note">The runs recorded no data to plot.</p>'
        )
    plain = (
        '<noscript><p class="note">The figures need JavaScript; the tables do '
        "not.</p></noscript>"
    )
    return _section(
        "Figures",
        plain + "".join(figure_box(str(k), plot) for k, plot in enumerate(drawn)),
    )


def runs(groups: Sequence[Group]) -> str:
    """A table of all runs: state, rounds, version, folder and digest."""
    names = ("experiment", "seed", "state", "aggregations", "poise", "folder", "digest")
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    lines = []
    for group in groups:
        for run, seed in zip(group.runs, group.seeds, strict=True):
            folder = "in memory"
            if run.path is not None:
                folder = run.path.name
            if run.damage:
                state = f"damaged: {run.damage}"
            else:
                state = run.meta.get("status", "unknown")
                if run.ending:
                    state = f"{state} early: {run.ending}"
            cells = _cells(
                (seed, state, run.rounds, run.meta.get("poise", "unknown"), folder)
            )
            digest = f"<td><code>{text(run.digest)}</code></td>"
            lines.append(
                f'<tr><th scope="row">{breakable(group.label)}</th>{cells}{digest}</tr>'
            )
    note = (
        "<caption>Runs with equal digests have identical records in every "
        "round.</caption>"
    )
    table = f"<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody>"
    return _section("Runs", _table(note + table))


def experiments(groups: Sequence[Group]) -> str:
    """The experiment file of each group, from its first run."""
    details = "<details>"
    if len(groups) == 1:
        details = "<details open>"
    files = ""
    for group in groups:
        code = f"<pre><code>{text(group.runs[0].experiment.strip())}</code></pre>"
        files += f"{details}<summary>{text(group.label)}</summary>{code}</details>\n"
    return _section("Experiment files", files)


def footer(groups: Sequence[Group]) -> str:
    """The poise versions that made the runs."""
    versions = sorted(
        {run.meta.get("poise", "unknown") for group in groups for run in group.runs}
    )
    return f"<footer>Runs made with poise {text(', '.join(versions))}.</footer>\n"


def figure_box(key: str, plot: Plot) -> str:
    """The container of one figure, with its data; ``key`` is unique on the page."""
    data = "[" + ",".join(figure for _, figure in plot.views) + "]"
    inline = data.replace("<", "\\u003c")  # so that no tag ends the script early
    title = text(plot.title)
    note = ""
    if plot.note:
        note = f'<p class="note">{text(plot.note)}</p>'
    return (
        f"<figure>\n<figcaption><h3>{title}</h3>{note}</figcaption>\n"
        f"{_view_choice(key, plot)}"
        f'<div class="canvas" role="img" aria-label="{title}" '
        f'style="height:{plot.height}px"></div>\n'
        f'<script type="application/json">{inline}</script>\n</figure>\n'
    )


def _view_choice(key: str, plot: Plot) -> str:
    """Radio buttons that choose the view of a figure."""
    if len(plot.views) == 1:
        return ""
    buttons = ""
    for number, (name, _) in enumerate(plot.views):
        checked = " checked" if number == 0 else ""
        button = f'<input type="radio" name="view-{key}" value="{number}"{checked}>'
        buttons += f"<label>{button} {text(name)}</label>"
    return f"<fieldset><legend>x-axis</legend>{buttons}</fieldset>\n"


def _section(title: str, inside: str) -> str:
    return f"<section>\n<h2>{title}</h2>\n{inside}\n</section>\n"


def _table(inside: str, kind: str = "") -> str:
    return (
        f'<div class="scroll" tabindex="0"><table class="{kind}">{inside}</table></div>'
    )


def _cells(values: Iterable[object]) -> str:
    return "".join(f"<td>{text(value)}</td>" for value in values)


def _count(n: int, noun: str) -> str:
    if n == 1:
        return f"{n} {noun}"
    return f"{n} {noun}s"


def _range(numbers: set[int]) -> str:
    low = min(numbers)
    high = max(numbers)
    if low == high:
        return str(low)
    return f"{low} to {high}"


def _unfinished(n: int, total: int) -> str:
    verb = "are"
    if n == 1:
        verb = "is"
    return (
        f"{n} of {_count(total, 'run')} {verb} not finished; their scores are "
        "preliminary."
    )
