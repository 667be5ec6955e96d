// Polls running actions once a second and shows their progress; reloads the page when one ends.
(() => {
  for (const job of document.querySelectorAll('[data-job][data-state="running"]')) {
    const words = job.querySelector("[data-progress]"), log = job.querySelector("[data-log]");
    const poll = async () => {
      try {
        const answer = await fetch(job.dataset.job);
        const state = await answer.json();
        if (answer.ok) {
          if (state.state !== "running") { location.reload(); return; }
          if (state.rounds !== null) words.textContent = state.of ? `${state.rounds} of at most ${state.of} rounds` : `${state.rounds} rounds`;
          if (state.log) { log.textContent = state.log; log.hidden = false; }
        }
      } catch { /* the console does not answer; try again */ }
      setTimeout(poll, 1000);
    };
    setTimeout(poll, 1000);
  }
})();
