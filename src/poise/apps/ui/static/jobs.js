// Actions that go on: how far they are, once a second; when one ends, the page is read anew.
(() => {
  for (const job of document.querySelectorAll('[data-job][data-state="running"]')) {
    const words = job.querySelector("[data-progress]"), log = job.querySelector("[data-log]");
    const look = async () => {
      try {
        const answer = await fetch(job.dataset.job);
        const told = await answer.json();
        if (answer.ok) {
          if (told.state !== "running") { location.reload(); return; }
          if (told.rounds !== null) words.textContent = told.of ? `${told.rounds} of at most ${told.of} rounds` : `${told.rounds} rounds`;
          if (told.log) { log.textContent = told.log; log.hidden = false; }
        }
      } catch { /* the console is gone for a moment; the job is not */ }
      setTimeout(look, 1000);
    };
    setTimeout(look, 1000);
  }
})();
