/* Figure kind "maps": every attention head of a model as a thumbnail on a wall; the one that is picked, large.

   Data: layers, heads; sentences: [{name, tokens, maps}], maps being the lower triangles of [layers, heads, T, T] as bytes,
   255 for a weight of 1, in base64; named: [{sentence, layer, head, habit}], heads whose habit has a name. */
CourseFigures.register("maps", (figure, data) => {
  const unpack = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const sentences = data.sentences.map((one) => ({ ...one, maps: unpack(one.maps), n: one.tokens.length }));
  const state = { sentence: data.named[0].sentence, layer: data.named[0].layer, head: data.named[0].head };
  const colour = (name) => getComputedStyle(figure.root).getPropertyValue(`--fig-${name}`).trim();
  const triangle = (n) => (n * (n + 1)) / 2;
  const weight = (s, layer, head, i, j) => s.maps[(layer * data.heads + head) * triangle(s.n) + triangle(i) + j] / 255;

  /* --- the wall: one canvas, since 270 maps are thirty thousand cells ------------------------------------------- */
  const wall = document.createElement("canvas");
  wall.className = "cf-wall";
  wall.tabIndex = 0;
  wall.setAttribute("role", "group");
  wall.setAttribute("aria-roledescription", "wall of heads");
  wall.setAttribute("aria-label", "All heads, layers from left to right: arrow keys move, a click picks one");
  figure.stage.append(wall);
  const drawing = figure.drawing();
  const size = () => {
    const width = figure.stage.clientWidth || figure.width;
    return { width, cell: width / data.layers };
  };
  const rgb = (text) => {
    const hex = text.replace("#", "");
    return [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16));
  };
  function paintWall() {
    const { width, cell } = size(), s = sentences[state.sentence], scale = Math.max(1, Math.min(3, devicePixelRatio || 1));
    const ratio = Math.max(scale, (s.n + 1) / cell); // at least a pixel for a cell of a map
    wall.width = Math.round(width * ratio);
    wall.height = Math.round(cell * data.heads * ratio);
    wall.style.height = `${cell * data.heads}px`;
    const context = wall.getContext("2d"), [blue, paper] = [rgb(colour("blue")), rgb(colour("surface"))];
    const small = document.createElement("canvas");
    small.width = small.height = s.n;
    const pen = small.getContext("2d"), pixels = pen.createImageData(s.n, s.n);
    context.imageSmoothingEnabled = false;
    for (let layer = 0; layer < data.layers; layer++) for (let head = 0; head < data.heads; head++) {
      for (let i = 0; i < s.n; i++) for (let j = 0; j < s.n; j++) {
        const shade = j <= i ? Math.sqrt(weight(s, layer, head, i, j)) : 0, at = 4 * (i * s.n + j);
        for (let c = 0; c < 3; c++) pixels.data[at + c] = paper[c] + shade * (blue[c] - paper[c]);
        pixels.data[at + 3] = 255;
      }
      pen.putImageData(pixels, 0, 0);
      context.drawImage(small, layer * cell * ratio, head * cell * ratio, (cell - 1.2) * ratio, (cell - 1.2) * ratio);
    }
    const frame = (layer, head, name, line) => {
      context.strokeStyle = colour(name);
      context.lineWidth = line * ratio;
      context.strokeRect((layer * cell - 0.6) * ratio, (head * cell - 0.6) * ratio, cell * ratio, cell * ratio);
    };
    for (const one of data.named) if (one.sentence === state.sentence) frame(one.layer, one.head, "gold", 1.5);
    frame(state.layer, state.head, "orange", 3);
  }

  function map() {
    const s = sentences[state.sentence], width = figure.width, wide = width > 500;
    const longest = Math.max(...s.tokens.map((token) => token.length));
    const left = 8 + 7.4 * longest, cell = Math.min(wide ? 24 : 18, (width - left - 8) / s.n);
    const scene = CourseFigures.scene(width, 30 + cell * s.n + 8);
    scene.text("title", 0, 16, `layer ${state.layer}, head ${state.head}`, { size: 14, weight: 600 });
    for (let i = 0; i < s.n; i++) {
      scene.text(`row-${i}`, left - 6, 30 + cell * (i + 0.5) + 4, s.tokens[i], { size: 12, anchor: "end", mono: true, fill: "muted" });
      for (let j = 0; j <= i; j++) scene.rect(`cell-${i}-${j}`, left + j * cell, 30 + i * cell, cell - 1.5, cell - 1.5,
        { fill: "blue", fillOpacity: 0.05 + 0.95 * weight(s, state.layer, state.head, i, j), radius: 1 });
    }
    Object.assign(place, { left, cell, top: 30 });
    drawing.show(scene);
  }
  const place = { left: 0, cell: 1, top: 30 };

  const habit = () => data.named.find((one) => one.sentence === state.sentence && one.layer === state.layer && one.head === state.head);
  const pair = (i, j) => {
    const s = sentences[state.sentence];
    return `“${s.tokens[i]}” takes ${weight(s, state.layer, state.head, i, j).toFixed(2)} from “${s.tokens[j]}”`;
  };
  function says() {
    const s = sentences[state.sentence], last = s.n - 1, named = habit();
    let best = 0;
    for (let j = 1; j <= last; j++) if (weight(s, state.layer, state.head, last, j) > weight(s, state.layer, state.head, last, best)) best = j;
    figure.says(`Layer ${state.layer}, head ${state.head}${named ? ` ${named.habit}` : ""}. The last token, ${pair(last, best)}, at position ${best}.`);
  }
  function update() { paintWall(); map(); says(); layer.set(state.layer); head.set(state.head); }

  const pick = figure.choices({ label: "sentence", options: sentences.map((one) => one.name), value: state.sentence,
    on: (i) => { state.sentence = i; update(); } });
  const layer = figure.slider({ label: "layer", min: 0, max: data.layers - 1, value: state.layer, on: (value) => { state.layer = value; update(); } });
  const head = figure.slider({ label: "head", min: 0, max: data.heads - 1, value: state.head, on: (value) => { state.head = value; update(); } });
  let turn = 0;
  figure.button({ label: "Next head with a name", text: "Next head with a name", on: () => {
    turn = (turn + 1) % data.named.length;
    const { sentence, layer: l, head: h } = data.named[turn];
    Object.assign(state, { sentence, layer: l, head: h });
    pick.set(sentence);
    update();
  } });

  wall.addEventListener("click", (event) => {
    const box = wall.getBoundingClientRect();
    state.layer = Math.min(data.layers - 1, Math.floor(((event.clientX - box.left) / box.width) * data.layers));
    state.head = Math.min(data.heads - 1, Math.floor(((event.clientY - box.top) / box.height) * data.heads));
    update();
  });
  wall.addEventListener("keydown", (event) => {
    const [dl, dh] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key] ?? [];
    if (dl === undefined) return;
    event.preventDefault();
    state.layer = Math.max(0, Math.min(data.layers - 1, state.layer + dl));
    state.head = Math.max(0, Math.min(data.heads - 1, state.head + dh));
    update();
  });
  drawing.svg.addEventListener("pointermove", (event) => {
    const [x, y] = drawing.at(event), j = Math.floor((x - place.left) / place.cell), i = Math.floor((y - place.top) / place.cell);
    if (i >= 0 && j >= 0 && j <= i && i < sentences[state.sentence].n) figure.says(`Layer ${state.layer}, head ${state.head}: ${pair(i, j)}.`);
  });
  new MutationObserver(paintWall).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paintWall);
  new ResizeObserver(paintWall).observe(figure.stage);
  figure.redraw = update;
  update();
});
