// Fetches the figures of [data-src] ({plots: [{title, note, height, views: [{name, figure}]}]}) and draws them there.
// With data-follow="s" it fetches again after an event "poise:round", at most every s seconds.
(() => {
  const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const narrow = () => innerWidth < 600;
  const coloured = (layout) => {
    const [ink, grid, line, card] = ["--ink", "--grid", "--line", "--card"].map(variable);
    const themed = { ...layout, autosize: true, font: { ...layout.font, color: ink, size: narrow() ? 11 : 13 },
      hoverlabel: { bgcolor: card, bordercolor: line, font: { color: ink } } };
    for (const key of Object.keys(layout)) {
      if (/^[xy]axis\d*$/.test(key)) {
        themed[key] = { ...layout[key], gridcolor: grid, zerolinecolor: line, linecolor: line };
      }
    }
    return themed;
  };
  const element = (tag, properties = {}, ...inside) => {
    const node = Object.assign(document.createElement(tag), properties);
    node.append(...inside);
    return node;
  };
  let count = 0;

  class Drawing {
    constructor(plot) {
      this.plot = plot;
      this.chosen = 0;
      this.title = element("h3");
      this.note = element("p", { className: "note" });
      this.canvas = element("div", { className: "canvas" });
      this.canvas.setAttribute("role", "img");
      this.choice = element("fieldset");
      this.node = element("figure", {}, element("figcaption", {}, this.title, this.note), this.choice, this.canvas);
      this.group = `view-${count++}`;
    }
    offer() {
      const names = this.plot.views.map((view) => view.name).join("\n");
      if (names === this.offered) return;
      this.offered = names;
      this.choice.replaceChildren();
      this.choice.hidden = this.plot.views.length < 2;
      if (this.choice.hidden) return;
      this.choice.append(element("legend", { textContent: "x-axis" }), ...this.plot.views.map((view, k) => {
        const input = element("input", { type: "radio", name: this.group, value: String(k), checked: k === this.chosen });
        input.addEventListener("change", () => { this.chosen = k; this.draw(); });
        return element("label", {}, input, ` ${view.name}`);
      }));
    }
    update(plot) {
      this.plot = plot;
      this.chosen = Math.min(this.chosen, plot.views.length - 1);
      this.draw();
    }
    draw() {
      const { title, note, height, views } = this.plot;
      this.title.textContent = title;
      this.note.textContent = note;
      this.canvas.style.height = `${narrow() ? Math.min(height, 360) : height}px`;
      this.canvas.setAttribute("aria-label", `${title}. ${note}`);
      this.offer();
      const view = structuredClone(views[this.chosen].figure);
      const config = { responsive: true, displaylogo: false, displayModeBar: narrow() ? false : "hover",
        modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]] };
      return Plotly.react(this.canvas, view.data, coloured(view.layout), config);
    }
  }

  for (const place of document.querySelectorAll("[data-src]")) {
    let drawings = [], busy = false, again = false, last = 0;
    const fetchAll = async () => {
      if (busy) { again = true; return; }
      busy = true;
      last = Date.now();
      try {
        const answer = await fetch(place.dataset.src);
        const data = await answer.json();
        if (!answer.ok) throw new Error(data.error);
        if (data.plots.length !== drawings.length || place.dataset.drawn === undefined) {
          drawings.forEach((old) => Plotly.purge(old.canvas));
          drawings = data.plots.map((plot) => new Drawing(plot));
          place.replaceChildren(...drawings.map((drawing) => drawing.node));
          if (!drawings.length && place.dataset.quiet === undefined) {
            place.append(element("p", { className: "note", textContent: "The run recorded no data to plot." }));
          }
        }
        await Promise.all(data.plots.map((plot, k) => drawings[k].update(plot)));
        place.dataset.drawn = String(Number(place.dataset.drawn || 0) + 1);
      } catch (error) {
        if (!drawings.length) place.replaceChildren(element("p", { className: "warning", textContent: String(error.message) }));
      }
      busy = false;
      if (again) { again = false; follow(); }
    };
    let waiting = null;
    const follow = () => {
      if (place.dataset.follow === undefined || waiting) return;
      const due = last + 1000 * Number(place.dataset.follow) - Date.now();
      waiting = setTimeout(() => { waiting = null; fetchAll(); }, Math.max(due, 0));
    };
    addEventListener("poise:round", () => { if (last) follow(); });
    addEventListener("poise:theme", () => drawings.forEach((drawing) => drawing.draw()));
    const observer = new IntersectionObserver((entries) => {  // load figures only when they come into view
      if (entries.some((entry) => entry.isIntersecting)) { observer.disconnect(); fetchAll(); }
    }, { rootMargin: "500px" });
    observer.observe(place);
  }
})();
