// The page of a run: live updates through server-sent events, and the check of its ledger.
(() => {
  const live = document.getElementById("live");
  const field = (name) => live.querySelector(`[data-field="${name}"]`);
  const shown = (value) => (value === null || value === undefined ? "—" : String(Number(value.toPrecision(4))));
  if (live) {
    let rounds = Number(live.dataset.rounds);
    const source = new EventSource(live.dataset.live);
    source.addEventListener("run", (event) => {
      const line = JSON.parse(event.data);
      field("state").textContent = line.state;
      field("state").className = `state ${line.state}`;
      field("rounds").textContent = line.rounds;
      field("words").textContent = line.progress_words;
      if (field("progress") && line.progress !== null) field("progress").value = line.progress;
      for (const place of live.querySelectorAll("[data-score]")) place.textContent = shown(line.scores[place.dataset.score]);
      if (line.rounds !== rounds) {
        rounds = line.rounds;
        dispatchEvent(new Event("poise:round"));
      }
    });
    source.addEventListener("gone", () => { source.close(); field("state").textContent = "deleted"; });
    addEventListener("pagehide", () => source.close());
  }
  for (const button of document.querySelectorAll("[data-check]")) {
    button.addEventListener("click", async () => {
      const place = document.querySelector("[data-check-result]");
      button.disabled = true;
      place.textContent = "recomputing every digest …";
      const answer = await fetch(button.dataset.check);
      const health = await answer.json();
      place.textContent = !answer.ok ? health.error : health.damage || `all ${health.rounds} rounds are intact`;
      button.disabled = false;
    });
  }
})();
