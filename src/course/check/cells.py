"""Which source did the learner run for an exercise? Remembered as each cell is run; a marker names the exercise."""

from __future__ import annotations

import re
import sys
from typing import Any

from course.sources import Answer, as_code, defined_in, split_at_markers

MARKED = re.compile(r"^\s*#\s*answer\s*:", re.M)
_sources: dict[str, Answer] = {}
_unmarked: set[str] = set()  # names defined by cells without a marker, since the marked one last ran


def _remember(info: Any) -> None:
    _note(getattr(info, "raw_cell", None) or "")


def _note(source: str) -> None:
    for part in split_at_markers(Answer(source)):
        if part.marked_id:
            _sources[part.marked_id] = as_code(part)
            _unmarked.discard(part.marked_id.rpartition(".")[2])
    if not MARKED.search(source):
        _unmarked.update(defined_in(as_code(source)))


def watch() -> None:
    """Start to remember answer cells of the running notebook; harmless when there is none or when called again."""
    notebook = shell()
    if notebook is None or getattr(notebook, "_course_watch", False):
        return
    notebook._course_watch = True
    notebook.events.register("pre_run_cell", _remember)
    for source in notebook.user_ns.get("In", []):
        _note(source)


def source_for(exercise_id: str) -> Answer | None:
    """The last source run for this exercise, or None."""
    return _sources.get(exercise_id)


def remember(exercise_id: str, source: str) -> None:
    """Set the source for an exercise by hand (scripts and tests)."""
    _sources[exercise_id] = Answer.of(source)


def written_unmarked(entry: str) -> bool:
    """Has a cell without a marker defined this name after the marked one was run?"""
    return entry in _unmarked


def defined_in_notebook(name: str) -> bool:
    """Does the notebook define this name, in whatever cell?"""
    notebook = shell()
    return notebook is not None and name in notebook.user_ns


def shell() -> Any:
    """The notebook's shell. Where nobody has imported IPython there is none, and it is not imported to be asked."""
    interactive = sys.modules.get("IPython")
    return interactive.get_ipython() if interactive is not None else None
