"""Whose answers are the same once names and layout are taken away."""

from __future__ import annotations

from collections import defaultdict

from course.grade.batch import Graded


def similar(graded: list[Graded]) -> list[tuple[str, list[str]]]:
    """Exercises whose answers by different students have the same syntax tree, names and texts apart."""
    groups: dict[tuple[str, str], set[str]] = defaultdict(set)
    for item in graded:
        for name, shape in item.shapes.items():
            groups[name, shape].add(item.student)
    return sorted((name, sorted(who)) for (name, _), who in groups.items() if len(who) > 1)
