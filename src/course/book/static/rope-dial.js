/* The RoPE dial: a real query and the keys of all tokens before it, each a set of 2-D arrows. Drag an arrow, or turn
   everything together.

   Data: tokens; frequencies [D/2]; heads: [{name, m, n, q: [D/2 angles], k: [keys][D/2 angles], weight: [keys][D/2]}], where
   weight is |q_i||k_i|/sqrt(D). The score of the query at position m with key j is the sum over i of
   weight_ji cos(q_i - k_ji + (m - position of j) f_i). */
CourseFigures.register("rope-dial", (figure, data) => {
  const drawing = figure.drawing(), pairs = data.frequencies.length, FARTHEST = 40, TAU = 2 * Math.PI;
  const state = { head: 0, pair: 0, key: 0, query: 0, shift: 0, keyAt: 0 };
  const ease = { x: 0, y: 0, r: 0 };
  const hits = [];

  const head = () => data.heads[state.head];
  const part = (j, i, distance) => head().weight[j][i] * Math.cos(head().q[i] - head().k[j][i] + distance * data.frequencies[i]);
  const score = (j, distance) => head().weight[j].reduce((sum, _, i) => sum + part(j, i, distance), 0);
  const placeOf = (j) => (j === state.key ? state.keyAt : j);
  const swing = (i) => {
    const values = Array.from({ length: 9 }, (_, distance) => part(head().n, i, distance));
    return Math.max(...values) - Math.min(...values);
  };
  const liveliest = () => head().q.map((_, i) => i).reduce((best, i) => (swing(i) > swing(best) ? i : best));
  const signed = (value) => (value < 0 ? "−" : "") + Math.abs(value).toFixed(2);

  function sentence(scene, width) {
    const scores = head().k.map((_, j) => score(j, state.query - placeOf(j)));
    const low = Math.min(...head().floor), high = Math.max(...head().ceiling);
    let x = 0, y = 0;
    hits.length = 0;
    data.tokens.forEach((token, i) => {
      const wide = 7.9 * token.length + 12, seen = i < scores.length;
      if (x + wide > width) { x = 0; y += 30; }
      const stroke = i === head().m ? "blue" : i === state.key ? "orange" : "grid";
      const shade = seen ? 0.03 + 0.75 * Math.max(0, Math.min(1, (scores[i] - low) / (high - low || 1))) : undefined;
      scene.rect(`token-${i}`, x, y + 1, wide, 25, { fill: seen ? "purple" : "surface", fillOpacity: shade, stroke, strokeWidth: stroke === "grid" ? 1 : 2.5 });
      scene.text(`word-${i}`, x + 6, y + 18, token, { size: 13, mono: true, fill: seen ? "ink" : "muted" });
      if (seen) hits.push({ i, x, y, wide });
      x += wide + 3;
    });
    return y + 34;
  }

  function dial(scene, cx, cy, r) {
    const i = state.pair, f = data.frequencies[i];
    const angles = { q: head().q[i] + (state.query + state.shift) * f, k: head().k[state.key][i] + (state.keyAt + state.shift) * f };
    Object.assign(ease, { x: cx, y: cy, r, angles });
    scene.circle("rim", cx, cy, r, { fill: "surface", stroke: "grid", strokeWidth: 1.5 });
    for (let t = 0; t < 12; t++) {
      const a = (t * Math.PI) / 6;
      scene.line(`tick-${t}`, cx + r * Math.cos(a), cy - r * Math.sin(a), cx + (r - 6) * Math.cos(a), cy - (r - 6) * Math.sin(a), { stroke: "faint", width: 1 });
    }
    const sweep = ((((angles.q - angles.k) % TAU) + 1.5 * TAU) % TAU) - Math.PI;
    const s = r * 0.34, x0 = s * Math.cos(angles.k), y0 = -s * Math.sin(angles.k), x1 = s * Math.cos(angles.q), y1 = -s * Math.sin(angles.q);
    scene.path("between", `M0 0L${x0} ${y0}A${s} ${s} 0 0 ${sweep > 0 ? 0 : 1} ${x1} ${y1}Z`, { x: cx, y: cy, fill: "purple", fillOpacity: 0.28 });
    const apart = (Math.max(0, 0.26 - Math.abs(sweep)) / 2) * (sweep < 0 ? -1 : 1); // names must not lie on each other
    for (const [name, color, aside] of [["k", "orange", -apart], ["q", "blue", apart]]) {
      const a = angles[name], tip = r * 0.86;
      scene.line(`arrow-${name}`, cx, cy, cx + tip * Math.cos(a), cy - tip * Math.sin(a), { stroke: color, width: 3.5, arrow: true });
      scene.circle(`grip-${name}`, cx + r * Math.cos(a), cy - r * Math.sin(a), 8, { fill: color, fillOpacity: 0.3, stroke: color, layer: 1 });
      scene.text(`name-${name}`, cx + (r + 19) * Math.cos(a + aside), cy - (r + 19) * Math.sin(a + aside) + 5, name, { anchor: "middle", fill: color, weight: 700, size: 15 });
    }
  }

  function curve(scene, x, y, width, height) {
    const values = Array.from({ length: FARTHEST * 4 + 1 }, (_, t) => score(state.key, t / 4));
    const low = Math.min(0, ...values), high = Math.max(0.5, ...values), at = (v) => y + height - ((v - low) / (high - low)) * height;
    const distance = state.query - state.keyAt, px = (d) => x + (d / FARTHEST) * width;
    scene.line("axis", x, at(0), x + width, at(0), { stroke: "grid", width: 1 });
    scene.path("curve", values.map((v, t) => `${t ? "L" : "M"}${px(t / 4).toFixed(1)} ${at(v).toFixed(1)}`).join(""), { stroke: "ink", width: 1.5 });
    for (const d of [0, 10, 20, 30]) scene.text(`d-${d}`, px(d), y + height + 16, d, { size: 12, fill: "muted", anchor: "middle" });
    scene.text("d-label", x + width, y + height + 16, "40 apart", { size: 12, fill: "muted", anchor: "end" });
    if (distance >= 0 && distance <= FARTHEST) scene.circle("dot", px(distance), at(score(state.key, distance)), 6, { fill: "purple", stroke: "paper", strokeWidth: 2 });
  }

  const update = () => {
    const wide = figure.width > 500, width = figure.width, distance = state.query - state.keyAt, now = score(state.key, distance);
    const scene = CourseFigures.scene(width, 10);
    const top = sentence(scene, width), r = wide ? 86 : 62;
    dial(scene, wide ? 118 : 88, top + r + 26, r);
    const x = wide ? 280 : 196, room = width - x - 10;
    scene.text("pair", x, top + 16, `pair ${state.pair} of ${pairs}`, { size: 13, fill: "muted" });
    scene.text("apart", x, top + 38, `distance ${distance < 0 ? "−" : ""}${Math.abs(distance)}`, { size: 13, fill: "muted" });
    scene.text("score-label", x, top + 60, "score", { size: 13, fill: "muted" });
    scene.text("score", x + (wide ? 46 : 44), top + 62, signed(now), { size: 20, weight: 700, fill: "purple" });
    if (wide) curve(scene, x, top + 84, room, 92); else curve(scene, 8, top + 2 * r + 62, width - 24, 56);
    scene.height = top + (wide ? 2 * r + 52 : 2 * r + 140);
    drawing.show(scene);
    const f = data.frequencies[state.pair];
    const turn = f > 1 / 57.3 ? `${((f * 180) / Math.PI).toFixed(0)}° a position` : `once in ${Math.round(TAU / f).toLocaleString("en")} positions`;
    figure.says(`Query “${data.tokens[head().m]}” at position ${state.query + state.shift}, key “${data.tokens[state.key]}” at ${state.keyAt + state.shift}: score ${signed(now)}` +
      `${distance < 0 ? ", hidden by the mask" : ""}. Pair ${state.pair} turns ${turn} and adds ${signed(part(state.key, state.pair, distance))}.`);
  };

  const sliders = {
    query: figure.slider({ label: "move the query alone", min: 0, max: FARTHEST, value: 0, on: (v) => { state.query = v; update(); } }),
    shift: figure.slider({ label: "move everything together", min: 0, max: 100, value: 0, format: (v) => `+${v}`, on: (v) => { state.shift = v; update(); } }),
    pair: figure.slider({ label: "pair on the dial", min: 0, max: pairs - 1, value: 0, on: (v) => { state.pair = v; update(); } }),
  };
  const heads = figure.choices({ label: "a head that looks for", options: data.heads.map((one) => one.name), on: (i) => choose(i) });

  function choose(i) {
    state.head = i;
    const one = head();
    // The range of colours of a head: of all its scores, at any distance up to 40, so that colours compare while dragging.
    if (!one.floor) {
      const all = one.k.flatMap((_, j) => Array.from({ length: FARTHEST + 1 }, (_, d) => score(j, d)));
      Object.assign(one, { floor: [Math.min(...all)], ceiling: [Math.max(...all)] });
    }
    Object.assign(state, { key: one.n, keyAt: one.n, query: one.m, shift: 0, pair: liveliest() });
    for (const name of Object.keys(sliders)) sliders[name].set(state[name]);
    heads.set(i);
    update();
  }

  /* --- dragging: an arrow follows the pointer to the nearest position at which it points there ------------------ */
  const svg = drawing.svg;
  svg.style.touchAction = "pan-y";
  let held = null;
  const angleAt = ([x, y]) => Math.atan2(ease.y - y, x - ease.x);
  const between = (a, b) => Math.abs(((((a - b) % TAU) + 1.5 * TAU) % TAU) - Math.PI);
  svg.addEventListener("pointerdown", (event) => {
    const [x, y] = drawing.at(event);
    const token = hits.find((hit) => x >= hit.x && x <= hit.x + hit.wide && y >= hit.y && y <= hit.y + 27);
    if (token && token.i !== head().m) { state.key = token.i; state.keyAt = token.i; update(); return; }
    if (Math.hypot(x - ease.x, y - ease.y) > ease.r + 28) return;
    const a = angleAt([x, y]);
    held = between(a, ease.angles.q) <= between(a, ease.angles.k) ? "q" : "k";
    svg.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  svg.addEventListener("pointermove", (event) => {
    if (!held) return;
    const a = angleAt(drawing.at(event)), f = data.frequencies[state.pair];
    const now = held === "q" ? state.query : state.keyAt;
    let best = now, least = Infinity;
    for (let p = 0; p <= FARTHEST; p++) {
      const angle = held === "q" ? head().q[state.pair] + (p + state.shift) * f : head().k[state.key][state.pair] + (p + state.shift) * f;
      const far = between(a, angle) + 0.02 * Math.abs(p - now); // of positions that look alike, the near one
      if (far < least) [best, least] = [p, far];
    }
    if (held === "q") { state.query = best; sliders.query.set(best); } else state.keyAt = best;
    update();
  });
  const release = () => { held = null; };
  svg.addEventListener("pointerup", release);
  svg.addEventListener("pointercancel", release);

  choose(0);
  figure.redraw = update;
});
