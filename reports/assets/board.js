"use strict";
// Filters hide rows and stand in the address; a choice that would leave no row is not offered. A click on a heading
// sorts, a second one turns the order round. Rows without a value stay last.
const form = document.querySelector(".filters"), body = document.querySelector("#board tbody");
const all = [...body.rows], selects = [...form.querySelectorAll("select")];
const fits = (row, but) => selects.every(one => one === but || !one.value || row.dataset[one.name] === one.value);
function filter() {
  for (const row of all) row.hidden = !fits(row);
  for (const one of selects) {
    const left = new Set(all.filter(row => fits(row, one)).map(row => row.dataset[one.name]));
    for (const option of one.options) option.hidden = option.disabled = option.value !== "" && !left.has(option.value);
  }
  body.parentElement.classList.toggle("one-place", Boolean(selects[0].value && selects[1].value));
  document.getElementById("shown").textContent = all.filter(row => !row.hidden).length;
}
// A suite opens on one of its noises.
function choose(event) {
  const [suite, noise] = selects;
  if (event.target === suite && suite.value) {
    noise.value = "";
    const own = all.filter(row => fits(row)), noisy = own.find(row => Number(row.dataset.rate) > 0);
    noise.value = (noisy ?? own[0]).dataset.noise;
  }
  filter();
  write();
}
function write() {
  const chosen = new URLSearchParams(selects.filter(one => one.value).map(one => [one.name, one.value]));
  history.replaceState(null, "", `#${chosen}`);
}
function read() {
  const wanted = new URLSearchParams(location.hash.slice(1));
  for (const one of selects) one.value = wanted.get(one.name) ?? "";
  for (const one of selects) if (one.selectedIndex < 0) one.value = "";
  filter();
}
form.addEventListener("change", choose);
form.addEventListener("submit", event => event.preventDefault());
form.addEventListener("reset", () => setTimeout(() => { filter(); write(); }));
addEventListener("hashchange", read);
if (location.hash) read();
else {
  selects[0].selectedIndex = 1;
  choose({ target: selects[0] });
}
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
