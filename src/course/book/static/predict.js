/* Predictions: fields on the page, kept in the browser; what comes after is folded until there is one.

   CoursePredictions.get("mama")          -> {tokens: 12} or null, as guessed
   CoursePredictions.measured("mama")     -> {tokens: {value: 11, shows: "11"}}
   CoursePredictions.keep("mama", {...})  writes a guess, as the form does
   CoursePredictions.on("mama", f)        f() whenever the guess changes
   CoursePredictions.open()               unfolds everything */
(() => {
  "use strict";
  const boxes = new Map(), heard = new Map();
  const store = (() => { try { localStorage.getItem("course"); return localStorage; } catch { return null; } })();
  const make = (tag, attrs = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attrs)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  };
  /* "20,100", "20 100", "1.5" and "12 %" are numbers; what is none is null. */
  const number = (text) => {
    const plain = text.replace(/[\s,_']/g, "").replace(/[×x%]$/i, "").replace("−", "-");
    return plain !== "" && Number.isFinite(Number(plain)) ? Number(plain) : null;
  };
  const written = (value) => (typeof value === "number" ? value.toLocaleString("en-US", { maximumFractionDigits: 4 }) : value);

  class Box {
    constructor(root) {
      this.root = root;
      Object.assign(this, JSON.parse(root.querySelector('script[type="application/json"]').textContent));
      this.form = root.querySelector("form");
      this.kept = root.querySelector(".predict-kept");
      this.says = root.querySelector(".predict-says");
      const next = root.nextElementSibling;
      this.result = next && next.classList.contains("predict-result") ? next : null;
      this.slot = `course-prediction/${this.page}/${this.key}`;
      this.guess = this.stored();
      this.form.addEventListener("submit", (event) => { event.preventDefault(); this.take(); });
      root.querySelector(".predict-skip").addEventListener("click", () => this.fold(false));
      if (this.result) this.result.addEventListener("beforematch", () => this.fold(false));
      this.show();
    }
    stored() { try { return JSON.parse(store?.getItem(this.slot) ?? "null"); } catch { return null; } }
    take() {
      const guess = {};
      for (const { name, label } of this.asked) {
        const fields = [...this.form.elements].filter((field) => field.name === `${this.key}-${name}`);
        const choice = fields[0].type === "radio";
        const value = choice ? fields.find((field) => field.checked)?.value ?? null : number(fields[0].value);
        if (value === null) {
          this.says.textContent = choice ? `Choose one: ${label}.` : `A number, please: ${label}.`;
          fields[0].focus();
          return;
        }
        guess[name] = value;
      }
      this.keep(guess);
      this.kept.querySelector("button").focus();
    }
    keep(guess) {
      this.guess = guess;
      try { if (guess) store?.setItem(this.slot, JSON.stringify(guess)); else store?.removeItem(this.slot); } catch { /* private */ }
      this.show();
      (heard.get(this.key) ?? []).forEach((listener) => listener());
    }
    fold(closed) {
      if (!this.result) return;
      if (closed) this.result.setAttribute("hidden", "until-found"); else this.result.removeAttribute("hidden");
      this.root.querySelector(".predict-skip").hidden = !closed;
    }
    show() {
      const done = this.guess !== null;
      this.form.hidden = done;
      this.kept.hidden = !done;
      this.says.textContent = "";
      this.fold(!done);
      if (!done) return;
      const again = make("button", { type: "button" }, "Guess again");
      again.addEventListener("click", () => { this.keep(null); this.form.elements[0].focus(); });
      this.kept.replaceChildren(...this.asked.map((question) => this.line(question)), make("p", { class: "predict-buttons" }, again));
    }
    line({ name, label }) {
      const guess = this.guess[name], truth = this.measured[name];
      const row = (who, text, value, most, kind) => {
        const bar = typeof value === "number" && most > 0
          ? [make("i", { class: `predict-bar predict-${kind}`, style: `width:${Math.max(0.6, (100 * Math.max(0, value)) / most)}%` })] : [];
        return [make("span", { class: "predict-who" }, who), make("span", { class: "predict-value" }, ...bar, make("b", {}, text))];
      };
      const most = typeof truth?.value === "number" ? Math.max(guess, truth.value) : 0;
      return make("div", { class: "predict-line" }, make("p", {}, label),
        ...row("your guess", written(guess), guess, most, "guess"), ...(truth ? row("measured", truth.shows, truth.value, most, "truth") : []));
    }
  }

  window.CoursePredictions = {
    get: (key) => boxes.get(key)?.guess ?? null,
    measured: (key) => boxes.get(key)?.measured ?? null,
    keep: (key, guess) => boxes.get(key)?.keep(guess),
    on: (key, listener) => heard.set(key, [...(heard.get(key) ?? []), listener]),
    open: () => boxes.forEach((box) => box.fold(false)),
  };

  const toTarget = () => {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const inside = target && target.closest(".predict-result[hidden]");
    if (!inside) return;
    boxes.forEach((box) => { if (box.result === inside) box.fold(false); });
    target.scrollIntoView();
  };
  addEventListener("DOMContentLoaded", () => {
    document.querySelectorAll("[data-predict]").forEach((root) => { const box = new Box(root); boxes.set(box.key, box); });
    toTarget();
  });
  addEventListener("hashchange", toTarget);
})();
