"""Which edition of an exercise does this notebook hold? Constants may differ from student to student; practice asks the
notebook for them, the grader never does."""

from __future__ import annotations

import ast
from typing import Any

from course.sources import Answer
from course.specs.exercise import Exercise, assignments, substitute

_chosen: dict[str, dict[str, Any]] = {}


def chosen(item: Exercise, source: str = "", constants: dict[str, Any] | None = None) -> Exercise:
    """The edition to practise with: that of the check cell, once it has run, else that of the answer's own constants.

    Raises ValueError for constants that the exercise does not know.
    """
    if not item.variants and not constants:
        return item
    if constants:
        _chosen[item.id] = dict(constants)
    mine = _chosen.get(item.id) or _assigned(item, source)
    return item.for_student(mine) if mine else item


def of_notebook(notebook: dict, item: Exercise) -> dict[str, Any]:
    """The constants that a student's notebook was written with; empty when it is as the course prints it."""
    metadata = notebook.get("metadata")
    course = metadata.get("course") if isinstance(metadata, dict) else None
    editions = course.get("constants") if isinstance(course, dict) else None
    mine = editions.get(item.id) if isinstance(editions, dict) else None
    if not isinstance(mine, dict):
        return {}
    return {name: value for name, value in mine.items() if value in item.variants.get(name, ())}


def with_constants(notebook: dict, constants: dict[str, dict]) -> dict:
    """A released notebook with these constants, by exercise id: in the stub, in the task's words, in the check.

    The notebook is changed and returned. Its cells are handed out like that, so their digests are of the new text.
    """
    for cell in notebook["cells"]:
        source = cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])
        ours = cell["metadata"].get("course", {})
        key = ours.get("key", "")
        mine = constants.get(key.removesuffix("-task"))
        if mine:
            told = assignments(mine).replace(" = ", "=")
            source = substitute(source, mine).replace(f'check("{key}")', f'check("{key}", {told})')
            cell["source"] = source.splitlines(keepends=True)
            ours["stub"] = Answer(source).digest
    notebook["metadata"]["course"]["constants"] = {name: mine for name, mine in constants.items() if mine}
    return notebook


def _assigned(item: Exercise, source: str) -> dict[str, Any]:
    """Constants that the answer assigns at its top level, where one of them is not the printed one."""
    tree = Answer.of(source).tree
    found = {}
    for node in tree.body if tree is not None else ():
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            for target in node.targets:
                if isinstance(target, ast.Name) and node.value.value in item.variants.get(target.id, ()):
                    found[target.id] = node.value.value
    return found if any(value != item.variants[name][0] for name, value in found.items()) else {}
