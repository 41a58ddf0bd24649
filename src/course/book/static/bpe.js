/* Figure kind "bpe": type a text and watch it merged, step by step, under several vocabularies, with the bill.

     widget("bpe", {text: "...", vocabularies: vocabularies.describe()}, alt=..., text_equivalent=...)

   The vocabularies are scripts beside the page (course.book.vocabularies), loaded one after another. */
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

  /* --- the figure: the text once for each vocabulary, a box a token ------------------------------------------- */
  /* Width of a column, height of a line, size of the letters: as in course.book.drawings.tokenization. */
  const metrics = (width) => (width > 500 ? { char: 12, line: 38, size: 19 } : { char: 8, line: 27, size: 13 });
  const bytesOf = (piece) => Uint8Array.from(piece, (c) => c.charCodeAt(0));
  const readable = (piece) => {
    try {
      const text = new TextDecoder("utf-8", { fatal: true }).decode(bytesOf(piece));
      return text.replace(/ /g, "␣").replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/\p{C}/gu, "·");
    } catch { return [...bytesOf(piece)].map((byte) => byte.toString(16).padStart(2, "0")).join(" "); }
  };
  const WIDE_CHAR = /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\uff00-\uff60\u{1f300}-\u{1faff}]/u;
  const SHOWN = { " ": "␣", "\n": "⏎", "\t": "⇥" };

  /* Characters with their places, and for every byte the stretch of a line that it takes. */
  const layout = (text, width) => {
    const { char: CHAR, line: LINE } = metrics(width), columns = Math.floor(width / CHAR), characters = [], edges = [];
    let column = 0, line = 0;
    for (const char of text) {
      const wide = WIDE_CHAR.test(char) ? 2 : 1, size = new TextEncoder().encode(char).length;
      if (column + wide > columns) { column = 0; line += 1; }
      characters.push({ x: column * CHAR, y: line * LINE, text: SHOWN[char] ?? char.replace(/\p{C}/u, "·") });
      for (let i = 0; i < size; i++) edges.push([line, (column + (wide * i) / size) * CHAR, (column + (wide * (i + 1)) / size) * CHAR]);
      column += wide;
    }
    return { characters, edges, height: (line + 1) * LINE };
  };

  CourseFigures.register("bpe", (figure, data) => {
    const rows = data.vocabularies.map(({ id, label }) => ({ id, label, vocabulary: null, steps: null }));
    let text = data.text, at = 0, timer = null;
    const field = figure.field({ label: `your text (up to ${LONGEST} characters)`, value: text, on: (next) => { text = next; stop(); renew(most()); } });
    field.maxLength = LONGEST;
    field.closest(".cf-input").classList.add("cf-wide-input");
    figure.stage.before(figure.inputs);
    const drawing = figure.drawing();
    const previous = figure.button({ label: "Previous merge", icon: "previous", on: () => { stop(); go(at - 1); } });
    const play = figure.button({ label: "Play", icon: "play", on: () => (timer ? stop() : start()) });
    const next = figure.button({ label: "Next merge", icon: "next", on: () => { stop(); go(at + 1); } });
    const range = figure.range({ label: "Merges done", min: 0, max: 1, value: 0, text: (value) => `${value} merges done`, on: (value) => { stop(); go(value); } });
    figure.controls.append(range);
    const ids = document.createElement("details");
    ids.className = "cf-steps cf-ids";
    ids.innerHTML = "<summary>The ids</summary><dl></dl>";
    figure.controls.after(ids);

    const most = () => Math.max(0, ...rows.map((row) => (row.steps ? row.steps.length - 1 : 0)));
    const step = (row) => row.steps[Math.min(at, row.steps.length - 1)];
    const count = (state) => state.words.reduce((sum, word) => sum + word.length, 0);

    const draw = () => {
      const width = figure.width, { line: LINE, size } = metrics(width);
      let y = 0;
      const scene = CourseFigures.scene(width, 10), dearest = Math.max(1, ...rows.map((row) => (row.steps ? count(step(row)) : 0)));
      for (const [v, row] of rows.entries()) {
        scene.text(`name-${v}`, 0, y + 14, row.label, { size: 13, weight: 600 });
        const { characters, edges, height } = layout(row.vocabulary?.nfc ? text.normalize("NFC") : text, width);
        if (row.steps) {
          const state = step(row), pieces = count(state), done = at >= row.steps.length - 1;
          scene.rect(`bar-${v}`, 128, y + 5, Math.max(1, ((width - 210) * pieces) / dearest), 9, { fill: "orange", fillOpacity: 0.8, radius: 2 });
          scene.text(`count-${v}`, width, y + 14, `${pieces} ${done ? (pieces === 1 ? "token" : "tokens") : "pieces"}`, { size: 13, weight: 600, anchor: "end" });
          let byte = 0, number = 0;
          state.words.forEach((word, w) => word.forEach((piece, i) => {
            const part = edges.slice(byte, byte + piece.length);
            const fresh = at < row.steps.length && state.joined && state.joined[0] === w && state.joined[1] === i;
            for (const line of new Set(part.map((edge) => edge[0]))) {
              const here = part.filter((edge) => edge[0] === line), left = here[0][1], right = here.at(-1)[2];
              scene.rect(`box-${v}-${byte}-${line}`, left + 0.5, y + 21 + line * LINE, Math.max(1, right - left - 1), LINE - 5,
                { fill: fresh ? "orange" : ["blue", "green"][number % 2], fillOpacity: fresh ? 0.5 : 0.22, radius: 2 });
            }
            byte += piece.length;
            number += 1;
          }));
        }
        characters.forEach((c, i) => scene.text(`char-${v}-${i}`, c.x, y + 21 + c.y + size + 3, c.text, { size, mono: true }));
        y += 24 + height + 6;
      }
      scene.height = Math.max(10, y);
      drawing.show(scene);
    };
    const says = () => {
      const bytes = new TextEncoder().encode(text).length, last = most(), ready = rows.filter((row) => row.steps);
      if (!ready.length) return "The vocabularies are being read.";
      if (!bytes) return "0 bytes: type something.";
      if (at === 0) return `${bytes} bytes, no merge done yet: a box for every byte. Which vocabulary will need the fewest tokens?`;
      if (at < last) {
        const joins = ready.filter((row) => at < row.steps.length).map((row) => {
          const state = row.steps[at];
          return `${row.label} “${readable(state.words[state.joined[0]][state.joined[1]])}”`;
        });
        return `Merge ${at} of at most ${last}: ${joins.join(", ")}.`;
      }
      const bill = ready.map((row) => [count(step(row)), row.label]).sort((a, b) => a[0] - b[0]);
      return `The bill for ${bytes} bytes: ${bill.map(([tokens, label]) => `${label} ${tokens}`).join(", ")} tokens. ${last} merges at most.`;
    };
    function go(to) {
      at = Math.max(0, Math.min(most(), to));
      draw();
      range.set(at);
      previous.setAttribute("aria-disabled", at === 0);
      next.setAttribute("aria-disabled", at === most());
      figure.says(says());
    }
    function renew(to) {
      for (const row of rows) row.steps = row.vocabulary ? row.vocabulary.steps(text) : null;
      range.max = Math.max(1, most());
      const list = ids.querySelector("dl");
      list.replaceChildren(...rows.filter((row) => row.steps).flatMap((row) => {
        const term = document.createElement("dt"), definition = document.createElement("dd");
        term.textContent = row.label;
        definition.textContent = row.steps.at(-1).words.flat().map((piece) => row.vocabulary.ids.get(piece)).join(", ") || "none";
        return [term, definition];
      }));
      go(to);
    }
    function stop() {
      clearInterval(timer);
      timer = null;
      figure.live.setAttribute("aria-live", "polite");
      figure.relabel(play, "Play", "play");
    }
    function start() {
      if (at === most()) go(0);
      figure.live.setAttribute("aria-live", "off");
      figure.relabel(play, "Pause", "pause");
      timer = setInterval(() => { go(at + 1); if (at === most()) stop(); }, 220);
    }
    figure.redraw = () => go(at);
    let kept = 0;
    addEventListener("beforeprint", () => { stop(); kept = at; go(most()); });
    addEventListener("afterprint", () => go(kept));
    figure.root.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("summary, input")) return;
      const step = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: most() }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      stop();
      go(step);
    });
    figure.root.setAttribute("aria-busy", "true"); // the vocabularies take a moment to load
    go(0);
    (async () => {
      for (const row of rows) {
        try { row.vocabulary = await load(row.id); } catch (error) { figure.says(error.message); continue; }
        renew(at);
      }
      figure.root.setAttribute("aria-busy", "false");
    })();
  });
})();
