/* Filters the ledger of all claims. Without this script the table is simply whole. */
addEventListener("DOMContentLoaded", () => {
  "use strict";
  const table = document.querySelector("table.ledger-whole");
  if (!table) return;
  const rows = [...table.tBodies[0].rows];
  const tag = (row, prefix) => [...row.classList].find((name) => name.startsWith(prefix)).slice(prefix.length);
  const facets = rows.map((row) => ({ row, verdict: tag(row, "verdict-"), chapter: tag(row, "chapter-"), text: row.textContent.toLowerCase() }));
  const count = document.createElement("output");
  count.setAttribute("aria-live", "polite");
  const choose = (name, title) => {
    const select = document.createElement("select");
    const total = new Map();
    facets.forEach((f) => total.set(f[name], (total.get(f[name]) ?? 0) + 1));
    select.append(new Option("all", ""));
    for (const value of [...total.keys()].sort()) select.append(new Option(`${value.replaceAll("_", " ")} (${total.get(value)})`, value));
    return { name, control: select, title };
  };
  const search = document.createElement("input");
  search.type = "search";
  const parts = [choose("verdict", "Verdict"), choose("chapter", "Chapter"), { control: search, title: "Text" }];
  const update = () => {
    const words = search.value.trim().toLowerCase();
    let shown = 0;
    for (const f of facets) {
      const fits = parts.every((p) => !p.name || !p.control.value || f[p.name] === p.control.value) && f.text.includes(words);
      f.row.hidden = !fits;
      shown += fits;
    }
    count.textContent = `${shown} of ${rows.length} claims`;
  };
  const form = document.createElement("form");
  form.className = "ledger-filter";
  form.addEventListener("submit", (event) => event.preventDefault());
  for (const { control, title } of parts) {
    const label = document.createElement("label");
    label.append(title, control);
    form.append(label);
    control.addEventListener("input", update);
  }
  form.append(count);
  (table.closest(".pst-scrollable-table-container") ?? table).before(form);
  update();
});
