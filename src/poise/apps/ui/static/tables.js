// Tables with class "sortable": a click on a column heading sorts by that column.
(() => {
  const key = (cell) => cell.dataset.sort !== undefined ? cell.dataset.sort : cell.textContent.trim();
  const compare = (a, b) => {
    const [x, y] = [Number(a), Number(b)];
    if (a === "" || b === "") return a === b ? 0 : a === "" ? 1 : -1; // empty cells come last
    if (!Number.isNaN(x) && !Number.isNaN(y)) return x - y;
    return a.localeCompare(b, "en", { numeric: true });
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => head.querySelector("button")?.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...table.tBodies[0].rows];
      const sign = down ? -1 : 1;
      rows.sort((a, b) => {
        const [x, y] = [key(a.cells[column]), key(b.cells[column])];
        return x === "" || y === "" ? compare(x, y) : sign * compare(x, y);
      });
      table.tBodies[0].append(...rows);
    }));
  }
})();
