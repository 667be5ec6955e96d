// The list of runs: folded seeds, filter, tags, and live state, progress and scores of running runs.
(() => {
  const table = document.getElementById("runs");
  if (!table) return;
  const rows = () => [...table.querySelectorAll("tr[data-run]")];
  for (const time of table.querySelectorAll("time[data-local]")) {
    time.textContent = new Date(time.dateTime).toLocaleString("sv-SE", { dateStyle: "short", timeStyle: "short" });
  }
  const groups = [...table.querySelectorAll("[data-experiment]")];
  const fold = (group, folded) => {
    group.classList.toggle("folded", folded);
    group.querySelector("[data-unfold]").setAttribute("aria-expanded", String(!folded));
  };
  for (const group of groups) {
    fold(group, true);
    group.querySelector("[data-unfold]").addEventListener("click", () => fold(group, !group.classList.contains("folded")));
    const all = group.querySelector("[data-all]"), boxes = [...group.querySelectorAll("input[name=run]")];
    all.addEventListener("change", () => boxes.forEach((box) => { box.checked = all.checked; }));
    for (const box of boxes) {
      box.addEventListener("change", () => {
        const chosen = boxes.filter((one) => one.checked).length;
        all.checked = chosen === boxes.length;
        all.indeterminate = chosen > 0 && chosen < boxes.length;
      });
    }
  }

  const words = document.querySelector("[data-filter]");
  const state = document.querySelector("[data-filter-state]");
  const count = document.querySelector("[data-count]");
  const filter = () => {
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows()) {
      const group = row.closest("[data-experiment]");
      const heading = group ? group.querySelector(".experiment").textContent : "";
      const text = (heading + row.textContent).toLowerCase();
      row.hidden = !(wanted.every((w) => text.includes(w)) && (!state.value || row.dataset.state === state.value));
      shown += row.hidden ? 0 : 1;
    }
    for (const group of groups) {
      const some = [...group.querySelectorAll("tr[data-run]")].some((row) => !row.hidden);
      group.querySelector(".experiment").hidden = !some;
      fold(group, !(wanted.length || state.value));
    }
    count.textContent = shown === rows().length ? `${shown} runs` : `${shown} of ${rows().length} runs`;
  };
  words.addEventListener("input", filter);
  state.addEventListener("change", filter);

  document.getElementById("compare").addEventListener("submit", (event) => {
    if (document.querySelector("input[name=run]:checked")) return;
    event.preventDefault();
    count.textContent = "select runs first";
  });

  const update = (row, line) => {
    row.dataset.state = line.state;
    const shown = row.querySelector("[data-cell=state] .state");
    shown.className = `state ${line.state}`;
    shown.textContent = line.state;
    const cell = row.querySelector("[data-cell=progress]");
    if (line.progress !== null) cell.querySelector("progress").value = line.progress;
    cell.querySelector("[data-words]").textContent = line.progress_words;
    for (const score of row.querySelectorAll("[data-cell=score]")) {
      const value = line.scores[score.dataset.score];
      score.querySelector("[data-value]").textContent = value === null || value === undefined ? "—" : Number(value.toPrecision(4));
    }
  };
  const refresh = async () => {
    if (!document.hidden && rows().some((row) => row.dataset.state === "running")) {
      try {
        const answer = await fetch(`/api/runs${location.search}`);
        const lines = new Map((await answer.json()).map((line) => [line.name, line]));
        for (const row of rows()) if (lines.has(row.dataset.run)) update(row, lines.get(row.dataset.run));
      } catch { /* the console does not answer; try again */ }
    }
    setTimeout(refresh, 2000);
  };
  setTimeout(refresh, 2000);

  for (const button of table.querySelectorAll("[data-edit-tags]")) {
    button.addEventListener("click", () => {
      const row = button.closest("tr"), place = row.querySelector("[data-tags]");
      const input = document.createElement("input");
      input.value = [...place.querySelectorAll(".tag")].map((tag) => tag.textContent).join(", ");
      input.setAttribute("aria-label", `tags of ${row.dataset.run}, separated by commas`);
      place.replaceChildren(input);
      input.focus();
      input.addEventListener("keydown", async (event) => {
        if (event.key !== "Enter") return;
        event.preventDefault();
        const address = `/api/tags/${row.dataset.run.split("/").map(encodeURIComponent).join("/")}`;
        const answer = await fetch(address, { method: "PUT", headers: { "content-type": "application/json" },
          body: JSON.stringify({ tags: input.value.split(",") }) });
        const result = await answer.json();
        if (!answer.ok) { input.setCustomValidity(result.error); input.reportValidity(); return; }
        place.replaceChildren(...result.tags.map((tag) => Object.assign(document.createElement("span"), { className: "tag", textContent: tag })));
        button.focus();
      });
    });
  }
})();
