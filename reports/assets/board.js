"use strict";
// Filters hide rows; a click on a heading sorts, a second one turns the order round. Rows without a value stay last.
const form = document.querySelector(".filters"), body = document.querySelector("#board tbody");
const all = [...body.rows];
function filter() {
  const wanted = [...form.elements].filter(one => one.name && one.value);
  for (const row of all) row.hidden = wanted.some(one => row.dataset[one.name] !== one.value);
  document.getElementById("shown").textContent = all.filter(row => !row.hidden).length;
}
form.addEventListener("change", filter);
form.addEventListener("submit", event => event.preventDefault());
form.addEventListener("reset", () => setTimeout(filter));
for (const button of document.querySelectorAll("#board th button")) {
  button.addEventListener("click", () => {
    const head = button.closest("th"), place = Number(head.dataset.place);
    const flipped = { ascending: "descending", descending: "ascending" };
    const order = head.ariaSort ? flipped[head.ariaSort] : head.dataset.first;
    for (const other of document.querySelectorAll("#board th[aria-sort]")) other.removeAttribute("aria-sort");
    head.ariaSort = order;
    const key = row => row.cells[place].dataset.v ?? row.cells[place].textContent;
    body.append(...all.toSorted((a, b) => {
      const x = key(a), y = key(b);
      if (x === "" || y === "") return (x === "") - (y === "");
      const step = isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y;
      return order === "ascending" ? step : -step;
    }));
  });
}
