"""Figures of chapter 04: the race, the time of a pass, what a changed word moves, what a cache holds, powers of n."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from time import perf_counter

import numpy as np
import torch

from course.book.display import Display
from course.book.figures import COLORS, diagram, heatmap, show
from course.book.svg import Scene
from course.book.traces import widget


@dataclass(frozen=True)
class Step:
    """One new token: its id, the seconds it took, and the counters so far."""

    token_id: int
    seconds: float
    counters: object


def take_turns(runners: Sequence, counters: Sequence, num_tokens: int) -> list[list[Step]]:
    """Each generator writes a token in turn, so that whatever else the computer does slows all alike."""
    steps = [[] for _ in runners]
    for _ in range(num_tokens):
        for runner, count, done in zip(runners, counters, steps):
            start = perf_counter()
            token_id = next(runner)
            done.append(Step(token_id, perf_counter() - start, replace(count)))
    return steps


def totals(steps: list[Step]) -> dict[str, list]:
    """Running totals after each token: rows, scores and seconds, as the figure wants them."""
    clock = np.cumsum([step.seconds for step in steps])
    return {
        "rows": [step.counters.rows_projected for step in steps],
        "pairs": [step.counters.score_pairs_masked for step in steps],
        "seconds": [round(float(seconds), 4) for seconds in clock],
    }


def _poster(data: dict, width: float) -> Scene:
    """The race when it is over: what paper shows, and a page without scripts."""
    side = 250 if width > 600 else 152
    last = len(data["naive"]["rows"])
    scene = Scene(width, side + 76)
    for name, title, tint, x in (
        ("naive", "without a cache", "orange", 0),
        ("cached", "with a cache", "blue", width - side),
    ):
        total = data[name]
        scene.text(f"{name}-title", x, 16, title, size=14, weight=650)
        scene.path(f"{name}-field", f"M0 0V{side}H{side}z", x=x, y=26, stroke="grid", fill="surface")
        if name == "naive":
            scene.path(f"{name}-done", f"M0 0V{side}H{side}z", x=x, y=26, fill=tint, fill_opacity=0.45)
        else:
            scene.path(f"{name}-done", f"M0 0L{side} {side}", x=x, y=26, stroke=tint, width=2.5)
        scene.text(f"{name}-rows", x + side, 48, f"{total['rows'][last - 1]:,}", size=20, weight=650, anchor="end")
        scene.text(f"{name}-word", x + side, 66, "rows projected", size=12, anchor="end", fill="muted")
        scene.text(f"{name}-clock", x, side + 50, f"{total['pairs'][last - 1]:,} scores", size=13, fill="muted")
        scene.text(f"{name}-seconds", x, side + 70, f"{total['seconds'][last - 1]:.0f} s", size=13, fill="muted")
    return scene


def race(naive: list[Step], cached: list[Step], prediction: str, caption: str) -> Display:
    """fig-race: the triangle of recomputation against one new row, with the reader's own three guesses inside."""
    assert [step.token_id for step in naive] == [step.token_id for step in cached], (
        "in fp32 both must write the same text"
    )
    data = {"naive": totals(naive), "cached": totals(cached)}
    a, b = data["naive"], data["cached"]
    for one in (a, b):
        assert all(before <= after for values in one.values() for before, after in pairwise(values)), "totals only grow"
    behind = int(np.searchsorted(a["seconds"], b["seconds"][-1], side="right"))
    assert behind < len(naive), "the cached one is done first"

    def sentence(n):
        return (
            f"Token {n}: {a['rows'][n - 1]:,} rows without a cache, {b['rows'][n - 1]:,} with one; "
            f"{a['pairs'][n - 1]:,} scores against {b['pairs'][n - 1]:,}; {a['seconds'][n - 1]:.1f} s against "
            f"{b['seconds'][n - 1]:.1f} s."
        )

    return widget(
        "kv-race",
        {**data, "prediction": prediction},
        alt="Two generators side by side: a triangle of rows without a cache, one new row each time with it",
        text_equivalent=[
            "Without a cache, the pass for token n projects n rows: drawn under each other, the passes fill a "
            "triangle.",
            "With a cache, each pass projects one row: only the diagonal of the same triangle is computed.",
            *[sentence(n) for n in (1, 10, 50, 100, len(naive)) if n <= len(naive)],
            f"In a race by the clock, the one with a cache is done when the one without has written {behind} tokens.",
        ],
        poster=_poster(data, 680),
        narrow=_poster(data, 336),
        name="fig-race",
        caption=caption,
    )


def typical_seconds(sizes: Sequence[int], run, turns: int = 5) -> dict[int, float]:
    """Median seconds of `run(size)` for each size, sizes taking turns."""
    rounds = []
    for _ in range(turns):
        line = []
        for size in sizes:
            start = perf_counter()
            run(size)
            line.append(perf_counter() - start)
        rounds.append(line)
    return dict(zip(sizes, map(median, zip(*rounds))))


def reading_seconds(weights: Sequence[torch.Tensor], turns: int = 5) -> float:
    """Least time to read every weight once and do next to nothing with it."""

    def read():
        start = perf_counter()
        for weight in weights:
            weight.sum()
        return perf_counter() - start

    return min(read() for _ in range(turns))


def passes(naive: list[Step], cached: list[Step], typical: dict[int, float], caption: str) -> Display:
    """fig-passes: the time of every pass of the race against the rows in it."""
    last, unit, sizes = len(naive), 1000, list(typical)

    def draw(fig):
        ax = fig.subplots()
        ax.plot(
            range(1, last + 1),
            [unit * s.seconds for s in naive],
            ".",
            ms=4,
            color=COLORS.orange,
            label="without a cache",
        )
        ax.plot([1] * last, [unit * s.seconds for s in cached], ".", ms=4, color=COLORS.blue,
                label=f"with a cache: {last} passes")  # fmt: skip
        ax.plot(
            sizes, [unit * typical[n] for n in sizes], "o", ms=6, mfc="none", color=COLORS.ink, label="measured alone"
        )
        ax.plot(
            [1, last],
            [unit * typical[1], unit * typical[1] * last],
            ls=":",
            color=COLORS.muted,
            label="if rows cost alike",
        )
        top = unit * np.quantile([s.seconds for s in naive], 0.98) * 1.25
        ax.set(xlabel="rows in the pass", ylabel="ms", ylim=(0, top), xlim=(-4, last + 4))
        ax.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=2 if fig.get_figwidth() > 4 else 1)

    return show(
        draw,
        alt="Time of a pass against its rows: it rises far more slowly than in proportion. All passes with a "
        "cache stand at "
        "one row.",
        name="fig-passes",
        caption=caption,
    )


def news(
    causal: torch.Tensor, both_ways: torch.Tensor, layers: Sequence[int], words: Sequence[str], caption: str
) -> Display:
    """fig-moved: how far keys and values move when the last word changes, with and without a mask: [layers, tokens]."""
    assert causal[:, :-1].max() == 0, "with the mask, earlier tokens do not move at all"
    assert both_ways[0, :-1].max() == 0, "layer 0 is made before anything has looked at anything"
    assert both_ways[1:, :-1].min() > 0, "without a mask every later layer has heard the news"
    layers = list(layers)
    return heatmap(
        {
            "causal mask": causal[layers].T.clamp(max=1).numpy(),
            "no mask": both_ways[layers].T.clamp(max=1).numpy(),
        },
        rows=words,
        cols=[str(layer) for layer in layers],
        columns=2,
        high=1.0,
        labels=("unmoved", "by its own length"),
        alt="Two maps of tokens by layers. With the mask only the changed token's row is coloured. Without it "
        "every row is, "
        "from layer 1 on.",
        name="fig-moved",
        caption=caption,
    )


def triangles(maps: dict[str, torch.Tensor], words: Sequence[str], caption: str) -> Display:
    """fig-alpha: attention weights of a few heads, [n, n] each, what the mask removes left out."""
    n = len(words)
    hidden = torch.ones(n, n, dtype=torch.bool).triu(1)
    for weights in maps.values():
        assert weights[hidden].abs().max() == 0
        assert torch.allclose(weights.sum(-1), torch.ones(n), atol=1e-4)
    return heatmap(
        {title: weights.masked_fill(hidden, math.nan).numpy() for title, weights in maps.items()},
        rows=[f"t{i} {word}" for i, word in enumerate(words)],
        cols=[f"t{i}" for i in range(n)],
        columns=3,
        high=1.0,
        alt=f"{len(maps)} lower triangles of attention weights, {n} by {n}.",
        name="fig-alpha",
        caption=caption,
    )


def bytes_held(cache) -> list[int]:
    """Bytes of the keys and values that a cache holds, layer by layer; memory taken and not used is left out."""
    return [cache.keys(layer).nbytes + cache.values(layer).nbytes for layer in range(cache.storage.shape[1])]


def _held_scene(held: Sequence[Sequence[int]], titles: Sequence[str], width: float, columns: int) -> Scene:
    """A panel for each pass: one thin bar for each layer, as long as its bytes, what the pass added at its end."""
    gap, bar, top = 22, 5, 62
    side = (width - gap * (columns - 1)) / columns
    unit, tall = side / max(held[-1]), bar * len(held[0])
    scene = Scene(width, -(-len(held) // columns) * (top + tall + 30) - 20)
    for i, (now, title) in enumerate(zip(held, titles)):
        x, y = (i % columns) * (side + gap), (i // columns) * (top + tall + 30)
        before = held[i - 1] if i else [0] * len(now)
        scene.text(f"title-{i}", x, y + 14, title, size=13, weight=650)
        scene.text(f"layer-{i}", x, y + 33, f"{now[0]:,} bytes a layer", size=13, fill="muted")
        scene.text(f"sum-{i}", x, y + 51, f"{sum(now):,} in all", size=13, fill="muted")
        for name, tint, opacity, ends in (
            ("old", "blue", 0.45, list(zip([0] * len(now), before))),
            ("new", "orange", 0.9, list(zip(before, now))),
        ):
            d = "".join(
                f"M{unit * left:.4g} {bar * layer}H{unit * right:.4g}v{bar - 1}H{unit * left:.4g}z"
                for layer, (left, right) in enumerate(ends)
                if right > left
            )
            if d:
                scene.path(f"{name}-{i}", d, x=x, y=y + top, fill=tint, fill_opacity=opacity)
    return scene


def held(passes: Sequence[Sequence[int]], tokens: Sequence[str], capacity: int, caption: str) -> Display:
    """fig-held: the bytes that each layer of a cache holds after each pass; `tokens` are what the passes chose."""
    assert len(passes) == len(tokens), "a token for each pass"
    assert all(len(set(layers)) == 1 for layers in passes), "after a whole pass every layer holds as much"
    added = {after[0] - before[0] for before, after in pairwise(passes)}
    assert len(added) == 1, "each decode step adds as much as the one before"
    step, layers = added.pop(), len(passes[0])
    sizes = [one[0] // step for one in passes]
    assert all(one[0] == step * size for one, size in zip(passes, sizes)), "the prompt takes as much a token"
    titles = [f"{size} tokens held" for size in sizes]
    return diagram(
        _held_scene(passes, titles, 700, len(passes)),
        narrow=_held_scene(passes, titles, 336, 2),
        alt=f"{len(passes)} panels of {layers} bars, a bar for each layer, all of one length. "
        + " ".join(
            f"After the pass that chose {token!r}, {size} tokens: {one[0]:,} bytes in each layer, {sum(one):,} in all."
            for size, token, one in zip(sizes, tokens, passes)
        )
        + f" Each new token adds {step:,} bytes to each layer, {step * layers:,} in all. "
        f"Room is taken for {capacity} tokens.",
        name="fig-held",
        caption=caption,
    )


def powers(naive: list[Step], cached: list[Step], caption: str) -> Display:
    """fig-powers: rows and scores so far on logarithmic axes; their slopes must be 3, 2, 2 and 1."""
    last = len(naive)
    n = np.arange(1, last + 1)
    curves = {
        "scores, without": ([s.counters.score_pairs_masked for s in naive], COLORS.orange, "-"),
        "scores, with": ([s.counters.score_pairs_masked for s in cached], COLORS.blue, "-"),
        "rows, without": ([s.counters.rows_projected for s in naive], COLORS.orange, "--"),
        "rows, with": ([s.counters.rows_projected for s in cached], COLORS.blue, "--"),
    }
    slopes = {name: math.log2(values[last - 1] / values[last // 2 - 1]) for name, (values, _, _) in curves.items()}
    assert [round(slope) for slope in slopes.values()] == [3, 2, 2, 1]

    def draw(fig):
        ax = fig.subplots()
        for name, (values, color, style) in curves.items():
            width = 2.2 if style == "--" else 4.5 if name == "scores, with" else 2
            ax.plot(n, values, style, lw=width, color=color, label=f"{name}: slope {slopes[name]:.1f}")
        ax.set(xscale="log", yscale="log", xlabel="tokens written", ylabel="so far")
        ax.legend(loc="upper left")

    return show(
        draw,
        alt="Counters against tokens on logarithmic axes: four lines with slopes near three, two, two and one.",
        name="fig-powers",
        caption=caption,
    )
