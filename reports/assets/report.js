"use strict";
const runs = JSON.parse(document.getElementById("runs-data").textContent);

// Sorting: a click on a heading sorts every group of its table, a second one turns it round, a third restores the
// suite's order. Cells without a number stay at the end.
const suiteOrder = new Map();
for (const body of document.querySelectorAll("tbody")) suiteOrder.set(body, [...body.children]);
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const head = button.closest("th"), table = button.closest("table");
    const place = Number(head.dataset.place), first = head.dataset.first;
    const flipped = { ascending: "descending", descending: "ascending" };
    const order = !head.ariaSort ? first : head.ariaSort === first ? flipped[first] : null;
    for (const other of table.querySelectorAll("th[aria-sort]")) other.removeAttribute("aria-sort");
    if (!order) {
      for (const body of table.querySelectorAll("tbody")) body.append(...suiteOrder.get(body));
      return;
    }
    head.ariaSort = order;
    const key = row => row.children[place].dataset.v;
    for (const body of table.querySelectorAll("tbody:not(.chance)")) {
      const rows = [...body.querySelectorAll("tr:not(.group)")];
      rows.sort((a, b) => {
        const x = key(a), y = key(b);
        if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
        const step = isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y;
        return order === "ascending" ? step : -step;
      });
      body.append(...rows);
    }
  });
}

// A click on a cell shows the runs behind it.
const dialog = document.querySelector("dialog");
function line(values, tag) {
  const row = document.createElement("tr");
  for (const value of values) {
    const cell = document.createElement(tag);
    if (tag === "th") cell.scope = "col";
    cell.append(value);
    row.append(cell);
  }
  return row;
}
function link(run) {
  const anchor = document.createElement("a");
  anchor.href = "#run-" + run.id;
  anchor.textContent = run.id.slice(0, 16);
  anchor.addEventListener("click", () => dialog.close());
  return anchor;
}
document.addEventListener("click", event => {
  const cell = event.target.closest("td[data-m]");
  if (!cell) return;
  event.preventDefault();
  dialog.querySelector("h3").textContent = cell.dataset.t;
  const table = dialog.querySelector("table");
  table.replaceChildren(line(["seed", "value", "run", "95 % over examples", "examples"], "th"));
  for (const [place, value, interval, n] of JSON.parse(cell.dataset.m)) {
    table.append(line([runs[place].seed, value, link(runs[place]), interval, n], "td"));
  }
  dialog.showModal();
});
dialog.addEventListener("click", event => { if (event.target === dialog) dialog.close(); });
