/* An example for authors: one slider, one drawing function. In a cell:

     widget("example-dial", {"start": 3}, alt="A bar as long as the slider says", text_equivalent="...")   */
CourseFigures.dial("example-dial", {
  inputs: (data) => [{ name: "tokens", label: "tokens in the cache", min: 1, max: 16, step: 1, value: data.start }],
  draw: ({ tokens }, data, width) => {
    const scene = CourseFigures.scene(width, 64), step = (width - 4) / 16;
    for (let i = 0; i < tokens; i++) scene.rect(`token-${i}`, 2 + i * step, 8, step - 4, 30, { fill: i === tokens - 1 ? "orange" : "blue", fillOpacity: 0.8 });
    scene.text("count", 2, 58, `${tokens} rows of K and V per layer`, { size: 13, fill: "muted" });
    return { scene, says: `With ${tokens} tokens the cache holds ${tokens} rows of K and V in every layer.` };
  },
});
