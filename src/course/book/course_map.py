"""The one map of the course: the path of a token through the model, what it leaves in memory, and what that costs.

Every chapter is a box in one of three rows. On the front page, ``{course-map}`` draws it with titles; on the page of
a chapter the extension puts the same map, small, under the title, with the chapter's own box lit. A box is a link
where the page exists; where it does not yet, it is dashed and says that it is coming. Which chapters there are comes
from `course.chapters`, and a test holds the rows to that list.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from textwrap import wrap

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from course import specs
from course.chapters import CHAPTERS, Chapter
from course.specs import exercises

# A row of the map: what it is about, in full and in a word, and the stems in it.
ROWS = (
    ("The way of one token", "one token", ("tokenization", "embeddings", "transformer_block", "sampling")),
    (
        "What it leaves in memory",
        "its memory",
        ("kv_cache", "cache_size", "paged_attention", "sliding_window", "prompt_caching", "quantization"),
    ),
    (
        "What that costs, and how to make it fast",
        "its speed",
        (
            "prefill_decode",
            "chunked_prefill",
            "speculative_decoding",
            "flash_attention",
            "triton_primer",
            "end_to_end",
        ),
    ),
)
BETWEEN = ("ids", "vectors", "logits")  # what passes along the arrows of the first row
LINKS = Mapping[str, str]  # name of a chapter's page -> its address, for those that are written


@dataclass(frozen=True)
class _Place:
    chapter: Chapter
    x: float
    y: float
    width: float
    height: float


def _box(place: _Place, links: LINKS, body: str, lit: str | None = None) -> str:
    """One chapter: a link with its title, or a dashed box that is coming."""
    chapter = place.chapter
    label = escape(f"{chapter.number} {chapter.title}".strip(), quote=True)
    rect = f'<rect x="{place.x:g}" y="{place.y:g}" width="{place.width:g}" height="{place.height:g}" rx="6"/>'
    if chapter.name == lit:
        return f'<g class="map-box map-lit" role="img" aria-label="You are here: {label}">{rect}{body}</g>'
    if chapter.name not in links:
        return f'<g class="map-box map-coming" role="img" aria-label="{label}, coming">{rect}{body}</g>'
    href = escape(links[chapter.name], quote=True)
    return f'<a class="map-box" href="{href}" aria-label="{label}"><title>{label}</title>{rect}{body}</a>'


def _text(x: float, y: float, words: str, kind: str, size: float, anchor: str = "start") -> str:
    placed = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" font-size="{size:g}"{placed}>{escape(words)}</text>'


def _arrow(d: str) -> str:
    return f'<path class="map-arrow" d="{d}"/>'


def _large(links: LINKS, width: int, columns: tuple[int, ...], kind: str) -> str:
    """The map with titles, `width` units wide, `columns` boxes to a line in each row."""
    parts, y, height, gap = [], 0.0, 62, 10
    for (title, _, stems), across in zip(ROWS, columns):
        first = stems == ROWS[0][2]
        between = 52 if first and across == 4 else 44 if first else gap
        parts.append(_text(0, y + 15, title, "map-row", 13))
        top = y + 26 + (20 if first else 0)
        box = (width - (across - 1) * between - (2 if first else 0)) / across
        for i, stem in enumerate(stems):
            x, line = (i % across) * (box + between) + (1 if first else 0), i // across
            place = _Place(CHAPTERS[stem], x, top + line * (height + (26 if first else gap)), box, height)
            parts.append(_box(place, links, _inside(place, links)))
            if first and i:
                parts += _step(place, parts, i, across, between, width, box)
        lines = -(-len(stems) // across)
        bottom = top + lines * height + (lines - 1) * (26 if first else gap)
        if first:  # the new token goes back to the start
            left, right, roof = box / 2 + 1, (len(stems) - 1) % across * (box + between) + box / 2 + 1, y + 34
            if lines == 1:
                parts.append(_arrow(f"M{right:g} {top:g}V{roof:g}H{left:g}V{top - 3:g}m-4 -6l4 6l4 -6"))
                parts.append(
                    _text(width / 2, roof - 6, "the new token joins the text, and again", "map-flow", 12, "middle")
                )
            else:
                parts.append(_text(width / 2, top - 8, "round and round, a token each time", "map-flow", 12, "middle"))
        y = bottom + 22
    height = y - 12
    return (
        f'<svg class="cf-svg course-map {kind}" role="group" aria-label="Map of the course" '
        f'viewBox="0 0 {width} {height:g}" width="{width}" height="{height:g}">{"".join(parts)}</svg>'
    )


def _step(place: _Place, parts, i: int, across: int, between: float, width: int, box: float) -> list[str]:
    """The arrow into the `i`-th box of the first row, with what passes along it."""
    middle = place.y + place.height / 2
    if i % across:
        start, end = place.x - between + 3, place.x - 4
        return [
            _arrow(f"M{start:g} {middle:g}H{end:g}m-6 -4l6 4l-6 4"),
            _text(place.x - between / 2, middle - 7, BETWEEN[i - 1], "map-flow", 11.5, "middle"),
        ]
    above = place.y - 26
    right, left = width - box / 2, place.x + box / 2
    return [
        _arrow(f"M{right:g} {above + 2:g}V{above + 13:g}H{left:g}V{place.y - 3:g}m-4 -6l4 6l4 -6"),
        _text(width / 2, above + 10, BETWEEN[i - 1], "map-flow", 11.5, "middle"),
    ]


def _inside(place: _Place, links: LINKS) -> str:
    """Number, or that it is coming, and the title in at most two lines."""
    chapter, x = place.chapter, place.x + 9
    size = 12.5
    lines = wrap(chapter.title, int((place.width - 14) / (0.53 * size)), break_long_words=False)
    if len(lines) > 2:
        raise ValueError(f"{chapter.title!r} does not fit its box on the map: {lines}")
    head = chapter.number or "kernels"
    text = _text(x, place.y + 18, head, "map-number", 12)
    if chapter.name not in links:
        text += _text(place.x + place.width - 9, place.y + 18, "coming", "map-note", 11, "end")
    return text + "".join(_text(x, place.y + 36 + 16 * n, line, "map-title", size) for n, line in enumerate(lines))


def large(links: LINKS) -> str:
    """HTML of the map with titles, for a wide and for a narrow page, and the same in words."""
    items = "".join(
        f"<li>{escape(title)}: "
        + ", ".join(
            f'<a href="{escape(links[c.name], quote=True)}">{escape(c.title)}</a>'
            if c.name in links
            else f"{escape(c.title)} (coming)"
            for c in (CHAPTERS[stem] for stem in stems)
        )
        + ".</li>"
        for title, _, stems in ROWS
    )
    return (
        f'<nav class="course-map-frame cf cf-two" aria-label="Map of the course">'
        f'<div class="cf-wide">{_large(links, 700, (4, 6, 6), "map-large")}</div>'
        f'<div class="cf-narrow">{_large(links, 336, (2, 3, 3), "map-large")}</div>'
        f'<details class="cf-steps"><summary>The map in words</summary><ol>{items}</ol></details></nav>'
    )


def small(lit: str, links: LINKS) -> str:
    """HTML of the map as a strip of numbers with the chapter `lit` (the name of its page) lit."""
    width, height, gap = 38, 24, 5
    parts = []
    for line, (_, word, stems) in enumerate(ROWS):
        y = 1 + line * (height + gap)
        for i, stem in enumerate(stems):
            place = _Place(CHAPTERS[stem], 1 + i * (width + gap), y, width, height)
            number = _text(place.x + width / 2, y + 16.5, place.chapter.number or "K", "map-number", 12, "middle")
            parts.append(_box(place, links, number, lit))
        parts.append(_text(1 + 6 * (width + gap) + 4, y + 16.5, word, "map-flow", 12))
    w, h = 336, 3 * (height + gap) - gap + 2
    return (
        '<nav class="course-map-frame map-strip" aria-label="Where you are in the course">'
        f'<svg class="cf-svg course-map map-small" role="group" aria-label="Map of the course, this chapter lit" '
        f'viewBox="0 0 {w} {h}" width="{w}" height="{h}">{"".join(parts)}</svg></nav>'
    )


READING = re.compile(r"(\d+)\s+minutes\s+to\s+read")


def minutes(chapter: Chapter, page: str) -> int:
    """Minutes for a chapter: to read it, as its page says, and for its core exercises (all, where none is core).

    Raises ValueError when the page does not say how long it takes to read.
    """
    said = READING.search(page)
    if said is None:
        raise ValueError(f"{chapter.name}: the page does not say 'N minutes to read'")
    items = exercises(chapter.stem) if chapter.stem in specs.CHAPTERS else ()
    return int(said[1]) + sum(item.minutes for item in [item for item in items if item.core] or items)


def extent(pages: Mapping[str, str]) -> str:
    """How much of the course is written, in a sentence; `pages` has the text of each written chapter by name."""
    numbered = [chapter for chapter in CHAPTERS.values() if chapter.number]
    done = [chapter for chapter in CHAPTERS.values() if chapter.name in pages]
    between = [chapter.title for chapter in done if not chapter.number]
    hours = round(sum(minutes(chapter, pages[chapter.name]) for chapter in done) / 60)
    also = f", and {' and '.join(f'“{title}”' for title in between)}" if between else ""
    return (
        f"{sum(bool(c.number) for c in done)} of {len(numbered)} chapters are written{also}: about {hours} hours, with "
        "the core exercises."
    )


def _links(found: set[str], address: Callable[[str], str]) -> dict[str, str]:
    return {chapter.name: address(chapter.name) for chapter in CHAPTERS.values() if chapter.name in found}


class CourseMap(SphinxDirective):
    def run(self):
        self.env.note_reread()  # it shows which chapters exist
        builder = self.env.app.builder
        links = _links(self.env.found_docs, lambda name: builder.get_relative_uri(self.env.docname, name))
        pages = {name: Path(self.env.doc2path(name)).read_text(encoding="utf-8") for name in links}
        try:
            said = extent(pages)
        except ValueError as error:
            raise self.error(str(error)) from error
        if len(links) < len(CHAPTERS):
            said += " Dashed boxes are coming."
        return [nodes.raw("", large(links), format="html"), nodes.paragraph("", said)]


_TITLE = re.compile(r"</h1>")


def with_map(body: str, lit: str, links: LINKS) -> str:
    """The page's HTML with the small map below its title; unchanged where it has no title."""
    return _TITLE.sub(lambda match: match[0] + small(lit, links), body, count=1)


def _on_chapter_pages(app, pagename, template, context, doctree):
    if "body" in context and any(chapter.name == pagename for chapter in CHAPTERS.values()):
        address = lambda name: app.builder.get_relative_uri(pagename, name)  # noqa: E731
        context["body"] = with_map(context["body"], pagename, _links(app.env.found_docs, address))


def setup(app):
    app.add_directive("course-map", CourseMap)
    app.connect("html-page-context", _on_chapter_pages)
