// Fetches the page again every [data-refresh] seconds and replaces that part of it; shows times as local times.
(() => {
  const local = () => {
    for (const time of document.querySelectorAll("time[data-local]")) {
      time.textContent = new Date(time.dateTime).toLocaleString("sv-SE", { dateStyle: "short", timeStyle: "medium" });
    }
  };
  const place = document.querySelector("[data-refresh]");
  const refresh = async () => {
    if (!document.hidden && !place.querySelector("details[open]")) {
      try {
        const answer = await fetch(location.href);
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("[data-refresh]");
        if (answer.ok && fresh) { place.replaceChildren(...fresh.childNodes); local(); }
      } catch { /* the console does not answer; try again */ }
    }
    setTimeout(refresh, 1000 * Number(place.dataset.refresh));
  };
  local();
  setTimeout(refresh, 1000 * Number(place.dataset.refresh));
})();
