"use strict";
// A link into a folded part of the page opens it, as one to a section whose table is folded does.
function unfold() {
  const target = document.querySelector(":target");
  if (!target) return;
  for (let part = target; part; part = part.parentElement) if (part.matches("details")) part.open = true;
  for (const part of target.querySelectorAll(":scope > details")) part.open = true;
  target.scrollIntoView();
}
addEventListener("hashchange", unfold);
addEventListener("load", unfold);

// What is wider than the window says so.
const wide = new ResizeObserver(parts => {
  for (const { target } of parts) target.classList.toggle("swipe", target.scrollWidth > target.clientWidth + 1);
});
for (const part of document.querySelectorAll(".scroll")) wide.observe(part);

// Paper is 960 pixels wide at least (A4 and Letter, landscape). What is wider would be cut, so it is made smaller.
addEventListener("beforeprint", () => {
  for (const table of document.querySelectorAll(".scroll > table")) {
    table.style.zoom = Math.min(1, 960 / (table.scrollWidth || 1));
  }
});
addEventListener("afterprint", () => {
  for (const table of document.querySelectorAll(".scroll > table")) table.style.zoom = "";
});

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
function link(row) {
  const anchor = document.createElement("a"), run = row.querySelector("code");
  anchor.href = "#" + row.id;
  anchor.textContent = run.textContent;
  anchor.title = run.title;
  anchor.addEventListener("click", () => dialog.close());
  return anchor;
}
// Its row, noise and column, as the table has them.
function title(cell) {
  const table = cell.closest("table"), heads = [...table.tHead.rows[0].cells];
  let end = 0;
  const over = heads.find(head => cell.cellIndex < (end += head.colSpan));
  const head = table.tHead.querySelector(`th[data-place="${cell.cellIndex}"] button`);
  const group = cell.closest("tbody").querySelector("tr.group th");
  const label = head.textContent.replace(/\u00a0[↑↓]$/, "");
  const parts = [cell.parentElement.cells[0].title, group?.textContent, over.textContent, label];
  return parts.filter(Boolean).join(" · ");
}
document.addEventListener("click", event => {
  const cell = event.target.closest("td[data-m]");
  if (!cell) return;
  event.preventDefault();
  dialog.querySelector("h3").textContent = title(cell);
  const table = dialog.querySelector("table");
  table.replaceChildren(line(["seed", "value", "run", "95 % over examples", "examples"], "th"));
  // "number|value|low|high|examples" of each run. No number: the run after the one before. No examples: as many as before.
  let number = -1, examples = 0;
  for (const run of cell.dataset.m.split(";")) {
    const [own, value = "", low = "", high = "", count = ""] = run.split("|");
    number = own === "" ? number + 1 : Number(own);
    examples = count === "" ? examples : Number(count);
    const row = document.getElementById("r" + number), interval = low && `${low} to ${high}`;
    table.append(line([row.cells[2].textContent, value, link(row), interval, examples || ""], "td"));
  }
  dialog.showModal();
});
dialog.addEventListener("click", event => { if (event.target === dialog) dialog.close(); });
