// Light or dark theme: the system's, or the reader's choice.
(() => {
  const root = document.documentElement;
  const stored = () => { try { return localStorage.getItem("poise-theme"); } catch { return null; } };
  const system = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    root.dataset.theme = stored() || (system.matches ? "dark" : "light");
    dispatchEvent(new Event("poise:theme"));
  };
  apply();
  system.addEventListener("change", apply);
  addEventListener("DOMContentLoaded", () => {
    for (const button of document.querySelectorAll("[data-theme-toggle]")) {
      button.addEventListener("click", () => {
        try { localStorage.setItem("poise-theme", root.dataset.theme === "dark" ? "light" : "dark"); } catch { return; }
        apply();
      });
    }
  });
})();
