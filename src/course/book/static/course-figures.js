/* Figures with controls. One script, no dependency, nothing from the network; works from file://.

   The page holds <div class="cf-play" data-kind="KIND"> with its data as JSON (course/book/traces.py). When the
   document is ready, each is handed to the function registered for its kind:

     CourseFigures.register("my-kind", (figure, data) => { ... });

   `figure` offers the same controls everywhere:
     figure.slider({label, min, max, step, value, format, on})   a labelled range; on(value) while it moves
     figure.field({label, value, on})                            a labelled text field; on(text) while typing
     figure.button({label, text | icon, on})                     a button below the drawing
     figure.choices({label, options, value, on})                 a row of buttons, one of them pressed; on(index)
     figure.drawing()                                            -> {show(scene)}: draws a scene, moving what it knows
     figure.says(text)                                           the live sentence below the drawing
     figure.width                                                680, or 336 in a narrow column
     figure.redraw = () => { ... }                               called when that changes, and before printing

   A scene has the methods of course.book.svg.Scene, in the same order, options last:
     CourseFigures.scene(width, height).rect("a", 0, 0, 20, 20, {fill: "blue"}).text("b", 0, 40, "hi", {size: 14})
   Colours are names: blue orange green purple gold red ink muted faint grid surface paper.

   Sliders bound to one drawing function are the common case:

     CourseFigures.dial("my-dial", {
       inputs: (data) => [{name: "p", label: "position", min: 0, max: 64, step: 1, value: data.start}],
       draw: (values, data, width) => ({scene: CourseFigures.scene(width, 200)..., says: "What you see."}),
     });

   static/example-dial.js is a complete one. Put yours in its own file beside it. */
(() => {
  "use strict";
  const SVG = "http://www.w3.org/2000/svg";
  const WIDE = 680, NARROW = 336, SWITCH = 600;
  const mounts = new Map();
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const ICONS = {
    previous: "M3 2h2v12H3zM14 2v12L6 8z", next: "M2 2v12l8-6zM11 2h2v12h-2z", play: "M4 2v12l10-6z", pause: "M3 2h4v12H3zM9 2h4v12H9z",
  };

  const make = (tag, attrs = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attrs)) if (value !== undefined && value !== null) node.setAttribute(name, value);
    node.append(...children);
    return node;
  };
  const icon = (name) => {
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("viewBox", "0 0 16 16");
    svg.setAttribute("aria-hidden", "true");
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("d", ICONS[name]);
    svg.append(path);
    return svg;
  };
  const paint = (name) => (name === undefined ? undefined : name === "none" ? "none" : `var(--fig-${name})`);

  /* --- scenes: the JavaScript twin of course.book.svg.Scene ------------------------------------------------ */
  class Scene {
    constructor(width, height) { Object.assign(this, { width, height, elements: [] }); }
    add(key, tag, x, y, attrs, text = "", layer = 0) {
      for (const name of Object.keys(attrs)) if (attrs[name] === undefined) delete attrs[name];
      this.elements.push({ key, tag, x, y, attrs, text, layer });
      return this;
    }
    rect(key, x, y, width, height, o = {}) {
      return this.add(key, "rect", x, y, { width: Math.max(0, width), height: Math.max(0, height), rx: o.radius ?? 3,
        fill: paint(o.fill ?? "surface"), stroke: paint(o.stroke), "fill-opacity": o.fillOpacity, opacity: o.opacity,
        "stroke-width": o.strokeWidth, "stroke-dasharray": o.dash }, "", o.layer);
    }
    text(key, x, y, text, o = {}) {
      return this.add(key, "text", x, y, { fill: paint(o.fill ?? "ink"), "font-size": Math.max(11, o.size ?? 14),
        "text-anchor": o.anchor, "font-weight": o.weight, opacity: o.opacity, class: o.mono ? "cf-mono" : undefined },
      String(text), o.layer ?? 1);
    }
    line(key, x1, y1, x2, y2, o = {}) {
      const dx = x2 - x1, dy = y2 - y1, length = Math.hypot(dx, dy);
      let d = `M0 0L${dx} ${dy}`;
      if (o.arrow && length) {
        const ux = dx / length, uy = dy / length, head = Math.min(7, length / 2);
        for (const side of [1, -1]) d += `M${dx - head * (ux + side * 0.55 * uy)} ${dy - head * (uy - side * 0.55 * ux)}L${dx} ${dy}`;
      }
      return this.add(key, "path", x1, y1, { d, fill: "none", stroke: paint(o.stroke ?? "muted"),
        "stroke-width": o.width ?? 1.5, "stroke-dasharray": o.dash, "stroke-linecap": "round", opacity: o.opacity }, "", o.layer);
    }
    circle(key, cx, cy, r, o = {}) {
      return this.add(key, "circle", cx, cy, { r, fill: paint(o.fill ?? "blue"), stroke: paint(o.stroke),
        "fill-opacity": o.fillOpacity, "stroke-width": o.strokeWidth, opacity: o.opacity }, "", o.layer);
    }
    path(key, d, o = {}) {
      return this.add(key, "path", o.x ?? 0, o.y ?? 0, { d, fill: paint(o.fill ?? "none"), stroke: paint(o.stroke),
        "stroke-width": o.width, "fill-opacity": o.fillOpacity, "stroke-dasharray": o.dash, opacity: o.opacity }, "", o.layer);
    }
  }

  /* --- a drawing that keeps what it knows: elements are told apart by key ----------------------------------- */
  class Drawing {
    constructor(host, label) {
      this.svg = document.createElementNS(SVG, "svg");
      this.svg.setAttribute("class", "cf-svg");
      this.svg.setAttribute("role", "img");
      this.svg.setAttribute("aria-label", label);
      this.nodes = new Map();
      host.append(this.svg);
    }
    size(width, height, least) {
      this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      this.svg.setAttribute("width", width);
      this.svg.setAttribute("height", height);
      this.svg.style.setProperty("--cf-min", `${least}px`);
    }
    /* `elements` from back to front */
    put(elements) {
      const seen = new Set();
      let last = null;
      for (const element of elements) {
        seen.add(element.key);
        let entry = this.nodes.get(element.key);
        if (entry && entry.node.tagName !== element.tag) { entry.node.remove(); entry = null; }
        if (!entry) {
          entry = { node: document.createElementNS(SVG, element.tag), attrs: {} };
          entry.node.classList.add("cf-moving", "cf-new");
          this.nodes.set(element.key, entry);
        }
        const node = entry.node;
        if (entry.element !== element) {
          for (const name of Object.keys(entry.attrs)) if (!(name in element.attrs) && name !== "class") node.removeAttribute(name);
          for (const [name, value] of Object.entries(element.attrs)) {
            if (name === "class") node.classList.add(value);
            else if (entry.attrs[name] !== value) node.setAttribute(name, value);
          }
          if (element.attrs.transform === undefined) node.style.transform = `translate(${element.x}px, ${element.y}px)`;
          if (node.textContent !== element.text) node.textContent = element.text;
          Object.assign(entry, { element, attrs: element.attrs });
        }
        const place = last ? last.nextSibling : this.svg.firstChild;
        if (place !== node) this.svg.insertBefore(node, place);
        last = node;
      }
      for (const [key, entry] of this.nodes) if (!seen.has(key)) { entry.node.remove(); this.nodes.delete(key); }
    }
    /* Where a pointer is, in the drawing's units. */
    at(event) {
      const box = this.svg.getBoundingClientRect(), view = this.svg.viewBox.baseVal;
      return [((event.clientX - box.left) * view.width) / box.width, ((event.clientY - box.top) * view.height) / box.height];
    }
    show(scene) {
      const sizes = scene.elements.filter((e) => e.tag === "text").map((e) => e.attrs["font-size"]);
      this.size(scene.width, scene.height, sizes.length ? Math.round(scene.width * 11 / Math.min(...sizes)) : 0);
      this.put(scene.elements.map((e, i) => [e, i]).sort((a, b) => a[0].layer - b[0].layer || a[1] - b[1]).map(([e]) => e));
    }
  }

  /* --- a packed trace (traces.pack): any step by number ----------------------------------------------------- */
  class Trace {
    constructor(packed, host, label) {
      this.drawing = new Drawing(host, label);
      this.drawing.size(packed.w, packed.h, packed.min);
      const elements = packed.e.map(([k, tag, x, y, a, text]) => ({ order: k, key: packed.k[k], tag, x, y, attrs: packed.a[a], text }));
      const now = new Set();
      this.steps = packed.s.map(([removed, added]) => {
        removed.forEach((i) => now.delete(i));
        added.forEach((i) => now.add(i));
        return [...now].map((i) => elements[i]).sort((a, b) => a.order - b.order);
      });
    }
    show(step) { this.drawing.put(this.steps[step]); }
  }

  /* --- what a mount function gets ---------------------------------------------------------------------------- */
  class Figure {
    constructor(root) {
      this.root = root;
      this.label = root.getAttribute("aria-label");
      [this.stage, this.inputs, this.live, this.controls] = ["stage", "inputs", "says", "controls"].map((name) => root.querySelector(`.cf-${name}`));
      this.stage.replaceChildren();
      root.classList.add("cf-live");
      this.redraw = () => {};
      this.width = this.measure();
      new ResizeObserver(() => {
        const width = this.measure();
        if (width !== this.width) { this.width = width; this.redraw(); }
      }).observe(root);
      addEventListener("beforeprint", () => this.redraw());
    }
    measure() { return this.stage.clientWidth && this.stage.clientWidth < SWITCH ? NARROW : WIDE; }
    says(text) { if (this.live.textContent !== text) this.live.textContent = text; }
    host(parent, ...classes) {
      const host = make("div", { class: ["cf-scroll", ...classes].join(" ") });
      parent.append(host);
      return host;
    }
    drawing() {
      const outer = make("div", { class: "cf" });
      this.stage.append(outer);
      return new Drawing(this.host(outer), this.label);
    }
    traces(data) {
      const outer = make("div", { class: data.narrow ? "cf cf-two" : "cf" });
      this.stage.append(outer);
      if (!data.narrow) return [new Trace(data.wide, this.host(outer), this.label)];
      return [new Trace(data.wide, this.host(outer, "cf-wide"), this.label), new Trace(data.narrow, this.host(outer, "cf-narrow"), this.label)];
    }
    range({ label, min, max, step = 1, value, text = () => undefined, on }) {
      const range = make("input", { type: "range", class: "cf-range", min, max, step, "aria-label": label });
      range.value = value;
      const fill = () => {
        range.style.setProperty("--cf-at", `${(100 * (range.value - range.min)) / (range.max - range.min || 1)}%`);
        const words = text(Number(range.value));
        if (words !== undefined) range.setAttribute("aria-valuetext", words);
      };
      range.addEventListener("input", () => { fill(); on(Number(range.value)); });
      range.set = (next) => { range.value = next; fill(); };
      fill();
      return range;
    }
    slider({ label, min, max, step = 1, value, format = String, on }) {
      const output = make("output", {}, format(value));
      const range = this.range({ label, min, max, step, value, text: format, on: (next) => { output.textContent = format(next); on(next); } });
      this.inputs.append(make("div", { class: "cf-input" }, make("span", { "aria-hidden": "true" }, label), output, range));
      return { get value() { return Number(range.value); }, set(next) { range.set(next); output.textContent = format(Number(range.value)); } };
    }
    field({ label, value = "", on }) {
      const field = make("input", { type: "text", class: "cf-field", "aria-label": label, spellcheck: "false", autocomplete: "off" });
      field.value = value;
      field.addEventListener("input", () => on(field.value));
      this.inputs.append(make("label", { class: "cf-input" }, make("span", {}, label), field));
      return field;
    }
    /* Another name, and another picture, for a button of this figure. */
    relabel(button, label, name) {
      if (name) button.replaceChildren(icon(name)); else button.textContent = label;
      button.setAttribute("aria-label", label);
      button.title = label;
    }
    /* A few things to choose from, as buttons in a row: on(index). */
    choices({ label, options, value = 0, on }) {
      const bar = make("div", { class: "cf-choices", role: "group", "aria-label": label });
      bar.append(make("span", { class: "cf-choice-label", "aria-hidden": "true" }, label));
      const buttons = options.map((text, i) => {
        const button = make("button", { type: "button", class: "cf-button", "aria-pressed": i === value }, text);
        button.addEventListener("click", () => { set(i); on(i); });
        bar.append(button);
        return button;
      });
      const set = (i) => buttons.forEach((button, j) => button.setAttribute("aria-pressed", i === j));
      this.inputs.before(bar);
      return { set };
    }
    button({ label, text, icon: name, on }) {
      const button = make("button", { type: "button", class: "cf-button", "aria-label": label, title: label }, name ? icon(name) : text);
      button.addEventListener("click", on);
      this.controls.append(button);
      return button;
    }
  }

  /* --- previous, play, next, a slider and a count: steps 0 to last(), shown by show(step) ---------------------- */
  const stepper = (figure, { last, show, label, interval }) => {
    let at = 0, timer = null, kept = 0;
    const words = (step) => `Step ${step + 1} of ${last() + 1}: ${label(step)}`;
    const previous = figure.button({ label: "Previous step", icon: "previous", on: () => { stop(); go(at - 1); } });
    const play = figure.button({ label: "Play", icon: "play", on: () => (timer ? stop() : start()) });
    const next = figure.button({ label: "Next step", icon: "next", on: () => { stop(); go(at + 1); } });
    const range = figure.range({ label: "Step", min: 0, max: last(), value: 0, text: words, on: (step) => { stop(); go(step); } });
    const count = make("span", { class: "cf-count", "aria-hidden": "true" });
    figure.controls.append(range, count);
    function go(step) {
      at = Math.max(0, Math.min(last(), step));
      show(at);
      figure.says(label(at));
      range.max = last();
      range.set(at);
      count.textContent = `${at + 1} / ${last() + 1}`;
      previous.setAttribute("aria-disabled", at === 0); // not `disabled`: that would drop the focus, and the keys with it
      next.setAttribute("aria-disabled", at === last());
    }
    function stop() {
      clearInterval(timer);
      timer = null;
      figure.live.setAttribute("aria-live", "polite");
      figure.relabel(play, "Play", "play");
    }
    function start() {
      if (at === last()) go(0);
      figure.live.setAttribute("aria-live", "off"); // a running trace would talk without end
      figure.relabel(play, "Pause", "pause");
      timer = setInterval(() => { go(at + 1); if (at === last()) stop(); }, interval);
    }
    figure.root.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("summary, input")) return;
      const step = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: last() }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      stop();
      go(step);
    });
    addEventListener("beforeprint", () => { stop(); kept = at; go(last()); });
    addEventListener("afterprint", () => go(kept));
    go(0);
    return { go, stop, start };
  };

  /* --- kind "scrubber" ----------------------------------------------------------------------------------------- */
  const scrubber = (figure, data) => {
    const traces = figure.traces(data);
    stepper(figure, { last: () => data.labels.length - 1, show: (step) => traces.forEach((trace) => trace.show(step)),
      label: (step) => data.labels[step], interval: data.interval });
  };

  /* --- kind "lab": recorded runs of several variants, chosen by buttons ---------------------------------------- */
  const lab = (figure, data) => {
    const traces = figure.traces(data), chosen = data.choices.map((choice) => choice.start), offsets = [0];
    data.runs.forEach((labels) => offsets.push(offsets.at(-1) + labels.length));
    const run = () => chosen.reduce((index, value, i) => index * data.choices[i].options.length + value, 0);
    const guessed = () => {
      const value = data.guess && window.CoursePredictions ? CoursePredictions.get(data.guess[0])?.[data.guess[1]] : undefined;
      return value === undefined ? "" : ` ${data.guess[2].replace("{}", value.toLocaleString("en-US"))}`;
    };
    let steps = null;
    data.choices.forEach((choice, i) => figure.choices({ label: choice.label, options: choice.options, value: choice.start,
      on: (value) => { chosen[i] = value; steps.stop(); steps.go(0); if (!calm.matches) steps.start(); } }));
    steps = stepper(figure, { last: () => data.runs[run()].length - 1, show: (step) => traces.forEach((trace) => trace.show(offsets[run()] + step)),
      label: (step) => data.runs[run()][step] + (step === data.runs[run()].length - 1 ? guessed() : ""), interval: data.interval });
  };

  /* --- kind "knobs": sliders over frames drawn in Python ------------------------------------------------------- */
  const knobs = (figure, data) => {
    const traces = figure.traces(data), values = data.knobs.map((knob) => knob.start);
    const update = () => {
      const frame = values.reduce((index, value, i) => index * data.knobs[i].shows.length + value, 0);
      traces.forEach((trace) => trace.show(frame));
      figure.says(data.labels[frame]);
    };
    data.knobs.forEach((knob, i) => figure.slider({ label: knob.label, min: 0, max: knob.shows.length - 1, value: knob.start,
      format: (value) => knob.shows[value], on: (value) => { values[i] = value; update(); } }));
    update();
  };

  const mount = (root) => {
    const make = mounts.get(root.dataset.kind);
    if (!make || root.classList.contains("cf-live")) return;
    const data = JSON.parse(root.querySelector('script[type="application/json"]').textContent);
    make(new Figure(root), data);
  };
  const mountAll = () => document.querySelectorAll(".cf-play").forEach(mount);

  window.CourseFigures = {
    calm,
    scene: (width, height) => new Scene(width, height),
    register(kind, mountFigure) { mounts.set(kind, mountFigure); },
    dial(kind, { inputs, draw }) {
      mounts.set(kind, (figure, data) => {
        const drawing = figure.drawing(), values = {};
        const update = figure.redraw = () => {
          const { scene, says } = draw({ ...values }, data, figure.width);
          drawing.show(scene);
          figure.says(says);
        };
        for (const input of inputs(data)) {
          values[input.name] = input.value;
          figure.slider({ ...input, on: (value) => { values[input.name] = value; update(); } });
        }
        update();
      });
    },
  };
  mounts.set("scrubber", scrubber);
  mounts.set("knobs", knobs);
  mounts.set("lab", lab);

  /* Deferred scripts all run before this event, so every kind is known by then. */
  addEventListener("DOMContentLoaded", () => {
    mountAll();
    document.querySelectorAll(".cf-play:not(.cf-live)").forEach((root) => console.error(`no figure of kind ${root.dataset.kind}`));
  });
})();
