"""Figures of chapter 03, and the longer experiments behind them: maps of 270 heads, the dial, the stream, sinks.

A `Run` is one pass of the model over one text, with all it recorded. Shapes: L layers, H heads, T tokens.
"""

from __future__ import annotations

import base64
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from course.book.display import Display
from course.book.figures import COLORS, bar_rows, diagram, heat_cells, heatmap, show
from course.book.prose import shown, signed
from course.book.svg import Scene
from course.book.traces import widget
from llm_internals import ops
from llm_internals.transformer_block import attention_weights, causal_mask, rms_norm

WIDE, SLIM = 680, 336
DISTANCES = range(41)
OPERATIONS = ("rms_norm", "linear", "apply_rope", "attention", "swiglu")


@dataclass(frozen=True)
class Run:
    """One recorded pass: `calls` by operation, token texts, residual stream [2 L + 1, T, hidden], maps [L, H, T, T]."""

    tokens: list[str]
    calls: dict[str, list]
    streams: torch.Tensor
    maps: torch.Tensor

    @classmethod
    def of(cls, tokens: Sequence[str], calls: dict[str, list]) -> Run:
        """From what `ops.record` kept."""
        streams = torch.stack([call.arguments["x"] for call in calls["rms_norm"]])
        maps = torch.stack(
            [attention_weights(*(c.arguments[n] for n in ("q", "k", "scale"))) for c in calls["attention"]]
        )
        return cls(list(tokens), calls, streams, maps)

    @classmethod
    def record(cls, model, tokenizer, text: str) -> Run:
        """Run the model on a text."""
        ids = tokenizer.encode(text)
        with ops.record(*OPERATIONS) as calls:
            model(torch.tensor(ids))
        return cls.of([tokenizer.decode([i]) for i in ids], {n: [c for c in calls if c.name == n] for n in OPERATIONS})


def weights(tokens: Sequence[str], row: Sequence[float], found: int, caption: str) -> Display:
    """fig-weights: what one query takes from every token; `found` is the place that must win."""
    row = list(row)
    assert max(range(len(row)), key=row.__getitem__) == found
    return bar_rows(
        [
            (shown(token), weight, "orange" if i == found else "blue")
            for i, (token, weight) in enumerate(zip(tokens, row))
        ],
        alt=f"The weight of each token for the query of the last one: {tokens[found].strip()} "
        f"{row[found]:.2f}, all others "
        "far less.",
        name="fig-weights",
        fmt=lambda weight: f"{weight:.2f}",
        caption=caption,
    )


def peak(run: Run, scale: float) -> float:
    """Largest weight of a row under another scale: its mean over layers, heads and the later half of the queries."""
    half = len(run.tokens) // 2
    rows = [attention_weights(c.arguments["q"], c.arguments["k"], scale)[:, half:] for c in run.calls["attention"]]
    return torch.stack([weights.amax(-1).mean() for weights in rows]).mean().item()


def largest_product(calls, group_size: int) -> float:
    """The largest q·k that a query may see, in all recorded calls of attention."""
    largest = 0.0
    for call in calls:
        q, k = call.arguments["q"], call.arguments["k"].repeat_interleave(group_size, dim=1)
        products = torch.einsum("qhd,khd->hqk", q, k)
        largest = max(largest, products[:, causal_mask(len(q), len(k))].max().item())
    return largest


def mask(run: Run, layer: int, head: int, count: int, caption: str) -> Display:
    """fig-mask: one head's weights for the first tokens, without and with the causal mask."""
    call = run.calls["attention"][layer].arguments
    kv = head // (call["q"].shape[1] // call["k"].shape[1])
    bare = (torch.einsum("qd,kd->qk", call["q"][:, head], call["k"][:, kv]) * call["scale"]).softmax(-1)
    future = ~causal_mask(count, count)
    assert bare[:count, :count][future].max() > 0.1, "without the mask, weight must lie on what is still to come"
    labels = [shown(token) for token in run.tokens[:count]]
    return heatmap(
        {
            "without the mask": bare[:count, :count].numpy(),
            "with it": run.maps[layer, head, :count, :count].masked_fill(future, math.nan).numpy(),
        },
        rows=labels,
        cols=labels,
        columns=2,
        low=0,
        high=1,
        alt="Two squares of weights for the first tokens. Without the mask, colour lies right of the "
        "diagonal; with it, only "
        "below.",
        name="fig-mask",
        caption=caption,
    )


# --- the block -------------------------------------------------------------------------------------------


def block_lengths(run: Run) -> dict[str, float]:
    """Euclidean lengths of the last token's vector on its way through block 0."""
    x0, x1, x2 = (run.streams[i, -1] for i in range(3))
    norms = [call.result[-1] for call in run.calls["rms_norm"][:2]]
    parts = {"x": x0, "n0": norms[0], "a": x1 - x0, "x1": x1, "n1": norms[1], "m": x2 - x1, "x2": x2}
    return {name: part.norm().item() for name, part in parts.items()}


def _block_scene(steps, first: str, width: float) -> Scene:
    wide = width > 500
    box, pitch, x = (168, 44, 64) if wide else (150, 58, 30)
    scene = Scene(width, 74 + pitch * len(steps))
    rail = 26 if wide else 12
    scene.text("in", rail - 8, 14, first, size=13, weight=600)
    scene.line("stream", rail, 24, rail, 62 + pitch * len(steps), stroke="purple", width=4, arrow=True)
    for i, (key, name, shape, note, color) in enumerate(steps):
        y = 34 + i * pitch
        plus = name == "+"
        if plus:
            scene.line(f"{key}-in", x + box / 2, y - 13, x + box / 2, y + 13, stroke="muted")
            scene.line(f"{key}-back", x + box / 2, y + 13, rail + 12, y + 13, stroke="muted", arrow=True)
            scene.circle(f"{key}-dot", rail, y + 13, 11, fill="paper", stroke="purple", stroke_width=2.5)
            scene.text(f"{key}-name", rail, y + 18, "+", size=16, anchor="middle", weight=700, fill="purple")
        else:
            if key in ("norm", "norm2"):
                scene.line(f"{key}-tap", rail, y + 13, x, y + 13, stroke="muted", arrow=True)
            else:
                scene.line(f"{key}-in", x + box / 2, y - (pitch - 28), x + box / 2, y - 1, stroke="muted", arrow=True)
            scene.rect(f"{key}-box", x, y, box, 27, fill=color, fill_opacity=0.16, stroke=color)
            scene.text(f"{key}-name", x + box / 2, y + 18, name, size=13, anchor="middle", weight=600)
        tx, ty = (x + box + 22, y + 18) if wide else (x + box + 12, y + 12)
        parts = shape.split("   ")
        scene.text(f"{key}-shape", tx, ty, shape if wide else parts[0], size=12, mono=True, fill="ink")
        note = parts[1] if len(parts) > 1 and not wide else note
        if note:
            nx, ny = (tx + 240, ty) if wide else (tx, ty + 16)
            scene.text(f"{key}-note", nx, ny, note, size=12, fill="muted")
    return scene


def block(run: Run, config, caption: str) -> Display:
    """fig-block: block 0 from top to bottom, with shapes and the length of the last token's vector."""
    n, d, inner = len(run.tokens), config.hidden_size, config.intermediate_size
    heads, kv_heads, width = config.num_heads, config.num_kv_heads, config.head_dim
    length = block_lengths(run)
    steps = [
        ("norm", "RMSNorm", f"[{n}, {d}]", f"length {length['n0']:.2f}", "green"),
        ("qkv", "W_Q, W_K, W_V", f"q [{n}, {heads}, {width}]   k, v [{n}, {kv_heads}, {width}]", "", "blue"),
        ("rope", "RoPE on q and k", "turned by position", "", "blue"),
        ("att", "attention", f"[{n}, {heads}, {width}]", "looks at other tokens", "orange"),
        ("out", "W_O", f"[{n}, {d}]", f"length {length['a']:.2f}", "blue"),
        ("add", "+", f"[{n}, {d}]", f"stream: length {length['x1']:.2f}", "purple"),
        ("norm2", "RMSNorm", f"[{n}, {d}]", f"length {length['n1']:.2f}", "green"),
        ("gate", "W_gate, W_up", f"twice [{n}, {inner}]", "", "blue"),
        ("act", "SiLU(gate) · up", f"[{n}, {inner}]", "", "gold"),
        ("down", "W_down", f"[{n}, {d}]", f"length {length['m']:.2f}", "blue"),
        ("add2", "+", f"[{n}, {d}]", f"stream: length {length['x2']:.2f}", "purple"),
    ]
    first = f"x  [{n}, {d}]   length of its last row, {shown(run.tokens[-1])}: {length['x']:.2f}"
    return diagram(
        _block_scene(steps, first, 700),
        narrow=_block_scene(steps, first, SLIM),
        alt="The block from top to bottom: norm, projections, RoPE, attention, output projection, addition to "
        "the stream; norm, "
        "gate and up projections, SiLU times up, down projection, addition to the stream. Beside each step "
        "its shape and the "
        "length of the last token's vector.",
        name="fig-block",
        caption=caption,
    )


def shapes(small: dict[str, list], big: dict[str, list], vocab_sizes: tuple[int, int]) -> list[tuple[str, str, str]]:
    """Rows of a table: the tensors of one block, in two recorded models."""

    def size(tensor):
        return "×".join(map(str, tensor.shape))

    def of(calls, vocab):
        q, k = calls["apply_rope"][0].result
        linear = [call.result for call in calls["linear"]]
        yield from (
            calls["rms_norm"][0].arguments["x"],
            q,
            k,
            calls["attention"][0].result,
            linear[3],
            linear[4],
            linear[6],
        )
        yield torch.empty(1, vocab, device="meta")

    names = ("x, from the embedding", "q", "k, and v", "mixed values of all heads", "after W_O", "gate, and up",
             "after W_down",
             "logits of the last position")  # fmt: skip
    columns = [[size(tensor) for tensor in of(calls, vocab)] for calls, vocab in zip((small, big), vocab_sizes)]
    return list(zip(names, *columns))


# --- the residual stream -----------------------------------------------------------------------------------


def watch(model, token_ids, places: Sequence[int] = (0,), positions=None) -> tuple[torch.Tensor, list[float]]:
    """The stream [2 L + 1, T, hidden], and for each place the share of the later half's attention that it takes."""
    with ops.record("rms_norm", "attention") as calls:
        model(token_ids, positions=positions)
    stream = torch.stack([call.arguments["x"] for call in calls if call.name == "rms_norm"])
    maps = [attention_weights(*(c.arguments[n] for n in ("q", "k", "scale"))) for c in calls if c.name == "attention"]
    later = torch.stack(maps)[:, :, len(token_ids) // 2 :].mean((0, 1, 2))
    return stream, [later[place].item() for place in places]


def stream(run: Run, odd: int, hump: range, caption: str) -> Display:
    """fig-stream: length of the residual stream by depth. `odd` is long after the blocks of `hump`, then no more."""
    lengths = run.streams.norm(dim=-1)  # [2 L + 1, T]
    depth = torch.arange(len(lengths)) / 2
    rest = lengths[:, [t for t in range(len(run.tokens)) if t not in (0, odd)]]
    after = [2 * layer for layer in hump]
    assert lengths[after, odd].max() > 4 * rest[after].max(), "the odd token must stand out"
    assert (lengths[2 * (hump[-1] + 2) :, odd] < 2 * rest[2 * (hump[-1] + 2) :].amax(1)).all(), "and come back"

    def draw(fig):
        ax = fig.subplots()
        ax.fill_between(depth, rest.amin(1), rest.amax(1), color=COLORS.blue, alpha=0.18, linewidth=0)
        ax.plot(depth, lengths[:, 0], color=COLORS.orange, label=f"first token, “{run.tokens[0]}”")
        ax.plot(depth, lengths[:, odd], color=COLORS.green, linestyle="--", label=f"“{run.tokens[odd]}”")
        ax.plot(depth, lengths[:, -1], color=COLORS.blue, label=f"last token, “{run.tokens[-1]}”")
        ax.plot([], [], color=COLORS.blue, alpha=0.3, linewidth=7, label="all others")
        ax.set_yscale("log")
        ax.set(xlabel="blocks passed", ylabel="length of the vector")
        ax.legend(loc="lower right")

    return show(
        draw,
        name="fig-stream",
        alt="Length of the residual stream by depth on a logarithmic axis. The first token jumps in blocks 2 "
        "and 11 and stays far "
        f"above the others until the last block. The token “{run.tokens[odd]}” jumps in block 2 as well, and "
        "is back among the "
        "others by block 11.",
        caption=caption,
    )


# --- RoPE ----------------------------------------------------------------------------------------------------


def _arrows(q: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Angles of query and key before rotation, pair by pair, and each pair's weight |q||k| / √D: [..., D/2] each."""
    (qa, qb), (ka, kb) = q.double().chunk(2, -1), k.double().chunk(2, -1)
    weight = torch.hypot(qa, qb) * torch.hypot(ka, kb) / math.sqrt(q.shape[-1])
    return torch.atan2(qb, qa), torch.atan2(kb, ka), weight


def dial_head(run: Run, frequencies: torch.Tensor, name: str, layer: int, head: int, query: int, key: int) -> dict:
    """One head for the dial: a query and the keys of all tokens up to it, checked against the scores of the model.

    ``q`` [D/2] and ``k`` [keys, D/2] are angles, ``weight`` [keys, D/2]; ``by_distance`` the score of `key` at 0 to 40.
    """
    before, after = run.calls["apply_rope"][layer].arguments, run.calls["attention"][layer].arguments
    kv = head // (before["q"].shape[1] // before["k"].shape[1])
    qs, ks, parts = _arrows(before["q"][query, head], before["k"][: query + 1, kv])
    turn, away = frequencies.double(), query - torch.arange(query + 1).double()
    scores = (parts * torch.cos(qs - ks + away[:, None] * turn)).sum(-1)
    real = after["k"][: query + 1, kv] @ after["q"][query, head] * after["scale"]
    assert (scores - real).abs().max() < 1e-3, "the dial must show what the model computes"
    at = [(parts[key] * torch.cos(qs - ks[key] + d * turn)).sum().item() for d in DISTANCES]
    lists = {"q": qs.tolist(), "k": ks.tolist(), "weight": parts.tolist()}
    return {"name": name, "m": query, "n": key, "by_distance": at} | lists


def _rounded(values):
    return [_rounded(v) for v in values] if isinstance(values, list) else round(values, 4)


def _dial_poster(head: dict, tokens: Sequence[str], frequencies: Sequence[float], width: float) -> Scene:
    """The dial at rest: sentence, arrows of the liveliest pair, and the score by distance."""
    wide = width > 500
    scene = Scene(width, 340 if wide else 420)
    y = _token_line(scene, head, tokens, frequencies, width)
    pair = max(range(len(frequencies)), key=lambda i: swing(head, frequencies, i))
    cx, cy, r = (120, y + 116, 88) if wide else (width / 2, y + 100, 78)
    scene.circle("rim", cx, cy, r, fill="surface", stroke="grid", stroke_width=1.5)
    for name, color, angle in (
        ("k", "orange", head["k"][head["n"]][pair] + head["n"] * frequencies[pair]),
        ("q", "blue", head["q"][pair] + head["m"] * frequencies[pair]),
    ):
        x, dy = math.cos(angle), -math.sin(angle)
        scene.line(f"arrow-{name}", cx, cy, cx + 0.86 * r * x, cy + 0.86 * r * dy, stroke=color, width=3.5, arrow=True)
        px, py = cx + (r + 13) * x, cy + (r + 13) * dy + 5
        scene.text(f"name-{name}", px, py, name, anchor="middle", fill=color, weight=700,
                   size=15)  # fmt: skip
    x, top, room, height = (270, y + 20, width - 290, 150) if wide else (8, y + 210, width - 16, 80)
    low, high = min(0, *head["by_distance"]), max(0.5, *head["by_distance"])
    points = [
        (x + d / 40 * room, top + height - (s - low) / (high - low) * height) for d, s in enumerate(head["by_distance"])
    ]
    path = "".join(f"{'L' if i else 'M'}{px:.1f} {py:.1f}" for i, (px, py) in enumerate(points))
    scene.path("curve", path, stroke="ink",
               width=1.5)  # fmt: skip
    px, py = points[head["m"] - head["n"]]
    scene.circle("dot", px, py, 6, fill="purple")
    scene.text("d-0", x, top + height + 18, "0", size=12, fill="muted")
    scene.text(
        "d-label", x + room, top + height + 18, "40 positions from key to query", size=12, fill="muted", anchor="end"
    )
    return scene


def _token_line(scene: Scene, head: dict, tokens: Sequence[str], frequencies: Sequence[float], width: float) -> float:
    """The sentence, each earlier token shaded by the score that the query gives it; returns the y below."""
    m = head["m"]
    scores = [
        sum(
            w * math.cos(q - k + (m - j) * f)
            for q, k, w, f in zip(head["q"], head["k"][j], head["weight"][j], frequencies)
        )
        for j in range(m + 1)
    ]
    low, high = min(scores), max(scores)
    x, y = 0.0, 0.0
    for i, token in enumerate(tokens):
        wide = 7.9 * len(shown(token)) + 12
        if x + wide > width:
            x, y = 0.0, y + 30
        shade = 0.04 + 0.8 * (scores[i] - low) / (high - low or 1) if i <= m else 0
        stroke = "blue" if i == m else "orange" if i == head["n"] else "grid"
        fill = "purple" if i <= m else "surface"
        scene.rect(f"token-{i}", x, y, wide, 25, fill=fill, fill_opacity=shade or None, stroke=stroke,
                   stroke_width=2 if stroke != "grid" else 1)  # fmt: skip
        scene.text(f"word-{i}", x + 6, y + 17, shown(token), size=13, mono=True, fill="ink" if i <= m else "muted")
        x += wide + 3
    return y + 30


def swing(head: dict, frequencies: Sequence[float], pair: int) -> float:
    """How much one pair changes the score of the key between distances 0 and 8."""
    w, q, k = head["weight"][head["n"]][pair], head["q"][pair], head["k"][head["n"]][pair]
    turns = [w * math.cos(q - k + d * frequencies[pair]) for d in range(9)]
    return max(turns) - min(turns)


def parts_of(head: dict, frequencies: Sequence[float], pair: int) -> list[float]:
    """What one pair adds to the score of each key that the query sees."""
    m, f = head["m"], frequencies[pair]
    return [w[pair] * math.cos(head["q"][pair] - k[pair] + (m - j) * f)
            for j, (k, w) in enumerate(zip(head["k"], head["weight"]))]  # fmt: skip


def rope_dial(run: Run, frequencies: Sequence[float], heads: Sequence[dict], caption: str) -> Display:
    """fig-dial: drag the arrows of a real query and key; the score they make, and that of every earlier token."""
    before, name, anything = (head["by_distance"] for head in heads)
    assert max(DISTANCES, key=before.__getitem__) == 1, "the first head looks for the word before"
    assert max(anything) - min(anything) < 0.5 * (max(before) - min(before)), "the last one hardly cares"
    tokens = [shown(token) for token in run.tokens]
    data = {"tokens": tokens, "frequencies": [round(f, 9) for f in frequencies],
            "heads": [{key: _rounded(value) if isinstance(value, list) else value for key, value in head.items()
                       if key != "by_distance"} for head in heads]}  # fmt: skip
    return widget(
        "rope-dial",
        data,
        alt="A sentence, and a dial with the arrows of one pair of a real query and key; drag the arrows, or "
        "turn both together; "
        "the score they make, and that of every earlier token",
        text_equivalent=[
            f"Each pair of channels is an arrow; the score is the sum over {len(frequencies)} pairs of the "
            "lengths times the "
            "cosine of the angle between query arrow and key arrow.",
            "Moving all positions together turns both arrows and leaves every score as it is.",
            "Moving the query alone changes its score with every earlier token.",
            f"{heads[0]['name']}: score {signed(before[0])} at distance 0, {signed(before[1])} at 1, "
            f"{signed(before[2])} at 2, "
            f"{signed(before[4])} at 4.",
            f"{heads[1]['name']}: {signed(name[1])} at distance 1, {signed(name[12])} at 12, {signed(name[40])} at 40.",
            f"{heads[2]['name']}: between {signed(min(anything))} and {signed(max(anything))} at every "
            "distance up to 40.",
        ],
        poster=_dial_poster(heads[0], run.tokens, frequencies, WIDE),
        narrow=_dial_poster(heads[0], run.tokens, frequencies, SLIM),
        name="fig-dial",
        caption=caption,
    )


def turns(frequencies: torch.Tensor) -> list[float]:
    """Positions that each pair needs for one turn."""
    return (2 * math.pi / frequencies).tolist()


def waves(models: dict[str, list[float]], trained: int, caption: str) -> Display:
    """fig-waves: positions for one turn, pair by pair, in three models; the last is the second, stretched."""
    styles = ((COLORS.blue, "-"), (COLORS.orange, "-"), (COLORS.orange, "--"))

    def draw(fig):
        ax = fig.subplots()
        for (name, wave), (color, style) in zip(models.items(), styles):
            ax.plot([i / len(wave) for i in range(len(wave))], wave, style, color=color, label=name)
        ax.axhline(trained, color=COLORS.muted, linewidth=1, linestyle=":")
        ax.text(0, trained * 1.25, f"{trained:,} tokens", color=COLORS.muted)
        ax.set_yscale("log")
        ax.set(xlabel="pair, as a share of the head", ylabel="positions for one turn")
        ax.legend(loc="lower right")

    return show(
        draw,
        name="fig-waves",
        alt="Positions for one turn by pair, on a logarithmic axis: straight lines from 6 to hundreds of "
        "thousands; the line of "
        "Llama 3.1 leaves that of Llama 3 above about 2,000 and runs parallel, eight times higher.",
        caption=caption,
    )


# --- heads ---------------------------------------------------------------------------------------------------


def groups(run: Run, layer: int, group_size: int, caption: str) -> Display:
    """fig-groups: what every query head of a layer takes for the last token."""
    heads = run.maps.shape[1]
    return heatmap(
        run.maps[layer, :, -1].numpy(),
        rows=[f"Q{h} K{h // group_size}" for h in range(heads)],
        cols=[shown(token) for token in run.tokens],
        low=0,
        high=1,
        alt=f"{heads} rows of weights over the tokens: what each query head of layer {layer} takes for the last token.",
        name="fig-groups",
        caption=caption,
    )


def groupings(maps: torch.Tensor, group_size: int) -> tuple[float, int, int, float]:
    """Are heads that share keys alike? Mean correlation of two heads of a group, for every way to group them.

    Returns the model's own mean, its place among all groupings (1 is the most alike), how many there are, the median.
    """
    heads, n = maps.shape[1], maps.shape[-1]
    below = causal_mask(n, n)
    below[:, 0] = False  # without the first column, which would decide all
    flat = maps[:, :, below]
    flat = flat - flat.mean(-1, keepdim=True)
    flat = flat / flat.norm(dim=-1, keepdim=True)
    alike = (flat @ flat.transpose(1, 2)).mean(0)

    def within(partition) -> float:
        pairs = [pair for group in partition for pair in itertools.combinations(sorted(group), 2)]
        return sum(alike[pair].item() for pair in pairs) / len(pairs)

    def partitions(left: tuple[int, ...]):
        if not left:
            yield ()
            return
        for rest in itertools.combinations(left[1:], group_size - 1):
            group = (left[0], *rest)
            for others in partitions(tuple(h for h in left if h not in group)):
                yield (group, *others)

    ranked = sorted(partitions(tuple(range(heads))), key=within, reverse=True)
    own = tuple(tuple(range(h, h + group_size)) for h in range(0, heads, group_size))
    return within(own), ranked.index(own) + 1, len(ranked), within(ranked[len(ranked) // 2])


def _wall_poster(run: Run, picked: tuple[int, int], width: float) -> Scene:
    """All heads as squares shaded by what they give the first token, and one head's map."""
    layers, heads, n = run.maps.shape[0], run.maps.shape[1], len(run.tokens)
    scene = Scene(width, 10)
    cell = (width - 4) / layers
    first = run.maps[:, :, n // 2 :, 0].mean(-1)
    heat_cells(scene, "wall", 0, 22, first.T.numpy(), cell, low=0, high=1)
    scene.text(
        "wall-title", 0, 14, "each square a head, each column a layer: share of the first token", size=12, fill="muted"
    )
    layer, head = picked
    scene.rect(
        "picked", layer * cell - 1, 22 + head * cell - 1, cell, cell, fill="none", stroke="orange", stroke_width=2
    )
    top = 22 + heads * cell + 34
    scene.text("title", 0, top - 10, f"layer {layer}, head {head}", size=14, weight=600)
    left, side = 64, min(22.0, (width - 76) / n)
    heat_cells(
        scene,
        "map",
        left,
        top,
        run.maps[layer, head].masked_fill(~causal_mask(n, n), math.nan).numpy(),
        side,
        low=0,
        high=1,
    )
    for i, token in enumerate(run.tokens):
        scene.text(
            f"row-{i}",
            left - 8,
            top + side * (i + 0.5) + 4,
            shown(token),
            size=12,
            anchor="end",
            mono=True,
            fill="muted",
        )
    scene.height = top + side * n + 8
    return scene


def _packed(maps: torch.Tensor) -> str:
    """Lower triangles of [L, H, T, T] as bytes, 255 for a weight of 1, row by row, in base64."""
    n = maps.shape[-1]
    rows = np.concatenate([maps[:, :, i, : i + 1].numpy().reshape(-1, i + 1) for i in range(n)], axis=1)
    return base64.b64encode(np.clip(np.rint(rows * 255), 0, 255).astype(np.uint8).tobytes()).decode()


def wall(runs: dict[str, Run], named: Sequence[tuple[str, int, int, str]], caption: str) -> Display:
    """fig-maps: every head of the model as a thumbnail to click, for any of the recorded sentences.

    `named` holds heads with a habit that can be named: (sentence, layer, head, habit).
    """
    first = next(iter(runs))
    layers, heads = runs[first].maps.shape[:2]
    data = {
        "layers": layers,
        "heads": heads,
        "sentences": [{"name": name, "tokens": [shown(t) for t in run.tokens], "maps": _packed(run.maps)}
                      for name, run in runs.items()],
        "named": [{"sentence": list(runs).index(where), "layer": layer, "head": head, "habit": habit}
                  for where, layer, head, habit in named],
    }  # fmt: skip

    def in_words(where, layer, head, habit):
        run = runs[where]
        top = run.maps[layer, head, -1]
        best = int(top.argmax())
        return (
            f"{where}: layer {layer}, head {head} {habit}. For the last token its largest weight is {top[best]:.2f}, "
            f"on “{shown(run.tokens[best])}” at position {best}."
        )

    start = (named[0][1], named[0][2])
    return widget(
        "maps",
        data,
        alt=f"A wall of {layers * heads} attention maps, one a head; the one that is picked, large",
        text_equivalent=[
            f"{layers} layers of {heads} heads; a row of a map is a query, a column a key, full colour a weight of 1.",
            *(in_words(*entry) for entry in named),
            *(
                f"{name}: all heads together give the first token {first_share(run):.0%} of their attention in the "
                "later half of the sentence."
                for name, run in runs.items()
            ),
        ],
        poster=_wall_poster(runs[first], start, WIDE),
        narrow=_wall_poster(runs[first], start, SLIM),
        name="fig-maps",
        caption=caption,
    )  # fmt: skip


def first_share(run: Run) -> float:
    """Share of the later half's attention that lies on the first token, over all heads."""
    return run.maps[:, :, len(run.tokens) // 2 :, 0].mean().item()


def previous_token_score(run: Run, layer: int, head: int) -> float:
    """Mean weight that a head gives to the token just before."""
    return run.maps[layer, head].diagonal(-1).mean().item()


def induction_score(run: Run, layer: int, head: int, period: int) -> float:
    """Mean weight, in a text that repeats itself after `period` tokens, on the token after the earlier copy."""
    n = len(run.tokens)
    return torch.stack([run.maps[layer, head, i, i - period + 1] for i in range(period, n)]).mean().item()


def without_key(model, ids, position: int, layer: int) -> torch.Tensor:
    """The last token's logits, one key hidden from it in one layer."""
    seen = itertools.count()

    def attend(q, k, v, scale, window=None):
        out = ops.attention(q, k, v, scale)
        if next(seen) == layer:
            rest = [i for i in range(len(k)) if i != position]
            out = torch.cat([out[:-1], ops.attention(q[-1:], k[rest], v[rest], scale)])
        return out

    with ops.use(attention=attend):
        return model(ids)[-1]


def hidden(tokens: Sequence[str], lead: Sequence[float], mary: int, caption: str) -> Display:
    """fig-hide: Mary's lead over John with one token hidden from the last one; hiding Mary must cost most."""
    assert min(range(len(lead)), key=lead.__getitem__) == mary
    others = min(value for i, value in enumerate(lead) if i != mary)
    return bar_rows(
        [
            (shown(token), max(value, 0), "orange" if i == mary else "blue")
            for i, (token, value) in enumerate(zip(tokens, lead))
        ],
        alt=f"Mary's lead over John with one token hidden from the last one: {lead[mary]:.1f} without Mary, at least "
        f"{others:.1f} without any other.",
        name="fig-hide",
        fmt=lambda value: f"{value:.1f}",
        caption=caption,
    )


def sink(rows: Sequence[tuple[str, float, str]], caption: str) -> Display:
    """fig-sink: share of the later tokens' attention, trial by trial."""
    return bar_rows(
        rows,
        alt="Share of the later tokens' attention. "
        + "; ".join(f"{label}: {value:.2f}" for label, value, _ in rows)
        + ".",
        name="fig-sink",
        fmt=lambda value: f"{value:.2f}",
        caption=caption,
    )


# --- the feed-forward part, and the head ----------------------------------------------------------------------


def count_for(values: torch.Tensor, part: float = 0.9) -> int:
    """How many of the largest entries hold this part of the squared length."""
    energy = values.square().sort(descending=True).values.cumsum(0)
    return int((energy < part * energy[-1]).sum()) + 1


def early_ranks(run: Run, model, ids: dict[str, int]) -> dict[str, torch.Tensor]:
    """The logit lens: rank of each id, 1 the best, when the last token's stream is read after every half block."""
    early = rms_norm(run.streams[:, -1], model.final_norm, model.config.rms_norm_eps) @ model.head.T
    return {name: (early > early[:, [i]]).sum(-1) + 1 for name, i in ids.items()}


def lens(rank: dict[str, torch.Tensor], layer: int, vocab_size: int, caption: str) -> Display:
    """fig-lens: ranks by depth; up to `layer` the second name is ahead, and its attention brings the first one up."""
    (first, ours), (second, theirs) = rank.items()
    jump = 2 * layer
    assert (theirs[: jump + 1] < ours[: jump + 1]).all()
    assert ours[jump + 1] < ours[jump] / 4
    assert ours[-1] == 1
    depth = torch.arange(len(ours)) / 2

    def draw(fig):
        ax = fig.subplots()
        ax.axvspan(layer, layer + 0.5, color=COLORS.grid, linewidth=0)
        for name, values, color in ((first, ours, COLORS.orange), (second, theirs, COLORS.blue)):
            ax.plot(depth, values, color=color, label=f"“ {name}”")
        ax.set_yscale("log")
        ax.invert_yaxis()
        ax.set(xlabel="blocks passed", ylabel=f"rank among {vocab_size:,} tokens")
        ax.text(layer - 0.3, 4500, f"attention\nof layer {layer}", color=COLORS.muted, ha="right", va="center")
        ax.legend(loc="upper left")

    return show(
        draw,
        name="fig-lens",
        alt=f"Rank of {first} and {second} when the stream is read early. {first} stays near rank 1,000, jumps "
        "at the attention of "
        f"layer {layer}, and becomes first at the end.",
        caption=caption,
    )


def only_two(weight: torch.Tensor, count: int = 2) -> tuple[torch.Tensor, list[int]]:
    """A norm's weight with all but the `count` entries furthest from its median set to it; and which those are."""
    median = weight.median()
    few = (weight - median).abs().topk(count).indices
    flat = torch.full_like(weight, median.item())
    flat[few] = weight[few]
    return flat, few.tolist()
