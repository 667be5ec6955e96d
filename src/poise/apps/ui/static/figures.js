// Draws what [data-src] answers ({plots: [{title, note, height, views: [{name, figure}]}]}) into that element.
// With data-follow="s" it asks again after an event "poise:round", at most every s seconds.
(() => {
  const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const narrow = () => innerWidth < 600;
  const coloured = (layout) => {
    const [ink, grid, line, card] = ["--ink", "--grid", "--line", "--card"].map(variable);
    const found = { ...layout, autosize: true, font: { ...layout.font, color: ink, size: narrow() ? 11 : 13 },
      hoverlabel: { bgcolor: card, bordercolor: line, font: { color: ink } } };
    for (const key of Object.keys(layout)) {
      if (/^[xy]axis\d*$/.test(key)) {
        found[key] = { ...layout[key], gridcolor: grid, zerolinecolor: line, linecolor: line };
      }
    }
    return found;
  };
  const element = (tag, properties = {}, ...inside) => {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...inside);
    return made;
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
      this.choice.append(element("legend", { textContent: "against" }), ...this.plot.views.map((view, k) => {
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
        const told = await answer.json();
        if (!answer.ok) throw new Error(told.error);
        if (told.plots.length !== drawings.length || place.dataset.drawn === undefined) {
          drawings.forEach((old) => Plotly.purge(old.canvas));
          drawings = told.plots.map((plot) => new Drawing(plot));
          place.replaceChildren(...drawings.map((made) => made.node));
          if (!drawings.length && place.dataset.quiet === undefined) {
            place.append(element("p", { className: "note", textContent: "Nothing was recorded that could be drawn." }));
          }
        }
        await Promise.all(told.plots.map((plot, k) => drawings[k].update(plot)));
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
    addEventListener("poise:theme", () => drawings.forEach((made) => made.draw()));
    const seen = new IntersectionObserver((entries) => {  // what nobody scrolled to is not asked for
      if (entries.some((entry) => entry.isIntersecting)) { seen.disconnect(); fetchAll(); }
    }, { rootMargin: "500px" });
    seen.observe(place);
  }
})();
