/* Figure kind "bpe": type a text, choose a vocabulary, and watch the merges appear one by one.

     widget("bpe", vocabularies.figure_data("..."), alt=..., text_equivalent=...)

   The vocabularies are scripts beside the page (course.book.vocabularies), loaded when they are first chosen. */
(() => {
  "use strict";
  const base = document.currentScript ? document.currentScript.src.replace(/[^/]*$/, "") : "_static/";
  const LONGEST = 120;
  const unpack = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const binary = (bytes) => Array.from(bytes, (b) => String.fromCharCode(b)).join("");

  /* --- the tokenizer ------------------------------------------------------------------------------------------ */
  class Vocabulary {
    constructor(data) {
      this.splits = data.split.map((pattern) => new RegExp(pattern, "gu"));
      this.nfc = data.nfc;
      const sizes = unpack(data.sizes), bytes = binary(unpack(data.bytes));
      this.ids = new Map();
      const tokens = [];
      for (let i = 0, at = 0; i < sizes.length; at += sizes[i], i++) {
        tokens.push(bytes.slice(at, at + sizes[i]));
        if (sizes[i]) this.ids.set(tokens[i], i);
      }
      this.pairs = null;
      if (data.merges) {
        this.pairs = new Map();
        const raw = unpack(data.merges), pair = new Uint16Array(raw.buffer);
        for (let i = 0; i < pair.length; i += 2) this.pairs.set(`${tokens[pair[i]]}\0${tokens[pair[i + 1]]}`, i / 2);
      }
    }
    rank(left, right) { return this.pairs ? this.pairs.get(`${left}\0${right}`) : this.ids.get(left + right); }
    words(text) {
      let parts = [this.nfc ? text.normalize("NFC") : text];
      for (const split of this.splits) parts = parts.flatMap((part) => part.match(split) ?? []);
      return parts.map((part) => binary(new TextEncoder().encode(part)));
    }
    /* Every state from single bytes to tokens: {pieces: [word, word, ...], joined: [word, piece], rank}. */
    steps(text) {
      const words = this.words(text).map((word) => [...word].filter((byte) => this.ids.has(byte)));
      const steps = [{ words: words.map((word) => [...word]), joined: null }];
      words.forEach((word, w) => {
        for (;;) {
          let best = -1, lowest = Infinity;
          for (let i = 0; i + 1 < word.length; i++) {
            const rank = this.rank(word[i], word[i + 1]);
            if (rank !== undefined && rank < lowest) [best, lowest] = [i, rank];
          }
          if (best < 0) break;
          word.splice(best, 2, word[best] + word[best + 1]);
          steps.push({ words: words.map((each) => [...each]), joined: [w, best], rank: lowest });
        }
      });
      return steps;
    }
    encode(text) { return this.steps(text).at(-1).words.flat().map((piece) => this.ids.get(piece)); }
  }

  const loading = new Map();
  const load = (name) => {
    if (!loading.has(name)) loading.set(name, new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = `${base}vocabularies/${name}.js`;
      script.onload = () => resolve(new Vocabulary(window.CourseVocabularies[name]));
      script.onerror = () => { loading.delete(name); reject(new Error(`the vocabulary ${name} is missing: build the book again`)); };
      document.head.append(script);
    }));
    return loading.get(name);
  };
  window.CourseBPE = { load };

  /* --- the figure --------------------------------------------------------------------------------------------- */
  const readable = (piece) => {
    const bytes = Uint8Array.from(piece, (c) => c.charCodeAt(0));
    try {
      const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
      return text.replace(/ /g, "␣").replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/\p{C}/gu, "·");
    } catch { return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join(" "); }
  };
  const whole = (piece) => { try { new TextDecoder("utf-8", { fatal: true }).decode(Uint8Array.from(piece, (c) => c.charCodeAt(0))); return true; } catch { return false; } };
  const widthOf = (text) => [...text].reduce((sum, c) => sum + (/[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\u{1f300}-\u{1faff}]/u.test(c) ? 15 : 8.2), 0) + 12;

  const drawStep = (step, width) => {
    const row = 34, places = [];
    let x = 2, y = 6, at = 0;
    step.words.forEach((word, w) => word.forEach((piece, i) => {
      const text = readable(piece), wide = widthOf(text);
      if (x + wide > width - 2 && x > 2) { x = 2; y += row; }
      places.push({ key: at, x, y, wide, text, word: w, fresh: step.joined && step.joined[0] === w && step.joined[1] === i, broken: !whole(piece) });
      at += piece.length;
      x += wide + 3;
    }));
    const scene = CourseFigures.scene(width, y + row + 2);
    for (const p of places) {
      const fill = p.fresh ? "orange" : p.broken ? "faint" : ["blue", "green"][p.word % 2];
      scene.rect(`piece-${p.key}`, p.x, p.y, p.wide, row - 7, { fill, fillOpacity: p.fresh ? 0.42 : 0.2, stroke: fill, strokeWidth: 1 });
      scene.text(`text-${p.key}`, p.x + 6, p.y + 18, p.text, { size: 13, mono: true });
    }
    return scene;
  };

  CourseFigures.register("bpe", (figure, data) => {
    let vocabulary = null, chosen = data.vocabularies[0].id, steps = [], at = 0, text = data.text, turn = 0;
    const buttons = new Map();
    const field = figure.field({ label: `text (up to ${LONGEST} characters)`, value: text, on: (next) => { text = next; renew(true); } });
    field.maxLength = LONGEST;
    field.closest(".cf-input").classList.add("cf-wide-input");
    const drawing = figure.drawing();
    const previous = figure.button({ label: "Previous merge", icon: "previous", on: () => go(at - 1) });
    const next = figure.button({ label: "Next merge", icon: "next", on: () => go(at + 1) });
    const range = figure.range({ label: "Merges done", min: 0, max: 1, value: 0, text: (value) => `${value} merges done`, on: (value) => go(value) });
    figure.controls.append(range);
    const bar = document.createElement("div");
    bar.className = "cf-choices";
    figure.controls.before(bar);
    for (const { id, label } of data.vocabularies) {
      const button = figure.button({ label: `Vocabulary ${label}`, text: label, on: () => choose(id) });
      bar.append(button);
      buttons.set(id, button);
    }
    const count = (step) => step.words.reduce((sum, word) => sum + word.length, 0);
    function go(step) {
      if (!steps.length) return;
      at = Math.max(0, Math.min(steps.length - 1, step));
      const now = steps[at];
      const scene = drawStep(now, figure.width);
      scene.height = drawStep(steps[0], figure.width).height; // single bytes take most room: the slider must not move
      drawing.show(scene);
      range.set(at);
      previous.setAttribute("aria-disabled", at === 0);
      next.setAttribute("aria-disabled", at === steps.length - 1);
      const pieces = count(now), bytes = new TextEncoder().encode(text).length;
      if (at === 0) return figure.says(`${bytes} bytes in ${now.words.length} words; no merge done yet. Letters of more than one byte show as hexadecimal.`);
      const done = now.words[now.joined[0]][now.joined[1]];
      const what = `Merge ${at} of ${steps.length - 1} makes “${readable(done)}” (rank ${now.rank.toLocaleString("en")}): ${pieces} pieces.`;
      figure.says(at < steps.length - 1 ? what : `${what} Done: ${pieces} tokens, ${(bytes / pieces).toFixed(1)} bytes each. Ids ${now.words.flat().map((piece) => vocabulary.ids.get(piece)).slice(0, 12).join(", ")}${pieces > 12 ? ", …" : ""}`);
    }
    function renew(toEnd) {
      if (!vocabulary) return;
      steps = vocabulary.steps(text);
      range.max = Math.max(1, steps.length - 1);
      go(toEnd ? steps.length - 1 : 0);
    }
    function choose(id) {
      chosen = id;
      buttons.forEach((button, name) => button.setAttribute("aria-pressed", name === id));
      const mine = ++turn;
      const done = () => { if (mine === turn) figure.root.setAttribute("aria-busy", "false"); };
      figure.root.setAttribute("aria-busy", "true"); // a vocabulary takes a moment to load
      load(id).then((loaded) => { if (mine === turn) { vocabulary = loaded; renew(true); } }, (error) => figure.says(error.message)).finally(done);
    }
    figure.redraw = () => go(at);
    figure.root.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("summary, input")) return;
      const step = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: steps.length - 1 }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      go(step);
    });
    choose(chosen);
  });
})();
