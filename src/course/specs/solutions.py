"""The course's own answers, from ``solutions/NN_topic.py``, and edits of them: most wrong answers are told as such.

An edit is a dict from what stands in the source, exactly once, to what stands there instead. Of several lines the first
may begin anywhere in its line; the others are taken to be indented as that line is.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

from course import paths

MARKS = ("### BEGIN SOLUTION", "### END SOLUTION")
MOST_PLACES, MOST_LINES = 2, 3  # of an edit: what changes more is another answer, and is written out


class EditError(ValueError):
    """An edit that does not fit its source, or is too large."""


def solution(exercise_id: str) -> str:
    """The answer cell of an exercise, without the marks of its solution regions. Raises ValueError if there is none."""
    stem = exercise_id.split(".")[0]
    found = answers(_file(stem).read_text(encoding="utf-8"))
    if exercise_id not in found:
        raise ValueError(f"{_file(stem).name} holds no answer to {exercise_id}")
    return without_marks(found[exercise_id])


def folder() -> Path:
    """Where the solutions lie that belong to this code: beside it, wherever a notebook is open; else the course's."""
    beside = Path(__file__).resolve().parents[3] / "solutions"
    return beside if beside.is_dir() else paths.solutions()


def files() -> list[Path]:
    """The scripts that hold them."""
    return sorted(folder().glob("*.py"))


def _file(stem: str) -> Path:
    for path in files():
        if re.fullmatch(rf"(\d\d_)?{stem}", path.stem):
            return path
    raise ValueError(f"solutions/ holds no {stem}.py: a student edition has none")


@functools.lru_cache(maxsize=32)
def answers(script: str) -> dict[str, str]:
    """The answer cells of a percent script by exercise id, with their marks."""
    cells = re.split(r"^# %%.*\n", script, flags=re.M)
    return {found[1]: cell.rstrip() for cell in cells if (found := re.match(r"# answer: (\S+)\n", cell))}


def without_marks(source: str) -> str:
    return "\n".join(line for line in source.splitlines() if line.strip() not in MARKS)


def edited(source: str, edit: dict[str, str]) -> str:
    """The source with each key of ``edit`` replaced by its value.

    Raises :class:`EditError` unless each stands there exactly once and the edit is small: two places, three lines.
    """
    for lines in (edit.keys(), edit.values()):
        if len(edit) > MOST_PLACES or sum(len(text.strip("\n").splitlines()) for text in lines) > MOST_LINES:
            raise EditError(f"it changes more than {MOST_PLACES} places or {MOST_LINES} lines: write the answer out")
    found = []
    for old, new in edit.items():
        places = [start for start, indent in _starts(source, old) if source.startswith(_indented(old, indent), start)]
        if len(places) != 1:
            raise EditError(f"{old!r} stands there {len(places)} times, not once")
        indent = _indent(source, places[0])
        found.append((places[0], _indented(old, indent), _indented(new, indent)))
    end = len(source)
    for start, old, new in sorted(found, reverse=True):  # from the end: earlier places stay where they are
        if start + len(old) > end:
            raise EditError(f"{old!r} overlaps another change")
        source, end = source[:start] + new + source[start + len(old) :], start
    return source


def _starts(source: str, old: str) -> list[tuple[int, str]]:
    """Where the first line of ``old`` stands, and how the line there is indented."""
    first = old.split("\n")[0]
    return [(match.start(), _indent(source, match.start())) for match in re.finditer(re.escape(first), source)]


def _indent(source: str, place: int) -> str:
    return re.compile("[ \t]*").match(source, source.rfind("\n", 0, place) + 1).group()


def _indented(text: str, indent: str) -> str:
    return text.replace("\n", f"\n{indent}")
