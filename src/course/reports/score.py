"""What counts: of whose attempts, with which weight, and what is still open."""

from __future__ import annotations

import dataclasses
from collections import defaultdict

from course.classroom.settings import Settings
from course.grade.batch import Graded, Mark


def not_graded(item: Graded, settings: Settings) -> list[str]:
    """Exercises that count and that the grader itself failed on."""
    return [mark.id for mark in item.marks if mark.verdict == "infra" and settings.weight(mark.id)]


def counted(graded: list[Graded], settings: Settings) -> list[Graded]:
    """Of each student's chapter the attempt that counts: `--all-attempts` reports several, and none counts twice."""
    in_time = sorted(graded, key=lambda item: (item.attempt, item.when, item.path))
    if settings.attempt == "best":
        return best(in_time, settings)
    return list({(item.student, item.stem or item.path): item for item in in_time}.values())


def by_student(graded: list[Graded]) -> dict[str, list[Graded]]:
    """Submissions by student, both in order of name."""
    found: dict[str, list[Graded]] = defaultdict(list)
    for item in ordered(graded):
        found[item.student].append(item)
    return found


def ordered(graded: list[Graded]) -> list[Graded]:
    """By student, chapter and file."""
    return sorted(graded, key=lambda item: (item.student, item.stem, item.path))


def score(item: Graded, settings: Settings) -> tuple[float, float]:
    """Weighted points and possible points of a submission."""
    return settings.score(item.marks)


def best(graded: list[Graded], settings: Settings) -> list[Graded]:
    """Of each student's graded attempts at a chapter the one with most points; of equals the last in the list.

    Where the grader failed, full points are reckoned with: which attempt is the best is not known until it is mended.
    """
    kept: dict[tuple[str, str], Graded] = {}
    for item in graded:
        key = (item.student, item.stem or item.path)
        if key not in kept or _at_most(item, settings) >= _at_most(kept[key], settings):
            kept[key] = item
    return list(kept.values())


def _at_most(item: Graded, settings: Settings) -> float:
    hoped = {mark.id: mark.possible if mark.verdict == "infra" else mark.points for mark in item.marks}
    return settings.score([dataclasses.replace(mark, points=hoped[mark.id]) for mark in item.marks])[0]


def points_of(item: Graded, settings: Settings) -> float | None:
    """Weighted points; None while an exercise that counts could not be graded."""
    return None if not_graded(item, settings) else round(score(item, settings)[0], 6)


def words(mark: Mark, settings: Settings) -> str:
    """What the student reads about a mark."""
    show = settings.showing()
    if show == "full" and mark.details:
        return mark.details
    return mark.says if show != "verdict" or mark.verdict == "pass" else ""
