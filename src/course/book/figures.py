"""Still figures: one inline SVG that follows the page's theme, with a text alternative and a caption.

For authors
-----------
A plot::

    from course.book.figures import COLORS, show

    def draw(fig):
        ax = fig.subplots()
        ax.plot(lengths, naive, label="without a cache")
        ax.plot(lengths, cached, label="with a cache")
        ax.set(xlabel="tokens", ylabel="rows projected")
        ax.legend()

    show(draw, alt="Two curves: ...", name="fig-rows",
         caption=f"The gap at 200 tokens is {naive[-1] / cached[-1]:.1f} ×.")

and in the prose ``{numref}`fig-rows` ``. The caption is MyST and says what to see; `alt` tells it to someone
who cannot see it. `draw` is called twice, with a wide and a narrow figure, and the page shows the one that
fits; ask ``fig.get_figwidth()`` if the narrow one needs other ticks. Use `COLORS` (``COLORS.blue``, ...,
``COLORS.ink``, ``COLORS.muted``); lines without a colour take the series in order. A colour that is not from
`COLORS`, a raster image and text below 11 CSS pixels raise, since they would break in one of the themes or
on a phone: for matrices use `heatmap`.

Diagrams: build a `course.book.svg.Scene` (twice, if the narrow page needs another layout) and call `diagram`.
`heatmap`, `token_strip` and `bar_rows` make common ones; `table` makes a numbered table.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from types import SimpleNamespace

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from course.book.display import Display, digest, require_text
from course.book.svg import MIN_FONT, SERIES, Scene, frame, text_width

# Matplotlib wants hex; each of these stands for a CSS variable and is replaced when the figure is saved.
_SENTINELS = {
    name: f"#0a0b{i:02x}"
    for i, name in enumerate((*SERIES, "red", "ink", "muted", "faint", "grid", "surface", "paper"), start=16)
}
COLORS = SimpleNamespace(**_SENTINELS)
_SLIM = 336  # units wide: what a drawing gets on a phone of 390 pixels
_WIDE_PT, _NARROW_PT = 10.5, 10
_MIN_PT = MIN_FONT * 72 / 96


def _style(points: float) -> dict:
    ink, muted, grid = COLORS.ink, COLORS.muted, COLORS.grid
    return {
        "figure.facecolor": "none",
        "axes.facecolor": "none",
        "savefig.facecolor": "none",
        "font.size": points,
        "axes.titlesize": points + 0.5,
        "axes.labelsize": points,
        "xtick.labelsize": points - 1,
        "ytick.labelsize": points - 1,
        "legend.fontsize": points - 0.5,
        "figure.titlesize": points + 1,
        "text.color": ink,
        "axes.labelcolor": ink,
        "axes.titlecolor": ink,
        "xtick.labelcolor": muted,
        "ytick.labelcolor": muted,
        "xtick.color": grid,
        "ytick.color": grid,
        "axes.edgecolor": grid,
        "grid.color": grid,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.linewidth": 0.7,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlelocation": "left",
        "axes.titleweight": "bold",
        "legend.frameon": False,
        "lines.linewidth": 2,
        "patch.edgecolor": "none",
        "hatch.color": ink,
        "lines.solid_capstyle": "round",
        "svg.fonttype": "none",
        "svg.hashsalt": "course",
        "axes.prop_cycle": matplotlib.cycler(color=[_SENTINELS[name] for name in SERIES]),
        "font.family": "DejaVu Sans",
        "axes.unicode_minus": True,
    }


def _themed(svg: str, alt: str) -> str:
    """Matplotlib's SVG with CSS variables for colours, the page's font, and ids unique on the page."""
    if "<image" in svg:
        raise ValueError("the figure holds a raster image, whose colours cannot follow the theme; use heatmap()")
    # Text elements only: the exponent in a formula is a tspan, and may be smaller than its base.
    sizes = re.findall(r"<text[^>]*?font(?:-size)?: (?:[a-z0-9]+ )*?([\d.]+)px", svg)
    small = sorted({float(size) for size in sizes if float(size) < _MIN_PT})
    if small:
        raise ValueError(f"text of {small[0]} pt is less than {MIN_FONT} CSS pixels; use {_MIN_PT} pt or more")
    for name, value in _SENTINELS.items():
        svg = svg.replace(value, f"var(--fig-{name})")
    alien = sorted(set(re.findall(r"(?<!url\()#[0-9a-f]{6}\b", svg)))
    if alien:
        raise ValueError(f"colours {', '.join(alien)} do not follow the theme; take them from figures.COLORS")
    svg = re.sub(r"'DejaVu Sans'[^;\"]*", "var(--fig-font)", svg)
    prefix = f"f{digest(svg, alt)}-"
    svg = re.sub(r'\bid="', f'id="{prefix}', svg)
    svg = svg.replace('xlink:href="#', f'xlink:href="#{prefix}').replace("url(#", f"url(#{prefix}")
    label = escape(alt, quote=True)
    return svg.replace("<svg ", f'<svg class="cf-svg cf-plot" role="img" aria-label="{label}" ', 1)


def _render(draw: Callable, size: tuple[float, float], points: float, alt: str) -> str:
    with matplotlib.rc_context(_style(points)):
        fig = Figure(figsize=size, layout="constrained")
        draw(fig)
        out = io.StringIO()
        fig.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    svg = out.getvalue()
    svg = svg[svg.index("<svg") :]
    # Its style element would reach the whole page, its comments and long decimals only cost bytes.
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r"(\d\.\d\d)\d+", r"\1", svg)
    svg = re.sub(
        r'(<svg [^>]*?)width="([\d.]+)pt" height="([\d.]+)pt"',
        lambda m: f'{m[1]}width="{float(m[2]) * 96 / 72:.0f}" height="{float(m[3]) * 96 / 72:.0f}"',
        svg,
        count=1,
    )
    return _themed(re.sub(r"\n\s*", "\n", svg).strip(), alt)


def show(
    draw: Callable[[Figure], None],
    *,
    alt: str,
    caption: str | None = None,
    name: str | None = None,
    size: tuple[float, float] = (6.4, 3.4),
    narrow: tuple[float, float] | None = None,
) -> Display:
    """The figure that `draw(fig)` makes, `fig` being an empty matplotlib `Figure`.

    `size` is in inches for the wide page (96 CSS pixels an inch); `narrow` for columns below 600 pixels, by
    default 3.6 inches wide. `alt` is required. Raises ValueError for an empty `alt`, a colour outside
    `COLORS`, a raster image, and text smaller than 8.25 pt.
    """
    alt = require_text(alt, "alt")
    narrow = narrow or (3.6, max(2.7, round(size[1] * 0.85, 2)))
    wide_svg = _render(draw, size, _WIDE_PT, alt)
    narrow_svg = _render(draw, narrow, _NARROW_PT, alt)
    return Display(frame(wide_svg, narrow_svg), caption, name)


def diagram(
    scene: Scene,
    *,
    alt: str,
    caption: str | None = None,
    name: str | None = None,
    narrow: Scene | None = None,
) -> Display:
    """A `Scene` as a figure. Without `narrow`, a scene too wide for a phone scrolls sideways."""
    alt = require_text(alt, "alt")
    return Display(frame(scene.svg(alt), narrow.svg(alt) if narrow else None), caption, name)


# --- matrices --------------------------------------------------------------------------------------------

_LEVELS = 20


def heat_cells(
    scene: Scene,
    key: str,
    x: float,
    y: float,
    values: np.ndarray,
    cell: float,
    *,
    low: float = 0.0,
    high: float | None = None,
    fill: str = "blue",
    gap: float = 0.08,
) -> Scene:
    """Add a matrix of cells to a scene: paper at `low`, full colour at `high`; NaN leaves a hole (masked).

    Cells of equal shade share one path, so that a large map stays small.
    """
    values = np.asarray(values, dtype=float)
    if values.ndim != 2:
        raise ValueError(f"heat_cells draws a matrix, got an array of shape {values.shape}")
    high = float(np.nanmax(values)) if high is None else high
    span = (high - low) or 1.0
    level = np.clip(np.round((values - low) / span * _LEVELS), 0, _LEVELS)
    side = 1 - gap
    for shade in range(_LEVELS + 1):
        rows, cols = np.nonzero(level == shade)
        if len(rows):
            d = "".join(
                f"M{c * cell:.4g} {r * cell:.4g}h{side * cell:.3g}v{side * cell:.3g}h-{side * cell:.3g}z"
                for r, c in zip(rows, cols)
            )
            scene.path(f"{key}-{shade}", d, x=x, y=y, fill=fill, fill_opacity=0.05 + 0.95 * shade / _LEVELS)
    return scene


def _ramp(scene: Scene, x: float, y: float, low: str, high: str, fill: str) -> None:
    scene.text("ramp-low", x, y + 11, low, size=12, fill="muted")
    x += text_width(low, 12) + 6
    for i in range(12):
        scene.rect(f"ramp-{i}", x + i * 8, y, 8, 13, fill=fill, fill_opacity=0.05 + 0.95 * i / 11, radius=0)
    scene.text("ramp-high", x + 102, y + 11, high, size=12, fill="muted")


def _heat_scene(
    panels: Mapping[str, np.ndarray], width: float, columns: int, rows, cols, low, high, fill, labels
) -> Scene:
    shape = next(iter(panels.values())).shape
    left = max((text_width(str(r), 12, mono=True) for r in rows), default=0) + (8 if rows else 0)
    gutter = 16 if not rows else 14
    columns = min(columns, len(panels))
    cell = min(44.0, (width - left - gutter * (columns - 1)) / columns / shape[1])
    top = 26 if any(panels) else 4
    below = max((text_width(str(c), 12, mono=True) for c in cols), default=0) + (14 if cols else 8)
    line = top + cell * shape[0] + below
    count = -(-len(panels) // columns)
    scene = Scene(width, count * line + 30)
    for i, (title, values) in enumerate(panels.items()):
        px, py = left + (i % columns) * (cell * shape[1] + gutter), (i // columns) * line + top
        if title:
            scene.text(f"title-{i}", px, py - 9, title, size=13, weight=600)
        heat_cells(scene, f"panel-{i}", px, py, values, cell, low=low, high=high, fill=fill)
        if i % columns == 0:
            for r, label in enumerate(rows):
                scene.text(
                    f"row-{i}-{r}",
                    px - 8,
                    py + cell * (r + 0.5) + 4,
                    label,
                    size=12,
                    anchor="end",
                    fill="muted",
                    mono=True,
                )
        for c, label in enumerate(cols):
            _upright(scene, f"col-{i}-{c}", px + cell * (c + 0.46) + 4, py + cell * shape[0] + 6, str(label))
    _ramp(scene, left, count * line + 8, *labels, fill)
    return scene


def _upright(scene: Scene, key: str, x: float, y: float, label: str) -> None:
    """A column label, read from below upwards."""
    scene.text(key, x, y, label, size=12, anchor="end", fill="muted", mono=True)
    element = scene.elements[key]
    scene.elements[key] = type(element)(
        element.key,
        "text",
        "0",
        "0",
        (*element.attrs, ("transform", f"translate({element.x} {element.y}) rotate(-90)")),
        element.text,
        element.layer,
    )


def heatmap(
    panels,
    *,
    alt: str,
    caption: str | None = None,
    name: str | None = None,
    rows: Sequence[str] = (),
    cols: Sequence[str] = (),
    columns: int = 3,
    low: float = 0.0,
    high: float | None = None,
    fill: str = "blue",
    labels: tuple[str, str] | None = None,
) -> Display:
    """One matrix, or a mapping from title to matrix (attention by head), in shades of one themed colour.

    All panels share `low` (paper) and `high` (full colour; default: their maximum). NaN draws no cell: use it
    for what a mask removes. `rows` and `cols` label the cells; `labels` the two ends of the ramp.
    """
    panels = {"": panels} if not isinstance(panels, Mapping) else panels
    panels = {title: np.asarray(values, dtype=float) for title, values in panels.items()}
    shapes = {values.shape for values in panels.values()}
    if len(shapes) != 1 or len(next(iter(shapes))) != 2:
        raise ValueError(f"heatmap needs matrices of one shape, got {sorted(shapes)}")
    n_rows, n_cols = next(iter(shapes))
    if (rows and len(rows) != n_rows) or (cols and len(cols) != n_cols):
        raise ValueError(f"{len(rows)} row and {len(cols)} column labels do not fit a {n_rows} x {n_cols} matrix")
    high = max(float(np.nanmax(v)) for v in panels.values()) if high is None else high
    labels = labels or (f"{low:g}", f"{high:.2g}")
    many = len(panels) > 1
    wide = _heat_scene(panels, 720, columns, rows, cols, low, high, fill, labels)
    slim = _heat_scene(panels, _SLIM, 2 if many else 1, rows, cols, low, high, fill, labels)
    return diagram(wide, narrow=slim, alt=alt, caption=caption, name=name)


# --- strips and bars -------------------------------------------------------------------------------------


def place_tokens(
    scene: Scene,
    key: str,
    x: float,
    y: float,
    tokens: Sequence[str],
    *,
    ids: Sequence[int] = (),
    width: float,
    size: float = 14,
    colors: Sequence[str] = SERIES,
) -> float:
    """Add tokens as chips, wrapped at `width`; a space shows as ``·``. Returns the y below the last line."""
    line = size + 14 + (16 if len(ids) else 0) + 6
    cx = x
    for i, token in enumerate(tokens):
        shown = token.replace(" ", "·").replace("\n", "⏎")
        chip = max(text_width(shown, size, mono=True), text_width(str(ids[i]), 12, mono=True) if len(ids) else 0) + 12
        if cx > x and cx + chip > x + width:
            cx, y = x, y + line
        tint = colors[i % len(colors)]
        scene.rect(
            f"{key}-{i}-box",
            cx,
            y,
            chip,
            size + 12,
            fill=tint,
            fill_opacity=0.16,
            stroke=tint,
            stroke_width=1,
            radius=4,
        )
        scene.text(f"{key}-{i}", cx + chip / 2, y + size + 3, shown, size=size, anchor="middle", mono=True)
        if len(ids):
            scene.text(
                f"{key}-{i}-id",
                cx + chip / 2,
                y + size + 26,
                ids[i],
                size=12,
                anchor="middle",
                fill="muted",
                mono=True,
            )
        cx += chip + 4
    return y + line


def _strip_scene(rows, width: float) -> Scene:
    scene = Scene(width, 10)
    y = 4.0
    for r, (label, tokens, ids) in enumerate(rows):
        if label:
            scene.text(f"label-{r}", 0, y + 13, label, size=13, weight=600)
            scene.text(f"count-{r}", width, y + 13, f"{len(tokens)} tokens", size=13, anchor="end", fill="muted")
            y += 22
        y = place_tokens(scene, f"t{r}", 0, y, tokens, ids=ids, width=width) + 10
    scene.height = y - 8
    return scene


def token_strip(rows, *, alt: str, caption: str | None = None, name: str | None = None) -> Display:
    """Token strips: each row is a list of tokens, ``(label, tokens)`` or ``(label, tokens, ids)``."""
    if rows and isinstance(rows[0], str):
        rows = [rows]
    full = []
    for row in rows:
        label, tokens, ids = ("", row, ()) if not isinstance(row, tuple) else (*row, ())[:3]
        if ids and len(ids) != len(tokens):
            raise ValueError(f"row {label!r} has {len(tokens)} tokens but {len(ids)} ids")
        full.append((label, tokens, ids))
    return diagram(_strip_scene(full, 700), narrow=_strip_scene(full, _SLIM), alt=alt, caption=caption, name=name)


def _bar_scene(rows, width: float, label_width: float, fmt, peak: float) -> Scene:
    scene = Scene(width, 10)
    stacked = label_width > width * 0.4
    left = 0 if stacked else label_width + 12
    pad = max(text_width(fmt(value), 13) for _, value, _ in rows) + 10
    y = 2.0
    for i, (label, value, tint) in enumerate(rows):
        if stacked:
            scene.text(f"label-{i}", 0, y + 13, label, size=13)
            y += 20
        else:
            scene.text(f"label-{i}", left - 12, y + 16, label, size=13, anchor="end")
        length = max(1.0, (width - left - pad) * value / peak)
        scene.rect(f"bar-{i}", left, y + 1, length, 21, fill=tint, fill_opacity=0.85, radius=3)
        scene.text(f"value-{i}", left + length + 8, y + 16, fmt(value), size=13, fill="ink", weight=600)
        y += 32
    scene.height = y - 6
    return scene


def bar_rows(
    rows,
    *,
    alt: str,
    caption: str | None = None,
    name: str | None = None,
    fmt: Callable[[float], str] = lambda v: f"{v:,.4g}",
    peak: float | None = None,
) -> Display:
    """Horizontal bars: rows are ``(label, value)`` or ``(label, value, colour)``; `fmt` writes a value."""
    rows = [(*row, "blue")[:3] for row in rows]
    if not rows or any(value < 0 for _, value, _ in rows):
        raise ValueError("bar_rows needs at least one row, and values that are not negative")
    peak = peak or max(value for _, value, _ in rows) or 1.0
    label_width = max(text_width(label, 13) for label, _, _ in rows)
    wide, slim = (_bar_scene(rows, w, label_width, fmt, peak) for w in (700, _SLIM))
    return diagram(wide, narrow=slim, alt=alt, caption=caption, name=name)


# --- tables ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """A table whose cells are MyST; numbered and citable in the book when it has a caption."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    align: str
    caption: str | None = None
    name: str | None = None

    def markdown(self) -> str:
        def line(cells):
            return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

        rule = {"l": ":--", "r": "--:", "c": ":-:"}
        body = "\n".join([line(self.head), line(rule[a] for a in self.align), *map(line, self.rows)])
        if not self.caption:
            return body + "\n"
        name = f":name: {self.name}\n" if self.name else ""
        # A fence of colons, since one of backticks may hold none in its first line, and captions hold code.
        return f"::::{{table}} {self.caption}\n{name}\n{body}\n::::\n"

    def _repr_mimebundle_(self, include=None, exclude=None):
        cells = "".join("<tr>" + "".join(f"<td>{escape(c)}</td>" for c in row) + "</tr>" for row in self.rows)
        head = "".join(f"<th>{escape(c)}</th>" for c in self.head)
        html = f"<table><caption>{escape(self.caption or '')}</caption><tr>{head}</tr>{cells}</table>"
        return {"text/html": html, "text/markdown": self.markdown(), "text/plain": self.markdown()}


def table(
    rows: Sequence[Sequence],
    *,
    head: Sequence[str],
    caption: str | None = None,
    name: str | None = None,
    align: str | None = None,
) -> Table:
    """A table of computed values. `align`: a letter a column (``lrr``); default: first left, others right."""
    align = align or "l" + "r" * (len(head) - 1)
    if len(align) != len(head) or set(align) - set("lrc"):
        raise ValueError(f"align needs one of l, r, c for each of the {len(head)} columns, got {align!r}")
    for row in rows:
        if len(row) != len(head):
            raise ValueError(f"row {tuple(row)!r} has {len(row)} cells, the head has {len(head)}")
    if name and not caption:
        raise ValueError(f"table {name!r} has a name but no caption: numref can only cite a numbered table")
    return Table(tuple(map(str, head)), tuple(tuple(map(str, row)) for row in rows), align, caption, name)
