"""Which source did the learner run for an exercise? Remembered as each cell is run; a marker names the exercise."""

from __future__ import annotations

import ast
import re
import sys
from typing import Any

from course import syntax

LONGEST = 100_000  # characters; no stub is nearly as long, and parsing more takes its time
MARKER = re.compile(r"^\s*#\s*answer\s*:\s*([\w.\-]+)\s*$")

_sources: dict[str, str] = {}


def marked_id(source: str) -> str | None:
    """The exercise id in the first non-empty line of a cell, or None."""
    for line in source.splitlines():
        if line.strip():
            match = MARKER.match(line)
            return match.group(1) if match else None
    return None


def is_stub(source: str) -> bool:
    """Has the learner not begun yet? The stub says where to begin, and raises there.

    The two lines may be left standing below a finished answer, where nothing reaches them.
    """
    lines = [line.strip() for line in source.splitlines()]
    asks = any(
        line == "# YOUR CODE HERE" and following.startswith("raise NotImplementedError")
        for line, following in zip(lines, lines[1:])
    )
    return asks and len(source) <= LONGEST and _stub_is_reached(source)


def _stub_is_reached(source: str) -> bool:
    """Does a ``raise NotImplementedError`` stand where no statement of its own block has left before it?"""
    try:
        tree = syntax.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True
    for node in syntax.walk(tree):
        for block in (getattr(node, name, None) for name in ("body", "orelse", "finalbody")):
            for statement in block if isinstance(block, list) else ():
                if isinstance(statement, ast.Raise) and "NotImplementedError" in ast.dump(statement):
                    return True
                if isinstance(statement, (ast.Return, ast.Raise)):
                    break
    return False


def _remember(info: Any) -> None:
    source = getattr(info, "raw_cell", None) or ""
    name = marked_id(source)
    if name:
        _sources[name] = source


def watch() -> None:
    """Start to remember answer cells of the running notebook; harmless when there is none or when called again."""
    notebook = shell()
    if notebook is None or getattr(notebook, "_course_watch", False):
        return
    notebook._course_watch = True
    notebook.events.register("pre_run_cell", _remember)
    for source in notebook.user_ns.get("In", []):
        name = marked_id(source)
        if name:
            _sources[name] = source


def source_for(exercise_id: str) -> str | None:
    """The last source run for this exercise, or None."""
    return _sources.get(exercise_id)


def remember(exercise_id: str, source: str) -> None:
    """Set the source for an exercise by hand (scripts and tests)."""
    _sources[exercise_id] = source


def defined_in_notebook(name: str) -> bool:
    """Does the notebook define this name, in whatever cell?"""
    notebook = shell()
    return notebook is not None and name in notebook.user_ns


def shell() -> Any:
    """The notebook's shell. Where nobody has imported IPython there is none, and it is not imported to be asked."""
    interactive = sys.modules.get("IPython")
    return interactive.get_ipython() if interactive is not None else None
