"""The front page's figure: what a real model does from Enter to the answer, recorded pass by pass, with its clock.

For each prompt a greedy answer is recorded, and from each of its tokens a second one: what the model would have
written had it taken its second choice there. The page (``static/enter.js``) lets the reader choose both.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

import torch

from course.book.display import Display
from course.book.svg import Scene, text_width
from course.book.traces import widget
from llm_internals.kv_cache import KVCache

CHOICES = 5  # likeliest next tokens shown
RUNS = 3  # of each answer; a pass counts with its median time
SLOWER = 8  # the page plays this many times slower than the machine ran


@dataclass(frozen=True)
class Pass:
    """One forward pass: rows of the cache after it, milliseconds, and the likeliest next tokens."""

    rows: int
    ms: float
    top: tuple[tuple[str, float], ...]

    @property
    def choice(self) -> str:
        return self.top[0][0]


@dataclass(frozen=True)
class Recording:
    """A prompt, its pieces, the passes of its answer, and for each but the last what the second choice led to."""

    name: str
    prompt: str
    ids: tuple[int, ...]
    pieces: tuple[str, ...]
    passes: tuple[Pass, ...]
    branches: tuple[tuple[Pass, ...], ...]

    @property
    def answer(self) -> str:
        return "".join(step.choice for step in self.passes)

    @property
    def ratio(self) -> float:
        """How many times longer the first pass takes than the median of the others."""
        return self.passes[0].ms / statistics.median(step.ms for step in self.passes[1:])


def _step(model, tokenizer, feed, cache):
    """One pass over the ids `feed`: (milliseconds, ids of the likeliest next tokens, their words and shares)."""
    start = time.perf_counter()
    logits = model(torch.tensor(feed), cache, last_only=True)[-1]
    ms = 1000 * (time.perf_counter() - start)
    top = torch.softmax(logits.double(), -1).topk(CHOICES)
    ids = top.indices.tolist()
    return ms, ids, tuple((tokenizer.decode([i]), p) for i, p in zip(ids, top.values.tolist()))


def record(model, tokenizer, name: str, prompt: str, new_tokens: int) -> Recording:
    """Run the model on `prompt` for `new_tokens` passes, `RUNS` times, and once from each second choice."""
    ids = tokenizer.encode(prompt)
    clocks: list[list[float]] = [[] for _ in range(new_tokens)]
    for _ in range(RUNS):
        cache = KVCache.for_model(model, len(ids) + new_tokens)
        feed, steps = ids, []
        for clock in clocks:
            ms, chosen, top = _step(model, tokenizer, feed, cache)
            clock.append(ms)
            steps.append((cache.seq_len, chosen, top))
            feed = chosen[:1]
    passes = tuple(Pass(rows, statistics.median(clock), top) for (rows, _, top), clock in zip(steps, clocks))
    branches = []
    for n in reversed(range(new_tokens - 1)):  # the cache is cut back to each fork in turn
        cache.truncate(steps[n][0])
        feed, branch = steps[n][1][1:2], []
        for _ in range(n + 1, new_tokens):
            ms, chosen, top = _step(model, tokenizer, feed, cache)
            branch.append(Pass(cache.seq_len, ms, top))
            feed = chosen[:1]
        branches.append(tuple(branch))
    pieces = tuple(tokenizer.decode([i]) for i in ids)
    return Recording(name, prompt, tuple(ids), pieces, passes, tuple(reversed(branches)))


def shown(text: str) -> str:
    """A token with its blanks and line ends visible."""
    return text.replace(" ", "␣").replace("\n", "⏎")


def cut(pieces, most: int = 14) -> list[str]:
    """The pieces as drawn: of a long prompt the first and the last, and how many stand between."""
    pieces = [shown(piece) for piece in pieces]
    if len(pieces) <= most:
        return pieces
    head, tail = most // 3, most - most // 3 - 1
    return [*pieces[:head], f"… {len(pieces) - head - tail} more …", *pieces[-tail:]]


def _poster(recording: Recording, width: int) -> Scene:
    """The first answer after its last pass, for paper and for a page without scripts."""
    scene = Scene(width, 330 if width > 500 else 390)
    x, y = 1.0, 4.0
    answer = [(shown(step.choice), "orange") for step in recording.passes]
    for n, (text, fill) in enumerate([*((piece, "blue") for piece in cut(recording.pieces)), *answer]):
        room = text_width(text, 13, mono=True) + 10
        if x + room > width - 1:
            x, y = 1.0, y + 30
        scene.rect(f"b{n}", x, y, room, 25, fill=fill, fill_opacity=0.2, stroke=fill)
        scene.text(f"t{n}", x + 5, y + 17, text, size=13, mono=True)
        x += room + 4
    top = y + 58
    total = sum(step.ms for step in recording.passes)
    scene.text("clock", 1, top, f"{total:.0f} ms since Enter, one bar a pass", size=13, fill="muted")
    x, scale = 1.0, (width - 2 - 2 * len(recording.passes)) / total
    for n, step in enumerate(recording.passes):
        scene.rect(f"c{n}", x, top + 8, step.ms * scale, 24, fill="green" if n else "blue", fill_opacity=0.75)
        x += step.ms * scale + 2
    last = recording.passes[-1]
    scene.text("cache", 1, top + 62, f"KV cache: {last.rows} rows in each layer", size=13, fill="muted")
    pitch = min(26.0, (width - 2) / last.rows)
    for n in range(last.rows):
        scene.rect(f"r{n}", 1 + n * pitch, top + 70, max(1, pitch - 2), 20, fill="blue", fill_opacity=0.75)
    for n, (text, p) in enumerate(last.top):
        y = top + 108 + 28 * n
        scene.text(f"w{n}", 110, y + 16, shown(text), size=13, mono=True, anchor="end")
        scene.rect(f"p{n}", 120, y + 2, max(2, p * (width - 200)), 19, fill="faint" if n else "orange")
        scene.text(f"s{n}", 128 + max(2, p * (width - 200)), y + 16, f"{p:.0%}", size=13, fill="muted")
    return scene


def figure(recordings, num_layers: int, caption: str) -> Display:
    """The figure over these recordings, the first one shown first."""

    def packed(steps):
        return [[step.rows, round(step.ms, 1), [[t, round(p, 4)] for t, p in step.top]] for step in steps]

    data = {
        "layers": num_layers,
        "slower": SLOWER,
        "prompts": [
            {
                "name": item.name,
                "pieces": [shown(piece) for piece in item.pieces],
                "cut": cut(item.pieces),
                "ids": list(item.ids),
                "characters": len(item.prompt),
                "passes": packed(item.passes),
                "branches": [packed(branch) for branch in item.branches],
            }
            for item in recordings
        ],
    }
    words = [
        f"“{item.prompt}”: {len(item.ids)} tokens. Prefill takes {item.passes[0].ms:.0f} ms, {item.ratio:.1f} times a "
        f"decode step. The answer: “{item.answer.strip()}”. Had the model taken its second choice at once, "
        f"“{item.passes[0].top[1][0].strip()}”, it would have gone on “"
        f"{''.join(step.choice for step in item.branches[0]).strip()}”."
        for item in recordings
    ]
    return widget(
        "enter",
        data,
        alt="A language model answers a prompt: its tokens, the time of each pass, the cache, the likeliest next token",
        text_equivalent=words,
        caption=caption,
        name="fig-enter",
        poster=_poster(recordings[0], 680),
        narrow=_poster(recordings[0], 336),
    )
