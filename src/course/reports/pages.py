"""HTML: a feedback page for each student, and the class at a glance. Everything in it is escaped by the templates."""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from course.chapters import file_stem
from course.classroom.names import plain
from course.classroom.settings import Settings
from course.grade.batch import Graded, Mark
from course.reports.score import by_student, counted, not_graded, ordered, score, words
from course.reports.similar import similar
from course.specs import exercises


@functools.cache
def _templates():
    import jinja2  # not at the top: a process that grades need not wait for it

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")), autoescape=True,
        undefined=jinja2.StrictUndefined, finalize=lambda value: plain(value) if type(value) is str else value,
    )


def _page(name: str, **values: Any) -> str:
    return _templates().get_template(name).render(values)


def feedback_page(student: str, items: list[Graded], settings: Settings) -> str:
    """A readable page for one student."""
    counts = counted(items, settings)
    parts = [_part(item, settings) | {"counts": item in counts} for item in items]
    return _page("feedback.html", title=f"Feedback for {student}", parts=parts, several=len(items) > len(counts))


def _part(item: Graded, settings: Settings) -> dict[str, Any]:
    """What the page says of one submission."""
    got, possible = score(item, settings)
    return {
        "chapter": file_stem(item.stem).replace("_", " ") if item.stem else Path(item.path).name,
        "got": got, "possible": possible, "failed": not_graded(item, settings), "unreadable": item.unreadable,
        "warnings": item.warnings, "sandbox": item.sandbox,
        "rows": [_row(mark, settings) for mark in item.marks if settings.weight(mark.id)],
    }


def _row(mark: Mark, settings: Settings) -> dict[str, Any]:
    weight, good = settings.weight(mark.id), mark.verdict == "pass"
    titles = {item.id: item.title for item in exercises()}
    return {
        "id": mark.id, "title": titles.get(mark.id, "no longer part of the course"), "verdict": mark.verdict,
        "good": good, "possible": mark.possible * weight, "says": words(mark, settings),
        "points": "–" if mark.verdict == "infra" else f"{mark.points * weight:.10g}",
        "whole": bool(settings.showing() == "full" and mark.details),
        "reread": "" if good else _place(mark.section),
    }


def _place(section: str) -> str:
    """A section of the book in words: ``04_kv_cache.html#the-race`` is "04 kv cache, the race"."""
    return section.replace(".html#", ", ").removesuffix(".html").replace("_", " ").replace("-", " ")


def overview_page(graded: list[Graded], settings: Settings, notes: list[str] | None = None) -> str:
    """The class at a glance: what is still to do, points by exercise, and which mistakes were made how often."""
    by_exercise: dict[str, list[Mark]] = defaultdict(list)
    for item in counted(graded, settings):
        for mark in item.marks:
            by_exercise[mark.id].append(mark)
    return _page(
        "overview.html", title="The class at a glance", submissions=len(graded), students=len(by_student(graded)),
        notes=notes or [], rows=[_counts(name, marks) for name, marks in by_exercise.items()],
        alike=[f"{name}: {', '.join(who)}" for name, who in similar(graded)],
        odd=[f"{item.student}: {reason}" for item in ordered(graded) for reason in item.look_at],
    )


def _counts(name: str, marks: list[Mark]) -> dict[str, Any]:
    kinds = Counter(mark.verdict for mark in marks if mark.verdict != "pass")
    return {
        "id": name, "passed": sum(mark.verdict == "pass" for mark in marks), "graded": len(marks) - kinds["infra"],
        "kinds": kinds.most_common(),
        "mistakes": Counter(mark.mistake for mark in marks if mark.mistake).most_common(5),
    }
