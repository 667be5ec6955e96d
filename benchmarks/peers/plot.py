"""A small plot as SVG: one line per work, one dot per peer, seconds on a logarithmic axis."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from math import ceil, floor, log10
from typing import Any

from figures import summary

COLOURS = {
    "poise": "#d55e00",
    "flower": "#0072b2",
    "pfl": "#009e73",
    "fedjax": "#cc79a7",
    "plain": "#e69f00",
    "bound": "#777777",
}
LEFT, WIDTH, STEP, TOP = 190, 560, 26, 50


def drawn(rows: Mapping[str, Mapping[str, Any]], titles: Mapping[str, str]) -> str:
    """The picture; a bar through a dot goes from the lower to the upper quartile."""
    found = [
        (r["label"], {p: summary(v["seconds"]) for p, v in r["peers"].items()})
        for r in rows.values()
    ]
    values = [s for _, peers in found for s in peers.values()]
    low, high = (
        floor(log10(min(s.low for s in values))),
        ceil(log10(max(s.high for s in values))),
    )

    def across(seconds: float) -> float:
        return LEFT + WIDTH * (log10(seconds) - low) / (high - low)

    height = TOP + STEP * len(found) + 30
    parts = [f'<rect width="{LEFT + WIDTH + 30}" height="{height}" fill="white"/>']
    for k, (peer, colour) in enumerate(COLOURS.items()):
        x = LEFT + k * 95
        parts += [
            f'<circle cx="{x}" cy="18" r="5" fill="{colour}"/>',
            _text(x + 9, 22, titles[peer]),
        ]
    for power in range(low, high + 1):
        x = across(10.0**power)
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 12}" y2="{height - 28}" stroke="#dddddd"/>'
        )
        parts.append(_text(x, height - 12, f"{10.0**power:g} s", "middle"))
    for k, (label, peers) in enumerate(found):
        y = TOP + STEP * k
        parts.append(_text(LEFT - 12, y + 4, label, "end"))
        for peer, s in sorted(
            peers.items(), key=lambda item: item[0] == "poise"
        ):  # poise on top
            colour = COLOURS[peer]
            parts.append(
                f'<line x1="{across(s.low):.1f}" x2="{across(s.high):.1f}" y1="{y}" y2="{y}" '
                f'stroke="{colour}" '
                f'stroke-width="2"/><circle cx="{across(s.median):.1f}" cy="{y}" r="5" '
                f'fill="{colour}"/>'
            )
    size = f'width="{LEFT + WIDTH + 30}" height="{height}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
        + "".join([*parts, "</svg>\n"])
    )


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'
