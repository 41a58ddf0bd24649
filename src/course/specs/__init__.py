"""The exercises of all chapters. A chapter's package lists its exercises, in order, in ``EXERCISES``.

A student edition has recorded chapters in the place of these packages (see :mod:`course.specs.recorded`).
"""

from __future__ import annotations

import functools
import importlib.util

from course import chapters
from course.specs import recorded
from course.specs.exercise import Case, Draw, Exercise, Tolerance, given_source

__all__ = ["CHAPTERS", "Case", "Draw", "Exercise", "Tolerance", "exercise", "exercises", "given_source"]

# Those that have exercises: a module of the same stem in this package, or its recording.
CHAPTERS = tuple(
    stem for stem in chapters.CHAPTERS
    if importlib.util.find_spec(f"{__name__}.{stem}") or (recorded.FOLDER / f"{stem}{recorded.ENDING}").is_file()
)


@functools.cache
def exercises(stem: str | None = None) -> tuple[Exercise, ...]:
    """All exercises, or those of one chapter, in the order of the book."""
    if stem is not None and stem not in CHAPTERS:
        raise ValueError(f"there is no chapter {stem!r} with exercises; there are {', '.join(CHAPTERS)}")
    stems = [stem] if stem else CHAPTERS
    return tuple(item for name in stems for item in _chapter(name))


@functools.cache
def _chapter(stem: str) -> tuple[Exercise, ...]:
    if importlib.util.find_spec(f"{__name__}.{stem}"):
        return tuple(importlib.import_module(f"{__name__}.{stem}").EXERCISES)
    return recorded.load(stem)


def exercise(id: str) -> Exercise:
    """The exercise with this id. Raises ValueError with the near names when there is none."""
    known = {item.id: item for item in exercises()}
    if id not in known:
        import difflib

        close = difflib.get_close_matches(str(id), known, n=3, cutoff=0.4) or list(known)
        raise ValueError(f"there is no exercise {id!r}; did you mean {', '.join(close)}?")
    return known[id]

