/* The RoPE dial: a real query and key, each a set of 2-D arrows; turn both positions, or one.

   Data: frequencies [D/2]; heads: [{name, query, key, m, n, q: [D/2 angles], k: [D/2 angles], weight: [D/2]}], where
   weight is |q_i||k_i|/sqrt(D). The score at positions m and n is the sum of weight_i cos(q_i - k_i + (m - n) f_i). */
CourseFigures.register("rope-dial", (figure, data) => {
  const drawing = figure.drawing(), pairs = data.frequencies.length, FARTHEST = 40;
  const state = {};

  const part = (head, i, distance) => head.weight[i] * Math.cos(head.q[i] - head.k[i] + distance * data.frequencies[i]);
  const score = (head, distance) => head.weight.reduce((sum, _, i) => sum + part(head, i, distance), 0);
  /* The pair that changes the score most between distances 0 and 8: the one worth watching. */
  const swing = (head, i) => {
    const values = Array.from({ length: 9 }, (_, distance) => part(head, i, distance));
    return Math.max(...values) - Math.min(...values);
  };
  const liveliest = (head) => head.weight.map((_, i) => i).reduce((best, i) => (swing(head, i) > swing(head, best) ? i : best));
  const signed = (value) => (value < 0 ? "−" : "") + Math.abs(value).toFixed(2);
  const degrees = (angle) => `${Math.round((((angle * 180) / Math.PI) % 360 + 360) % 360)}°`;

  function dial(scene, head, cx, cy, r) {
    const i = state.pair, f = data.frequencies[i];
    const angles = { q: head.q[i] + (state.m + state.shift) * f, k: head.k[i] + (state.n + state.shift) * f };
    scene.circle("rim", cx, cy, r, { fill: "surface", stroke: "grid", strokeWidth: 1.5 });
    for (let t = 0; t < 12; t++) {
      const a = (t * Math.PI) / 6;
      scene.line(`tick-${t}`, cx + r * Math.cos(a), cy - r * Math.sin(a), cx + (r - 6) * Math.cos(a), cy - (r - 6) * Math.sin(a), { stroke: "faint", width: 1 });
    }
    let sweep = (((angles.q - angles.k) % (2 * Math.PI)) + 3 * Math.PI) % (2 * Math.PI) - Math.PI;
    const s = r * 0.34, x0 = s * Math.cos(angles.k), y0 = -s * Math.sin(angles.k), x1 = s * Math.cos(angles.q), y1 = -s * Math.sin(angles.q);
    scene.path("between", `M0 0L${x0} ${y0}A${s} ${s} 0 0 ${sweep > 0 ? 0 : 1} ${x1} ${y1}Z`, { x: cx, y: cy, fill: "purple", fillOpacity: 0.28 });
    const apart = Math.max(0, 0.24 - Math.abs(sweep)) / 2 * (sweep < 0 ? -1 : 1); // names must not lie on each other
    for (const [name, color, aside] of [["k", "orange", -apart], ["q", "blue", apart]]) {
      const a = angles[name];
      scene.line(`arrow-${name}`, cx, cy, cx + r * 0.86 * Math.cos(a), cy - r * 0.86 * Math.sin(a), { stroke: color, width: 3.5, arrow: true });
      scene.text(`name-${name}`, cx + (r + 13) * Math.cos(a + aside), cy - (r + 13) * Math.sin(a + aside) + 5, name, { anchor: "middle", fill: color, weight: 700, size: 15 });
    }
    return angles;
  }

  function bars(scene, head, x, y, width, height) {
    const step = width / pairs, distance = state.m - state.n, most = Math.max(...head.weight), half = height / 2;
    scene.line("bars-zero", x, y + half, x + width, y + half, { stroke: "faint", width: 1 });
    for (let i = 0; i < pairs; i++) {
      const value = part(head, i, distance), long = (Math.abs(value) / most) * half, picked = i === state.pair;
      scene.rect(`bar-${i}`, x + i * step + 1, value > 0 ? y + half - long : y + half, step - 2, Math.max(1, long),
        { fill: picked ? "purple" : "green", fillOpacity: picked ? 1 : 0.7, radius: 1 });
    }
    scene.text("fast", x, y + height + 15, "fast pairs", { size: 12, fill: "muted" });
    scene.text("slow", x + width, y + height + 15, "slow", { size: 12, fill: "muted", anchor: "end" });
  }

  function curve(scene, head, x, y, width, height) {
    const values = Array.from({ length: FARTHEST * 4 + 1 }, (_, t) => score(head, t / 4));
    const low = Math.min(0, ...values), high = Math.max(0.5, ...values), at = (v) => y + height - ((v - low) / (high - low)) * height;
    const distance = state.m - state.n, px = (d) => x + (d / FARTHEST) * width;
    scene.line("axis", x, at(0), x + width, at(0), { stroke: "grid", width: 1 });
    scene.path("curve", values.map((v, t) => `${t ? "L" : "M"}${px(t / 4).toFixed(1)} ${at(v).toFixed(1)}`).join(""), { stroke: "ink", width: 1.5 });
    for (const d of [0, 10, 20, 30, 40]) scene.text(`d-${d}`, px(d), y + height + 17, d, { size: 12, fill: "muted", anchor: "middle" });
    scene.text("d-label", x + width, y + height + 33, "positions from key to query", { size: 12, fill: "muted", anchor: "end" });
    if (distance >= 0) scene.circle("dot", px(distance), at(score(head, distance)), 6, { fill: "purple", stroke: "paper", strokeWidth: 2 });
  }

  const update = () => {
    const head = data.heads[state.head], wide = figure.width > 500, width = figure.width;
    const scene = CourseFigures.scene(width, wide ? 318 : 560), distance = state.m - state.n, now = score(head, distance);
    const angles = dial(scene, head, wide ? 134 : width / 2, 152, 112);
    const f = data.frequencies[state.pair];
    scene.text("dial-title", wide ? 0 : 8, 14, `Pair ${state.pair} of ${pairs}`, { weight: 600, size: 13 });
    const x = wide ? 318 : 8, top = wide ? 0 : 296, room = width - x - 8;
    scene.text("score-label", x, top + 14, `score at distance ${distance < 0 ? "−" : ""}${Math.abs(distance)}`, { size: 13, fill: "muted" });
    scene.text("score", x + room, top + 17, signed(now), { size: 20, weight: 700, anchor: "end", fill: "purple" });
    bars(scene, head, x, top + 30, room, wide ? 82 : 74);
    curve(scene, head, x, top + (wide ? 158 : 146), room, wide ? 112 : 74);
    drawing.show(scene);
    const q = state.m + state.shift, k = state.n + state.shift;
    const turn = f > 1 / 57.3 ? `${((f * 180) / Math.PI).toFixed(0)}° a position` : `one turn in ${Math.round((2 * Math.PI) / f).toLocaleString("en")} positions`;
    figure.says(`Query “${head.query}” at position ${q}, key “${head.key}” at ${k}: score ${signed(now)}${distance < 0 ? " (masked in the model: this key would lie in the future)" : ""}. ` +
      `Pair ${state.pair} turns ${turn}; q stands at ${degrees(angles.q)}, k at ${degrees(angles.k)}, and the pair adds ${signed(part(head, state.pair, distance))}.`);
  };

  const move = (name) => (value) => { state[name] = value; update(); };
  const sliders = {
    m: figure.slider({ label: "query's position", min: 0, max: FARTHEST, value: 0, on: move("m") }),
    n: figure.slider({ label: "key's position", min: 0, max: FARTHEST, value: 0, on: move("n") }),
    shift: figure.slider({ label: "both positions, moved together", min: 0, max: 100, value: 0, format: (v) => `+${v}`, on: move("shift") }),
    pair: figure.slider({ label: "pair on the dial", min: 0, max: pairs - 1, value: 0, on: move("pair") }),
  };
  const buttons = data.heads.map((head, i) => figure.button({ label: `Head: ${head.name}`, text: head.name, on: () => choose(i) }));
  figure.controls.style.flexWrap = "wrap";
  function choose(i) {
    const head = data.heads[i];
    Object.assign(state, { head: i, m: head.m, n: head.n, shift: 0, pair: liveliest(head) });
    for (const name of Object.keys(sliders)) sliders[name].set(state[name]);
    buttons.forEach((button, j) => button.setAttribute("aria-pressed", i === j));
    update();
  }
  choose(0);
  figure.redraw = update;
});
