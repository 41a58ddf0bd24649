/* Figure kind "kv-race": two recorded generators side by side, one without a KV cache and one with.

     widget("kv-race", {naive: {rows, pairs, seconds}, cached: {rows, pairs, seconds}}, alt=..., text_equivalent=...)

   Each list holds running totals after token 1, 2, ... The slider sets both to the same token; the button lets both
   run by their own recorded clock. It starts at token 1. `prediction` names a prediction of the page, with the
   questions `without`, `with` and `faster`: what the reader guessed is drawn in, as dashed marks. */
(() => {
  "use strict";
  const CF = window.CourseFigures;
  const count = (value) => value.toLocaleString("en-US");
  const clock = (value) => `${value.toFixed(value < 9.95 ? 1 : 0)} s`;
  const ratio = (more, less) => `${(more / less).toFixed(1)} to 1`;
  const RACE = 14; // seconds that a race takes on the page

  CF.register("kv-race", (figure, data) => {
    const { naive, cached } = data, last = naive.rows.length;
    const drawing = figure.drawing();
    const total = naive.seconds[last - 1];
    let at = 1, run = null, frame = 0; // run: seconds since Enter while a race is on
    const guessed = () => (data.prediction && window.CoursePredictions ? CoursePredictions.get(data.prediction) : null);

    /* Tokens that a generator has written after some seconds. */
    const written = (one, seconds) => {
      let low = 0, high = last;
      while (low < high) { const mid = (low + high) >> 1; if (one.seconds[mid] <= seconds) low = mid + 1; else high = mid; }
      return low;
    };
    const state = (one) => {
      const token = run === null ? at : written(one, run);
      const upTo = (list) => (token ? list[token - 1] : 0);
      return { token, rows: upTo(one.rows), pairs: upTo(one.pairs), seconds: run === null ? upTo(one.seconds) : Math.min(run, one.seconds[last - 1]) };
    };

    const panel = (scene, name, title, tint, x, side, now, whole) => {
      const s = side / last, top = 46, y = now.token * s, thick = Math.max(2.5, s);
      // What moves is a path, not a shifted element: those glide into place, and would lag behind a race.
      scene.text(`${name}-title`, x, 16, title, { size: 14, weight: 650 });
      scene.text(`${name}-token`, x, 36, now.token ? `token ${now.token}` : "the prompt is read", { size: 13, fill: "muted" });
      scene.path(`${name}-field`, `M0 0V${side}H${side}z`, { x, y: top, stroke: "grid", fill: "surface" });
      if (whole) {
        scene.path(`${name}-done`, `M0 0V${y}H${y}z`, { x, y: top, fill: tint, fillOpacity: 0.45 });
        scene.path(`${name}-now`, `M0 ${y - thick}H${y}v${thick}H0z`, { x, y: top, fill: tint });
      } else {
        scene.path(`${name}-read`, `M0 0V${y}H${y}z`, { x, y: top, fill: tint, fillOpacity: 0.1 });
        scene.path(`${name}-done`, `M0 0L${y} ${y}`, { x, y: top, stroke: tint, width: thick });
        scene.path(`${name}-now`, `M${y - 5} ${y}a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z`, { x, y: top, fill: tint });
      }
      scene.text(`${name}-rows`, x + side, top + 20, count(now.rows), { size: 22, weight: 650, anchor: "end" });
      scene.text(`${name}-rows-word`, x + side, top + 38, now.rows === 1 ? "row projected" : "rows projected", { size: 13, anchor: "end", fill: "muted" });
      scene.text(`${name}-pairs`, x, top + side + 22, `${count(now.pairs)} ${now.pairs === 1 ? "score" : "scores"}`, { size: 13, fill: "muted" });
      const guess = guessed()?.[whole ? "without" : "with"];
      if (guess !== undefined) scene.text(`${name}-guess`, x + side, top + 56, `you said ${count(guess)}`, { size: 13, anchor: "end", fill: "purple", weight: 600 });
    };
    const bar = (scene, name, label, tint, y, width, now) => {
      scene.text(`${name}-clock`, 0, y + 14, label, { size: 13 });
      const left = 66, room = width - left - 56, length = Math.max(1, room * now.seconds / total);
      scene.rect(`${name}-bar`, left, y, length, 19, { fill: tint, fillOpacity: 0.85 });
      scene.text(`${name}-seconds`, left + length + 8, y + 14, clock(now.seconds), { size: 13, weight: 600 });
      const guess = guessed()?.faster;
      if (name !== "cached" || !(guess > 0)) return;
      const mark = left + Math.min(room, (room * naive.seconds[last - 1]) / guess / total); // where it would end, if the guess were right
      scene.line("guess-mark", mark, y - 6, mark, y + 26, { stroke: "purple", width: 2, dash: "4 3", layer: 2 });
      const end = mark < width * 0.6;
      scene.text("guess-word", mark + (end ? 6 : -6), y + 37, `you said ${guess.toLocaleString("en-US", { maximumFractionDigits: 1 })}${width < 600 ? "\u00a0×" : " times faster: it would end here"}`,
        { size: 12, anchor: end ? "start" : "end", fill: "purple", layer: 2 });
    };

    const draw = () => {
      const wide = figure.width >= 600, side = wide ? 250 : 152, gap = figure.width - 2 * side;
      const one = state(naive), other = state(cached);
      const scene = CF.scene(figure.width, side + (guessed() ? 156 : 142));
      panel(scene, "naive", "without a cache", "orange", 0, side, one, true);
      panel(scene, "cached", "with a cache", "blue", side + gap - 6, side, other, false);
      bar(scene, "naive", "without", "orange", side + 84, figure.width, one);
      bar(scene, "cached", "with", "blue", side + 112, figure.width, other);
      drawing.show(scene);
      figure.says(says(one, other));
    };
    const says = (one, other) => {
      if (run !== null) return `After ${clock(run)} the one with a cache has written ${other.token} tokens, the one without ${one.token}.`;
      if (at === 1) return "Token 1: both push one row through the model. There is nothing to remember yet. Move on, or let them race.";
      return `Token ${at}: ${count(one.rows)} rows without a cache, ${count(other.rows)} with one: ${ratio(one.rows, other.rows)}. ` +
        `Time so far: ${clock(one.seconds)} and ${clock(other.seconds)}: ${ratio(one.seconds, other.seconds)}.`;
    };

    const slider = figure.slider({ label: "tokens written by both", min: 1, max: last, value: at, format: String, on: (value) => { stop(); at = value; draw(); } });
    const button = figure.button({ label: "Race by the clock", text: "Race by the clock", on: () => (run === null ? start() : halt()) });
    const stop = () => {
      cancelAnimationFrame(frame);
      run = null;
      figure.live.setAttribute("aria-live", "polite");
      button.textContent = "Race by the clock";
      button.setAttribute("aria-label", "Race by the clock");
      button.title = "Race by the clock";
    };
    const halt = () => { stop(); slider.set(at); draw(); };
    const start = () => {
      if (CF.calm.matches) { run = cached.seconds[last - 1]; draw(); figure.says(`${says(state(naive), state(cached))} That is when the cached one is done.`); run = null; return; }
      const began = performance.now();
      figure.live.setAttribute("aria-live", "off"); // a running race would talk without end
      button.textContent = "Stop";
      button.setAttribute("aria-label", "Stop the race");
      button.title = "Stop the race";
      run = 0;
      const tick = (now) => {
        run = Math.min(total, ((now - began) / 1000) * (total / RACE));
        draw();
        if (run < total) frame = requestAnimationFrame(tick); else { at = last; halt(); }
      };
      frame = requestAnimationFrame(tick);
    };
    figure.redraw = draw;
    if (data.prediction && window.CoursePredictions) CoursePredictions.on(data.prediction, draw);
    let kept = at;
    addEventListener("beforeprint", () => { stop(); kept = at; at = last; draw(); });
    addEventListener("afterprint", () => { at = kept; draw(); });
    draw();
  });
})();
