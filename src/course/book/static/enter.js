/* The front page's figure (enter.py): a recorded answer, pass by pass. Each pass lasts as long as it did, times `slower`;
   the reader chooses the prompt, and may take the second choice at any token and see what the model wrote then. */
(() => {
  "use strict";
  window.CourseFigures.register("enter", (figure, data) => {
    const drawing = figure.drawing(), svg = drawing.svg;
    let prompt = data.prompts[0], fork = null, at = 0, playing = false, clock = 0, frame = 0;
    const passes = () => (fork === null ? prompt.passes : [...prompt.passes.slice(0, fork + 1), ...prompt.branches[fork]]);
    const taken = (n) => passes()[n][2][n === fork ? 1 : 0][0];
    const visible = (text) => text.replaceAll(" ", "␣").replaceAll("\n", "⏎");
    const said = (text) => (text.trim() ? `“${text.trim()}”` : visible(text));
    const percent = (p) => `${p < 0.1 ? (100 * p).toFixed(1) : Math.round(100 * p)}%`;
    const last = () => passes().length - 1;

    const chips = document.createElement("div");
    chips.className = "cf-choices";
    chips.setAttribute("role", "group");
    chips.setAttribute("aria-label", "Prompt");
    for (const each of data.prompts) {
      const chip = document.createElement("button");
      chip.type = "button";
      chip.className = "cf-button";
      chip.textContent = each.name;
      chip.addEventListener("click", () => { stop(); prompt = each; fork = null; range.max = last(); go(0); });
      each.chip = chip;
      chips.append(chip);
    }
    figure.stage.before(chips);

    function scene(running) {
      const width = figure.width, s = window.CourseFigures.scene(width, 0), all = passes(), now = all[at];
      const done = running ? at - 1 : at; // the pass that runs has not chosen yet
      let x = 1, y = 4;
      const words = [...prompt.cut.map((text, n) => [`p${n}`, text, "blue"]),
        ...all.slice(0, done + 1).map((_, n) => [`a${n}`, visible(taken(n)), n === fork ? "purple" : "orange"])];
      for (const [key, text, fill] of words) {
        const room = text.length * 7.8 + 10;
        if (x + room > width - 1) { x = 1; y += 30; }
        s.rect(`b-${key}`, x, y, room, 25, { fill, fillOpacity: 0.2, stroke: fill }).text(`t-${key}`, x + 5, y + 17, text, { size: 13, mono: true });
        x += room + 4;
      }
      const lines = width > 500 ? (prompt.cut.length > 12 ? 3 : 2) : (prompt.cut.length > 12 ? 5 : 3);
      let top = 4 + 30 * Math.max(lines, (y - 4) / 30 + 1) + 24;
      const total = all.reduce((sum, pass) => sum + pass[1], 0), gap = 2, scale = (width - 2 - gap * all.length) / total;
      const since = all.slice(0, at).reduce((sum, pass) => sum + pass[1], 0) + (running ? clock : now[1]);
      s.text("clock", 1, top, `${Math.round(since)} ms since Enter; a bar is a pass, as long as it took`, { size: 13, fill: "muted" });
      x = 1;
      all.forEach((pass, n) => {
        const long = pass[1] * scale, share = n < at ? 1 : n > at ? 0 : running ? Math.min(1, clock / pass[1]) : 1;
        s.rect(`k${n}`, x, top + 8, long, 24, { fill: "surface", stroke: "grid" });
        s.rect(`f${n}`, x, top + 8, long * share, 24, { fill: n ? "green" : "blue", fillOpacity: 0.75, opacity: share ? 1 : 0 });
        x += long + gap;
      });
      top += 62;
      const most = all[all.length - 1][0], rows = done < 0 ? 0 : all[done][0], pitch = Math.min(26, (width - 2) / most);
      s.text("cache", 1, top, `KV cache in each of ${data.layers} layers: ${rows} ${rows === 1 ? "row" : "rows"}`, { size: 13, fill: "muted" });
      const fresh = done <= 0 ? 0 : all[done - 1][0];
      s.rect("c-all", 1, top + 8, most * pitch - 2, 20, { fill: "surface", stroke: "grid" });
      if (most <= 40) {
        for (let n = 0; n < rows; n++) s.rect(`r${n}`, 1 + n * pitch, top + 8, pitch - 2, 20, { fill: done && n >= fresh ? "green" : "blue", fillOpacity: 0.75 });
      } else if (rows) {
        s.rect("r-old", 1, top + 8, (done ? fresh : rows) * pitch - 1, 20, { fill: "blue", fillOpacity: 0.75 });
        if (done) s.rect("r-new", 1 + fresh * pitch, top + 8, Math.max(2, pitch - 0.5), 20, { fill: "green" });
      }
      top += 50;
      s.text("next", 1, top, done < 0 ? "next token: not known yet" : done < last() ? "next token; click the outlined one to take it" : "next token", { size: 13, fill: "muted" });
      const shown = done < 0 ? null : all[done][2], room = width - 200;
      s.bars = top + 8;
      for (let n = 0; n < 5; n++) {
        const base = top + 8 + 28 * n;
        if (!shown) continue;
        const [text, p] = shown[n], pick = done === fork ? 1 : 0, can = n < 2 && done < last() && (fork === null || done <= fork);
        s.text(`w${n}`, 110, base + 16, visible(text), { size: 13, mono: true, anchor: "end" });
        s.rect(`q${n}`, 120, base + 2, Math.max(2, p * room), 19, { fill: n === pick ? (done === fork ? "purple" : "orange") : "faint", stroke: can && n !== pick ? "ink" : undefined, strokeWidth: 1.5 });
        s.text(`s${n}`, 128 + Math.max(2, p * room), base + 16, percent(p), { size: 13, fill: "muted" });
      }
      s.height = top + 8 + 28 * 5;
      return s;
    }

    function words() {
      const pass = passes()[at], best = pass[2][0];
      if (at === fork) return `You took the second choice, ${said(pass[2][1][0])} with ${percent(pass[2][1][1])}. Go on, and see what the model makes of it.`;
      if (at) return `Decode. One token goes in, ${pass[0] - 1} cached rows are read, one is added: ${Math.round(pass[1])} ms. ${said(best[0])} wins with ${percent(best[1])}.`;
      const few = prompt.ids.length <= 8 ? `, ids ${prompt.ids.join(", ")}` : "";
      return `You typed ${prompt.characters} characters. They are cut into ${prompt.ids.length} tokens${few}. Prefill: all of them pass the ${data.layers} layers at once, in ${Math.round(pass[1])} ms, and leave a key and a value each. ${said(best[0])} wins with ${percent(best[1])}.`;
    }
    let bars = 0, high = 0;
    function draw(running = false) {
      const made = scene(running);
      bars = made.bars;
      high = made.height;
      drawing.show(made);
    }
    function go(step) {
      at = Math.max(0, Math.min(last(), step));
      draw();
      figure.says(words());
      range.set(at);
      data.prompts.forEach((each) => each.chip.setAttribute("aria-pressed", String(each === prompt)));
      previous.setAttribute("aria-disabled", String(at === 0));
      next.setAttribute("aria-disabled", String(at === last()));
      const can = at < last() && (fork === null || at <= fork), pass = passes()[at];
      other.hidden = !can;
      if (can) other.textContent = at === fork ? `Back to ${said(pass[2][0][0])}` : `Take ${said(pass[2][1][0])} instead`;
      other.setAttribute("aria-label", other.textContent);
      other.title = "What would the model have written then?";
    }
    function stop() {
      playing = false;
      cancelAnimationFrame(frame);
      figure.live.setAttribute("aria-live", "polite");
      play.textContent = "Press Enter";
      play.setAttribute("aria-label", "Press Enter: play the answer");
    }
    function start() {
      playing = true;
      figure.live.setAttribute("aria-live", "off"); // a running answer would talk without end
      play.textContent = "Stop";
      other.hidden = true;
      play.setAttribute("aria-label", "Stop");
      at = fork === null ? 0 : Math.min(fork + 1, last());
      run();
    }
    function run() {
      const began = performance.now(), pass = passes()[at];
      svg.classList.add("enter-running");
      const tick = () => {
        if (!playing) { svg.classList.remove("enter-running"); return; }
        clock = (performance.now() - began) / data.slower;
        if (clock < pass[1]) {
          draw(true);
          figure.says(at ? "Decode: one token goes through the layers …" : `Prefill: ${prompt.ids.length} tokens go through the layers …`);
          frame = requestAnimationFrame(tick);
          return;
        }
        svg.classList.remove("enter-running");
        go(at);
        if (at === last()) stop(); else { at += 1; run(); }
      };
      tick();
    }
    function take(choice) {
      stop();
      fork = choice === 1 ? at : null;
      go(at);
    }

    const play = figure.button({ label: "Press Enter: play the answer", text: "Press Enter", on: () => { if (playing) { stop(); go(at); } else start(); } });
    const previous = figure.button({ label: "Previous pass", icon: "previous", on: () => { stop(); go(at - 1); } });
    const next = figure.button({ label: "Next pass", icon: "next", on: () => { stop(); go(at + 1); } });
    const range = figure.range({ label: "Pass", min: 0, max: last(), value: 0, text: (n) => `pass ${n + 1}`, on: (n) => { stop(); go(n); } });
    figure.controls.append(range);
    const other = figure.button({ label: "Take the second choice", text: "", on: () => take(at === fork ? 0 : 1) });
    other.classList.add("enter-other");
    svg.addEventListener("click", (event) => {
      if (playing || at === last() || (fork !== null && at > fork)) return;
      const box = svg.getBoundingClientRect(), y = (event.clientY - box.top) * (high / box.height) - bars;
      const n = Math.floor(y / 28);
      if (n === 0 || n === 1) take(n);
    });
    figure.redraw = () => { if (!playing) go(at); };
    addEventListener("beforeprint", () => { stop(); go(at); });
    go(0);
  });
})();
