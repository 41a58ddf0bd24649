/* Filters the ledger of all claims: by the bar of verdicts, by chapter, by text. Without this script the bar is a
   picture, the rules are a list, and the table is whole. */
addEventListener("DOMContentLoaded", () => {
  "use strict";
  const table = document.querySelector("table.ledger-whole");
  if (!table) return;
  const make = (tag, attrs = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attrs)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  };
  const rows = [...table.tBodies[0].rows];
  const tag = (row, prefix) => [...row.classList].find((name) => name.startsWith(prefix)).slice(prefix.length);
  const facets = rows.map((row) => ({ row, verdict: tag(row, "verdict-"), chapter: tag(row, "chapter-"), text: row.textContent.toLowerCase() }));
  const choose = (name) => {
    const total = new Map();
    facets.forEach((f) => total.set(f[name], (total.get(f[name]) ?? 0) + 1));
    const select = make("select");
    select.append(new Option("all", ""), ...[...total.keys()].sort().map((value) => new Option(`${value.replaceAll("_", " ")} (${total.get(value)})`, value)));
    return select;
  };
  const verdict = choose("verdict"), chapter = choose("chapter"), search = make("input", { type: "search" });
  const count = make("output", { "aria-live": "polite" });
  const bar = document.querySelector(".verdict-bar"), rules = document.querySelector(".verdict-rules");
  const parts = [...(bar?.querySelectorAll("[data-verdict]") ?? []), ...(rules?.querySelectorAll("[data-verdict]") ?? [])];
  const update = () => {
    const words = search.value.trim().toLowerCase();
    let shown = 0;
    for (const f of facets) {
      const fits = (!verdict.value || f.verdict === verdict.value) && (!chapter.value || f.chapter === chapter.value) && f.text.includes(words);
      f.row.hidden = !fits;
      shown += fits;
    }
    count.textContent = `${shown} of ${rows.length} claims`;
    for (const part of parts) {
      part.classList.toggle("is-off", Boolean(verdict.value) && part.dataset.verdict !== verdict.value);
      part.querySelector("button")?.setAttribute("aria-pressed", String(part.dataset.verdict === verdict.value));
    }
  };
  const toggle = (value) => { verdict.value = verdict.value === value ? "" : value; update(); };
  bar?.querySelectorAll("[data-verdict]").forEach((part) => part.addEventListener("click", () => toggle(part.dataset.verdict)));
  rules?.querySelectorAll("[data-verdict]").forEach((part) => {
    const term = part.querySelector("dt");
    const button = make("button", { type: "button", "aria-pressed": "false", title: `Show only the claims that are ${part.dataset.verdict}` }, ...term.childNodes);
    button.addEventListener("click", () => toggle(part.dataset.verdict));
    term.append(button);
  });
  bar?.classList.add("is-live");
  const form = make("form", { class: "ledger-filter" });
  form.addEventListener("submit", (event) => event.preventDefault());
  for (const [control, title] of [[verdict, "Verdict"], [chapter, "Chapter"], [search, "Text"]]) {
    form.append(make("label", {}, title, control));
    control.addEventListener("input", update);
  }
  form.append(count);
  (table.closest(".pst-scrollable-table-container") ?? table).before(form);
  /* A link to a claim that is hidden shows it. */
  const land = () => {
    const row = document.getElementById(location.hash.slice(1));
    if (!row || !row.hidden) return;
    verdict.value = chapter.value = search.value = "";
    update();
    row.scrollIntoView();
  };
  addEventListener("hashchange", land);
  update();
});
