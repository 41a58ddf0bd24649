"""A drawing made of keyed elements: the one format of diagrams, of recorded traces and of their JavaScript.

A `Scene` is a canvas of ``width`` x ``height`` units (one unit is one CSS pixel at full size). You add
rectangles, texts, lines, circles and paths, each under a key of your choice. In a trace, elements that carry
the same key in two steps are the same thing: the page moves and recolours it instead of replacing it.

Colours are names (`COLORS`), never hex: each is a CSS variable ``--fig-NAME`` with a light and a dark value.

>>> scene = Scene(120, 40)
>>> scene.rect("box", 4, 4, 60, 30, fill="blue").text("label", 34, 24, "k0", anchor="middle")
Scene(120 x 40, 2 elements)
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from html import escape

from course.book.display import require_text

SERIES = ("blue", "orange", "green", "purple", "gold")
COLORS = (*SERIES, "red", "ink", "muted", "faint", "grid", "surface", "paper")
ANCHORS = ("start", "middle", "end")
MIN_FONT = 11  # CSS pixels: the smallest text a figure may show, at any width of the page


def color(name: str) -> str:
    """``blue`` -> ``var(--fig-blue)``; ``none`` stays. A hex colour would ignore the theme, so it raises."""
    if name == "none":
        return name
    if name not in COLORS:
        raise ValueError(f"unknown colour {name!r}: use one of {', '.join(COLORS)} or 'none'")
    return f"var(--fig-{name})"


def text_width(text: str, size: float = 14, *, mono: bool = False) -> float:
    """Width of `text` in units, estimated: exact for the monospaced font, a little generous for the other."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return size * ((len(text) - wide) * (0.6 if mono else 0.57) + wide)


def number(value: float) -> str:
    """At most two decimals, no trailing zeros."""
    return (
        f"{float(value):.2f}".rstrip("0").rstrip(".").replace("-0", "0")
        if abs(value) < 0.005
        else (f"{float(value):.2f}".rstrip("0").rstrip("."))
    )


@dataclass(frozen=True)
class Element:
    """One drawn thing. Its geometry is relative to (x, y), so that moving it is a translation."""

    key: str
    tag: str
    x: str
    y: str
    attrs: tuple[tuple[str, str], ...]
    text: str = ""
    layer: int = 0

    def json(self) -> list:
        """``[key, tag, x, y, attrs, text]``: what course-figures.js draws."""
        return [self.key, self.tag, float(self.x), float(self.y), dict(self.attrs), self.text]

    def svg(self) -> str:
        """The element as SVG text."""
        attrs = "".join(f' {name}="{escape(value, quote=True)}"' for name, value in self.attrs)
        moved = "" if (self.x, self.y) == ("0", "0") else f' transform="translate({self.x} {self.y})"'
        return f"<{self.tag}{moved}{attrs}>{escape(self.text)}</{self.tag}>"


@dataclass
class Scene:
    """A drawing of `width` x `height` units. Every method adds one element and returns the scene."""

    width: float
    height: float
    elements: dict[str, Element] = field(default_factory=dict)

    def __post_init__(self):
        if not (self.width > 0 and self.height > 0):
            raise ValueError(f"a scene needs a positive width and height, got {self.width} x {self.height}")

    def __repr__(self):
        return f"Scene({number(self.width)} x {number(self.height)}, {len(self.elements)} elements)"

    def _add(self, key, tag, x, y, layer, text="", **attrs) -> Scene:
        if key in self.elements:
            raise ValueError(f"the scene already has an element {key!r}: a key names one thing")
        pairs = (
            (name.replace("_", "-"), number(value) if isinstance(value, (int, float)) else str(value))
            for name, value in attrs.items()
            if value is not None
        )
        self.elements[key] = Element(str(key), tag, number(x), number(y), tuple(pairs), text, layer)
        return self

    def rect(
        self,
        key,
        x,
        y,
        width,
        height,
        *,
        fill="surface",
        stroke="none",
        fill_opacity=None,
        opacity=None,
        radius=3,
        stroke_width=None,
        dash=None,
        layer=0,
    ) -> Scene:
        """A box with its upper left corner at (x, y)."""
        return self._add(
            key,
            "rect",
            x,
            y,
            layer,
            width=width,
            height=height,
            rx=radius or None,
            fill=color(fill),
            stroke=None if stroke == "none" else color(stroke),
            fill_opacity=fill_opacity,
            opacity=opacity,
            stroke_width=stroke_width,
            stroke_dasharray=dash,
        )

    def text(
        self,
        key,
        x,
        y,
        text,
        *,
        size=14,
        anchor="start",
        fill="ink",
        weight=None,
        mono=False,
        opacity=None,
        layer=1,
    ) -> Scene:
        """One line of text whose baseline starts (or is centred, or ends) at (x, y)."""
        if size < MIN_FONT:
            raise ValueError(f"text {text!r} of size {size} is unreadable: use {MIN_FONT} or more")
        if anchor not in ANCHORS:
            raise ValueError(f"anchor must be one of {', '.join(ANCHORS)}, got {anchor!r}")
        return self._add(
            key,
            "text",
            x,
            y,
            layer,
            str(text),
            fill=color(fill),
            font_size=size,
            text_anchor=None if anchor == "start" else anchor,
            font_weight=weight,
            opacity=opacity,
            **({"class": "cf-mono"} if mono else {}),
        )

    def line(
        self, key, x1, y1, x2, y2, *, stroke="muted", width=1.5, dash=None, arrow=False, opacity=None, layer=0
    ) -> Scene:
        """A straight line; with `arrow`, an open head at its end."""
        dx, dy = x2 - x1, y2 - y1
        d = f"M0 0L{number(dx)} {number(dy)}"
        length = (dx * dx + dy * dy) ** 0.5
        if arrow and length:
            ux, uy, head = dx / length, dy / length, min(7.0, length / 2)
            for side in (1, -1):
                hx, hy = dx - head * (ux + side * 0.55 * uy), dy - head * (uy - side * 0.55 * ux)
                d += f"M{number(hx)} {number(hy)}L{number(dx)} {number(dy)}"
        return self._add(
            key,
            "path",
            x1,
            y1,
            layer,
            d=d,
            fill="none",
            stroke=color(stroke),
            stroke_width=width,
            stroke_dasharray=dash,
            stroke_linecap="round",
            opacity=opacity,
        )

    def circle(
        self,
        key,
        cx,
        cy,
        r,
        *,
        fill="blue",
        stroke="none",
        fill_opacity=None,
        stroke_width=None,
        opacity=None,
        layer=0,
    ) -> Scene:
        """A disc around (cx, cy)."""
        return self._add(
            key,
            "circle",
            cx,
            cy,
            layer,
            r=r,
            fill=color(fill),
            stroke=None if stroke == "none" else color(stroke),
            fill_opacity=fill_opacity,
            stroke_width=stroke_width,
            opacity=opacity,
        )

    def path(
        self,
        key,
        d,
        *,
        x=0,
        y=0,
        fill="none",
        stroke="none",
        width=None,
        fill_opacity=None,
        dash=None,
        opacity=None,
        layer=0,
    ) -> Scene:
        """Any SVG path, moved to (x, y)."""
        return self._add(
            key,
            "path",
            x,
            y,
            layer,
            d=d,
            fill=color(fill),
            stroke=None if stroke == "none" else color(stroke),
            stroke_width=width,
            fill_opacity=fill_opacity,
            stroke_dasharray=dash,
            opacity=opacity,
        )

    def ordered(self) -> list[Element]:
        """The elements from back to front."""
        return sorted(self.elements.values(), key=lambda element: element.layer)

    def min_width(self) -> int:
        """The width in CSS pixels below which its smallest text would be less than `MIN_FONT` pixels."""
        sizes = [float(dict(e.attrs)["font-size"]) for e in self.elements.values() if e.tag == "text"]
        return round(self.width * MIN_FONT / min(sizes)) if sizes else 0

    def svg(self, alt: str) -> str:
        """The drawing as one ``<svg>`` with its text alternative."""
        body = "".join(element.svg() for element in self.ordered())
        w, h = number(self.width), number(self.height)
        return (
            f'<svg class="cf-svg" role="img" aria-label="{escape(require_text(alt, "alt"), quote=True)}" '
            f'viewBox="0 0 {w} {h}" width="{w}" height="{h}" '
            f'style="--cf-min:{self.min_width()}px">{body}</svg>'
        )


def frame(wide: str, narrow: str | None = None) -> str:
    """Both layouts of one drawing; the style sheet shows the one that fits the column."""
    if narrow is None:
        return f'<div class="cf"><div class="cf-scroll" tabindex="-1">{wide}</div></div>'
    return (
        f'<div class="cf cf-two"><div class="cf-scroll cf-wide">{wide}</div>'
        f'<div class="cf-scroll cf-narrow">{narrow}</div></div>'
    )
