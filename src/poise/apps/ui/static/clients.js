// In figures under [data-clients], a click on a client opens its page ([data-clients] + number).
(() => {
  for (const place of document.querySelectorAll("[data-clients]")) {
    const link = () => {
      for (const canvas of place.querySelectorAll(".canvas")) {
        if (canvas.dataset.linked || !canvas.on) continue;
        canvas.dataset.linked = "yes";
        canvas.on("plotly_click", (event) => {
          const client = event.points[0] && event.points[0].customdata;
          if (Number.isInteger(client)) location.assign(place.dataset.clients + client);
        });
      }
    };
    new MutationObserver(link).observe(place, { attributes: true, attributeFilter: ["data-drawn"] });
    link();
  }
})();
