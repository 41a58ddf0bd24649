"""Figures of chapter 01: strips of tokens, what a training text teaches, four vocabularies and their bill."""

from __future__ import annotations

import unicodedata

from course.book import vocabularies
from course.book.display import Display
from course.book.figures import COLORS, show, token_strip
from course.book.prose import counted, readable
from course.book.svg import Scene
from course.book.traces import widget

_SLIM, _WIDE = 336, 680


def _metrics(width: float) -> tuple[float, float, float]:
    """Width of a column, height of a line, size of the letters: the twin of `metrics` in static/bpe.js."""
    return (12, 38, 19) if width > 500 else (8, 27, 13)


def pieces(tokenizer, text: str) -> list[str]:
    """The tokens of a text, readable."""
    return [readable(tokenizer.id_to_bytes[i]) for i in tokenizer.encode(text)]


def mama(tokenizer, english: str, russian: str, caption: str) -> Display:
    """fig-mama: one meaning in two languages, cut into tokens."""
    counts = [len(tokenizer.encode(text)) for text in (english, russian)]
    return token_strip(
        [("English", pieces(tokenizer, english)), ("Russian", pieces(tokenizer, russian))],
        alt=f"The English line in {counts[0]} pieces, the Russian one in {counts[1]}.",
        name="fig-mama",
        caption=caption,
    )


def growth(sizes: list[int], curves: dict[str, list[float]], caption: str) -> Display:
    """fig-growth: bytes per token against merges learnt, one curve a text."""

    def draw(fig):
        ax = fig.subplots()
        for (label, values), color in zip(curves.items(), (COLORS.blue, COLORS.green, COLORS.orange)):
            ax.plot(sizes, values, marker="o", markersize=4, label=label, color=color)
        ax.set_xscale("symlog", linthresh=32)
        ax.set_xticks([0, 64, 256, 1024], ["0", "64", "256", "1,024"])
        ax.set(xlabel="merges learnt from English", ylabel="bytes per token", ylim=(0.8, None))
        ax.legend()

    return show(
        draw,
        alt="Bytes per token against merges: both English curves rise, the Russian one stays near one.",
        name="fig-growth",
        caption=caption,
    )


def runs(text: str, tokens: list[bytes], width: float) -> tuple[list[tuple[float, float, float, int]], list, float]:
    """Where tokens lie when a text is written once, a box a token: the twin of `layout` in static/bpe.js.

    Returns (boxes, characters, height): a box is (x, y, width, number of the token), a token that spans two lines has
    two; a character is (x, y, text). A boundary inside a character cuts its box in proportion to its bytes.
    """
    pitch, step, _ = _metrics(width)
    columns = int(width // pitch)
    edges, characters, column, line = [], [], 0, 0
    for char in text:
        wide = _columns(char)
        if column + wide > columns:
            column, line = 0, line + 1
        size = len(char.encode())
        characters.append((column * pitch, line * step, readable(char.encode())))
        edges += [
            (line, (column + wide * i / size) * pitch, (column + wide * (i + 1) / size) * pitch) for i in range(size)
        ]
        column += wide
    boxes, at = [], 0
    for number, token in enumerate(tokens):
        part = edges[at : at + len(token)]
        for row in sorted({edge[0] for edge in part}):
            left = min(a for r, a, _ in part if r == row)
            right = max(b for r, _, b in part if r == row)
            boxes.append((left, row * step, right - left, number))
        at += len(token)
    return boxes, characters, (line + 1) * step


def _columns(char: str) -> int:
    """Columns that a character takes: two for the wide ones."""
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def bill(text: str, tokens: dict[str, list[bytes]], width: float) -> Scene:
    """Vocabularies under each other: the text cut into tokens, their number, a bar."""
    scene, y = Scene(width, 10), 0.0
    _, step, size = _metrics(width)
    most = max(len(part) for part in tokens.values())
    for v, (label, part) in enumerate(tokens.items()):
        scene.text(f"name-{v}", 0, y + 14, label, size=13, weight=600)
        room = width - 210
        scene.rect(
            f"bar-{v}", 128, y + 5, max(1.0, room * len(part) / most), 9, fill="orange", fill_opacity=0.8, radius=2
        )
        scene.text(f"count-{v}", width, y + 14, counted(len(part), "token"), size=13, weight=600, anchor="end")
        boxes, characters, height = runs(text, part, width)
        for b, (x, dy, wide, number) in enumerate(boxes):
            tint, room = ("blue", "green")[number % 2], max(1.0, wide - 1)
            scene.rect(f"box-{v}-{b}", x + 0.5, y + 21 + dy, room, step - 5, fill=tint,
                       fill_opacity=0.22, radius=2)  # fmt: skip
        for c, (x, dy, char) in enumerate(characters):
            scene.text(f"char-{v}-{c}", x, y + 24 + dy + size, char, size=size, mono=True)
        y += 24 + height + 6
    scene.height = y
    return scene


def merges(tokenizer, text: str, caption: str) -> Display:
    """fig-merges: a text of the reader's, merged step by step under four vocabularies, with the bill."""
    import quicktok

    tokens = {"SmolLM2": [tokenizer.id_to_bytes[i] for i in tokenizer.encode(text, allowed_special=())]}
    for name, (label, _, _) in vocabularies.VOCABULARIES.items():
        if name != "smollm2":
            encoding = quicktok.get_encoding({"cl100k": "cl100k_base", "o200k": "o200k_base"}.get(name, name))
            tokens[label] = [encoding.decode_single_token_bytes(i) for i in encoding.encode_ordinary(text)]
    assert all(b"".join(part) == text.encode() for part in tokens.values()), "no tokenizer loses a byte"
    traces = [tokenizer.trace(word) for word in tokenizer.split(text)]
    return widget(
        "bpe",
        {"text": text, "vocabularies": vocabularies.describe()},
        alt="Type a text and see it merged, step by step, under four vocabularies, with what it costs in each",
        text_equivalent=[
            f"“{text}” has {counted(len(text.encode()), 'byte')}. It costs "
            + ", ".join(f"{counted(len(part), 'token')} under {label}" for label, part in tokens.items())
            + ".",
            *(
                f"SmolLM2, “{readable(b''.join(steps[0].pieces))}”: {counted(len(steps[0].pieces), 'byte')}, "
                f"{counted(len(steps) - 1, 'merge')}, {counted(len(steps[-1].pieces), 'token')}: "
                + ", ".join(readable(piece) for piece in steps[-1].pieces)
                for steps in traces
            ),
        ],
        poster=bill(text, tokens, _WIDE),
        narrow=bill(text, tokens, _SLIM),
        name="fig-merges",
        caption=caption,
    )
