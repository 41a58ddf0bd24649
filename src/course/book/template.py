"""What every chapter has, in the same order and under the same titles; a fault is a warning, and so fails the build.

The text of a page is read, not its tree: an author sees the rule that was broken in the words of the file.
"""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.util import logging

from course.book.code import COLUMNS
from course.chapters import CHAPTERS

logger = logging.getLogger(__name__)

# The sections that close a chapter. The last one only where the document says something about it.
ENDING = (
    "Bugs seen in real engines",
    "In five lines",
    "Questions",
    "Now write it",
    "Runs on the real model",
    "Read on",
)
CLAIMS = "The document, claim by claim"
HIDDEN_LINES = 24  # of a cell that the reader does not see; drawings belong in course.book.drawings

_TIME = re.compile(r"\*\*Time:\*\* (\d+) minutes to read, (\d+) minutes for the (?:core )?exercises\.")
_CELL = re.compile(r"^```\{code-cell\}[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_MENTION = re.compile(r"\bchapters? (?:\d\d)\b", re.IGNORECASE)
_LUCK = re.compile(r"\bon (?:other|another|your) machines?\b", re.IGNORECASE)


def stem_of(docname: str) -> str | None:
    """The stem of a chapter's page (``kv_cache`` for ``04_kv_cache``), or None for any other page."""
    return next((stem for stem, chapter in CHAPTERS.items() if chapter.name == docname), None)


def _sections(prose: str) -> list[tuple[str, str]]:
    """Title and text of each second-level section."""
    parts = re.split(r"^## +(.+?) *$", prose, flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2]))


def faults(text: str, *, minutes: int | None) -> list[str]:
    """What a chapter's page lacks or has in the wrong place, in words.

    `text` is the whole file; `minutes` what its core exercises take by their specs, None where there are none.
    """
    cells = _CELL.findall(text)
    prose = _CELL.sub("", text)
    found = [*_opening(prose, minutes), *_predictions(prose, cells), *_ending(prose), *_cells(cells)]
    for pattern, rule in (
        (_MENTION, "name another chapter with {{chapter}}`NN`, which links only to what is written: {!r}"),
        (_LUCK, "a demonstration must not depend on the machine, and the build must see to it: {!r}"),
    ):
        everywhere = text if pattern is _LUCK else prose
        found += [rule.format(match[0]) for match in pattern.finditer(everywhere)]
    return found


def _opening(prose: str, minutes: int | None) -> list[str]:
    body = prose.split("\n---\n", 1)[-1]
    if not re.match(r"\s*# [^\n]+\n\s*`{3,}\{admonition\} After this chapter\n:class: goals\n", body):
        return ["a chapter opens with its title and the box 'After this chapter' of class goals"]
    box = body[: body.index("```\n", body.index("After this chapter"))]
    found = [] if "**You need:**" in box else ["the first box says nothing after **You need:**"]
    time = _TIME.search(box.replace("\n", " "))
    if not time:
        return [
            *found,
            "the first box gives the time as '**Time:** 30 minutes to read, 65 minutes for the core exercises.'",
        ]
    if minutes is not None and int(time[2]) != minutes:
        found.append(f"the first box says {time[2]} minutes for the exercises, their specs say {minutes}")
    return found


def _predictions(prose: str, cells: list[str]) -> list[str]:
    keys = re.findall(r"^`{3,}\{predict\}[^\n]*\n(?::[^\n]*\n)*?:key: *(\S+)", prose, re.MULTILINE)
    found = [] if keys else ["a chapter asks for a prediction before it shows a result: {predict}"]
    found += [f"two predictions have the key {key!r}" for key in sorted({key for key in keys if keys.count(key) > 1})]
    told = re.findall(r"\bmeasured\(\s*\"([^\"]+)\"", "\n".join(cells))
    found += [f"prediction {key!r} is never answered by measured({key!r}, ...)" for key in keys if key not in told]
    return found


def _ending(prose: str) -> list[str]:
    sections = _sections(prose)
    titles = [title for title, _ in sections]
    wanted = [*ENDING, *([CLAIMS] if "{claims-ledger}" in prose else [])]
    if titles[-len(wanted) :] != wanted:
        return [
            f"a chapter ends with the sections {', '.join(wanted)}; this one with {', '.join(titles[-len(wanted) :])}"
        ]
    last = dict(sections)
    found = []
    bugs = last[ENDING[0]].split(":class: bug")[1:]
    if not 2 <= len(bugs) <= 3:
        found.append(f"two or three bugs of real engines are told, here are {len(bugs)}")
    found += ["a bug of a real engine needs the link to its public thread" for bug in bugs if "](https://" not in bug]
    lines = len(re.findall(r"^- ", last[ENDING[1]], re.MULTILINE))
    if lines != 5:
        found.append(f"'In five lines' has five points, here are {lines}")
    asked = len(re.findall(r"^\d\. ", last[ENDING[2]], re.MULTILINE))
    if asked != 2:
        found.append(f"'Questions' has two, numbered, here are {asked}")
    if "{exercises}" not in last[ENDING[3]] or "{download}" not in last[ENDING[3]]:
        found.append("'Now write it' lists the exercises with {exercises} and links their notebook with {download}")
    return found


def _cells(cells: list[str]) -> list[str]:
    found = []
    for cell in cells:
        lines = [line for line in cell.rstrip().splitlines() if not re.match(r":[a-z-]+:", line)]
        if "remove-input" in cell or "remove-cell" in cell:
            if len(lines) > HIDDEN_LINES:
                found.append(
                    f"a hidden cell has {len(lines)} lines, at most {HIDDEN_LINES}: move drawing code to "
                    f"course.book.drawings ({lines[0]!r})"
                )
        else:
            found += [
                f"a line of {len(line)} columns, at most {COLUMNS} fit: {line!r}"
                for line in lines
                if len(line) > COLUMNS
            ]
    return found


def _check(app, env):
    from course.book.chapters import core_minutes

    for docname in sorted(env.found_docs):
        stem = stem_of(docname)
        if stem is None:
            continue
        try:
            minutes = core_minutes(stem)
        except ValueError:  # a chapter that has no exercises yet
            minutes = None
        path = Path(env.doc2path(docname))
        if path.suffix != ".md":
            continue
        for fault in faults(path.read_text(encoding="utf-8"), minutes=minutes):
            logger.warning("template: %s", fault, location=docname, type="course", subtype="template")


def setup(app):
    app.connect("env-check-consistency", _check)
