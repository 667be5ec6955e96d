"""The style sheet and the script of report pages."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --ink: #1d232b; --soft: #57606c; --paper: #fbfbfa;
  --card: #ffffff;
  --line: #dfe3e8; --grid: #e6e9ed; --accent: #0067a3; --warn: #8a3b00; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8ebef; --soft: #a5afbb; --paper: #12161b; --card: #1a1f26; --line: #333b46;
    --grid: #2c343e;
    --accent: #6bb8ea; --warn: #f0a868; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 1120px; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: clamp(1.6rem, 4vw, 2.3rem); line-height: 1.2; margin: 0 0 .4rem;
  overflow-wrap: anywhere; }
h2 { font-size: 1.3rem; margin: 2.8rem 0 .8rem; }
h3 { font-size: 1.02rem; margin: 0; overflow-wrap: anywhere; }
p { margin: .4rem 0; max-width: 80ch; }
.lead { color: var(--soft); font-size: 1.08rem; }
.note, caption, footer { color: var(--soft); font-size: .88rem; }
.note { max-width: 110ch; }
.warning { color: var(--warn); font-weight: 600; }
ul { padding-left: 1.2rem; margin: .4rem 0; }
li { margin: .3rem 0; max-width: 85ch; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 8px;
  background: var(--card); }
table { border-collapse: collapse; width: 100%; font-size: .93rem; }
caption { text-align: left; caption-side: bottom; padding: .55rem .8rem;
  border-top: 1px solid var(--line); }
th, td { text-align: left; vertical-align: top; padding: .5rem .8rem;
  border-top: 1px solid var(--line); }
thead th { border-top: 0; color: var(--soft); font-weight: 600; overflow-wrap: break-word;
  max-width: 20rem; }
tbody th { font-weight: 600; background: var(--card); position: sticky; left: 0;
  min-width: 7.5rem; max-width: 18rem;
  overflow-wrap: break-word; }
tbody th small { display: block; color: var(--soft); font-weight: 400; }
td.shared { color: var(--soft); }
.scores td, .scores thead th + th { text-align: right; font-variant-numeric: tabular-nums;
  white-space: nowrap; }
.scores thead th + th { white-space: normal; }
section > .scroll { margin: .8rem 0 1.4rem; }
figure { margin: 0 0 1.4rem; padding: 1rem 1rem .4rem; border: 1px solid var(--line);
  border-radius: 8px;
  background: var(--card); }
fieldset { border: 0; margin: .5rem 0 0; padding: 0; display: flex; flex-wrap: wrap;
  gap: .2rem 1.1rem;
  font-size: .9rem; }
legend { float: left; padding: 0; margin-right: 1.1rem; color: var(--soft); }
label { cursor: pointer; }
input { accent-color: var(--accent); }
.canvas { width: 100%; overflow: hidden; }
code, pre { font: .85rem/1.5 ui-monospace, monospace; }
td code { overflow-wrap: anywhere; display: inline-block; min-width: 33ch; }
pre { overflow-x: auto; margin: 0; padding: .4rem 1rem 1rem; }
details { border: 1px solid var(--line); border-radius: 8px; background: var(--card);
  margin-bottom: .7rem; }
summary { cursor: pointer; padding: .6rem 1rem; font-weight: 600; overflow-wrap: anywhere; }
footer { margin-top: 3rem; border-top: 1px solid var(--line); padding-top: 1rem; }
@media (max-width: 600px) {
  main { padding: 1.5rem .8rem 3rem; } figure { padding: .8rem .5rem .2rem; }
  th, td { padding: .45rem .55rem; }
  thead th { max-width: 10rem; } tbody th { min-width: 7.2rem; max-width: 9rem; }
  table { font-size: .85rem; }
  figcaption, fieldset { padding: 0 .3rem; }
}
@media print { figure, details { break-inside: avoid; } }
"""

SCRIPT = """
(() => {
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const narrow = () => innerWidth < 600;
  const style = getComputedStyle(document.documentElement);
  const variable = (name) => style.getPropertyValue(name).trim();
  const colours = (layout) => {
    const [ink, grid, line, card] = ["--ink", "--grid", "--line", "--card"].map(variable);
    const axis = (own) => ({ ...own, gridcolor: grid, zerolinecolor: line, linecolor: line });
    return { ...layout, font: { ...layout.font, color: ink, size: narrow() ? 11 : 13 },
      xaxis: axis(layout.xaxis), yaxis: axis(layout.yaxis),
      hoverlabel: { bgcolor: card, bordercolor: line, font: { color: ink } } };
  };
  const config = { responsive: true, displaylogo: false,
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]] };
  for (const figure of document.querySelectorAll("figure")) {
    const views = JSON.parse(figure.querySelector("script").textContent);
    const canvas = figure.querySelector(".canvas");
    let chosen = 0;
    const draw = () => {
      const view = structuredClone(views[chosen]);
      const displayModeBar = narrow() ? false : "hover";
      Plotly.react(canvas, view.data, colours(view.layout), { ...config, displayModeBar });
    };
    for (const input of figure.querySelectorAll("input")) {
      input.addEventListener("change", () => { chosen = Number(input.value); draw(); });
    }
    scheme.addEventListener("change", draw);
    draw();
  }
})();
"""
