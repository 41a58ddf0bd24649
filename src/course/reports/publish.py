"""Reports of a class: JSON and a feedback page for each student, CSV files, JUnit, Gradescope, an overview."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from pathlib import Path

from course.classroom.names import folders, lookalikes
from course.classroom.settings import Settings
from course.grade.batch import Graded
from course.reports import gradebook, junit, pages
from course.reports.score import by_student, counted, not_graded, ordered, points_of, score, words


def publish(graded: list[Graded], out: Path, settings: Settings, people: dict[str, dict] | None = None,
            notes: list[str] | None = None) -> None:
    """Write all reports below ``out``. Each file is written whole or not at all.

    people: by student, what a roster says of them besides their name (see :func:`gradebook_csv`); notes: what the
    instructor should know before the grades go out.
    """
    people = people or {}
    places = folders(item.student for item in graded)
    for student, items in sorted(by_student(graded).items()):
        folder = out / "students" / places[student]
        _write(folder / "report.json", _json([_report(item, settings) for item in items]))
        _write(folder / "feedback.html", pages.feedback_page(student, items, settings))
        if any(not_graded(item, settings) for item in items):  # no file: Gradescope says that the autograder failed
            (folder / "results.json").unlink(missing_ok=True)
        else:
            _write(folder / "results.json", _json(gradescope(items, settings)))
    _write(out / "grades.csv", gradebook.grades_csv(graded, settings))
    _write(out / "exercises.csv", gradebook.exercises_csv(graded, settings))
    _write(out / "canvas.csv", gradebook.gradebook_csv(graded, settings, gradebook.CANVAS, people, possible_row=True))
    _write(out / "moodle.csv", gradebook.gradebook_csv(graded, settings, gradebook.MOODLE, people))
    _write(out / "junit.xml", junit.junit(graded))
    _write(out / "overview.html", pages.overview_page(graded, settings, notes))
    _write(out / "grades.json", _json([dataclasses.asdict(item)
                                         for item in ordered(graded)]))
    _write(out / "settings.json", _json(_plain(settings)))
    _tidy(out / "students", set(places.values()))


def _plain(settings: Settings) -> dict:
    return json.loads(json.dumps(dataclasses.asdict(settings), default=str))


def settings_changed(out: Path, settings: Settings) -> list[str]:
    """A note when the last reports in this folder followed other settings; all points follow today's."""
    try:
        before = dict(json.loads((out / "settings.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return []
    now = _plain(settings)
    changed = [f"{key} was {before.get(key)!r} and is {now[key]!r}" for key in now if before.get(key) != now[key]]
    return [f"the settings are not those of the last run: {'; '.join(changed)}. All points are reckoned anew by today's"
            ] if changed else []


def _tidy(students: Path, current: set[str]) -> None:
    """Remove the reports of names that are no longer in the class: a student renamed by a roster has one grade."""
    for folder in students.iterdir() if students.is_dir() else ():
        if folder.name not in current and not folder.is_symlink() and folder.is_dir():
            for name in ("report.json", "feedback.html", "results.json"):
                (folder / name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # somebody put something of their own there
                folder.rmdir()


def to_do(graded: list[Graded], settings: Settings, people: dict[str, dict]) -> list[str]:
    """What an instructor should know before these grades go out, in sentences."""
    said = []
    for item in ordered(graded):
        failed = not_graded(item, settings)
        if failed:
            said.append(f"{item.student}, {item.stem}: the grader failed on {', '.join(failed)}; the points are left "
                        "open, no zero. Run again")
    names = sorted({item.student for item in graded if item.unreadable})
    if names:
        said.append(f"unreadable, and therefore 0 points until a better file comes: {', '.join(names)}")
    if people:
        strange = sorted({item.student for item in graded} - set(people))
        absent = sorted(set(people) - {item.student for item in graded})
        if strange:
            said.append(f"not in the roster: {', '.join(strange)}")
        if absent:
            said.append(f"in the roster, and nothing handed in: {', '.join(absent)}")
    for group in lookalikes(item.student for item in graded):
        said.append(f"names that differ by case or blanks only: {', '.join(map(repr, group))}. If this is one person, "
                    "give a folder one name, or a roster")
    return said


def _report(item: Graded, settings: Settings) -> dict:
    return {
        "v": 1,
        "student": item.student,
        "chapter": item.stem,
        "points": points_of(item, settings),
        "possible": round(score(item, settings)[1], 6),
        "not_graded": not_graded(item, settings),
        "late": item.late,
        "unreadable": item.unreadable,
        "warnings": item.warnings,
        "digest": item.digest,
        "sandbox": item.sandbox,
        "look_at": item.look_at,
        "exercises": [
            {
                "id": mark.id,
                "verdict": mark.verdict,
                "points": None if mark.verdict == "infra" else mark.points * settings.weight(mark.id),
                "possible": mark.possible * settings.weight(mark.id),
                "says": words(mark, settings),
                "reread": "" if mark.verdict == "pass" else mark.section,
            }
            for mark in item.marks
            if settings.weight(mark.id)
        ],
    }


def gradescope(items: list[Graded], settings: Settings) -> dict:
    """Gradescope's results.json for one student."""
    tests = []
    items = counted(items, settings)
    for item in items:
        for mark in item.marks:
            weight = settings.weight(mark.id)
            if weight:
                tests.append(
                    {
                        "name": mark.id,
                        "score": mark.points * weight,
                        "max_score": mark.possible * weight,
                        "status": "passed" if mark.verdict == "pass" else "failed",
                        "output": f"[{mark.verdict}] {words(mark, settings)}".rstrip(),
                        "visibility": "visible",
                    }
                )
    return {
        "score": round(sum(score(item, settings)[0] for item in items), 6),
        "tests": tests,
        "output": "\n".join([*(f"{Path(item.path).name} could not be read: {item.unreadable}" for item in items
                               if item.unreadable), "; ".join(sorted({item.sandbox for item in items}))]),
    }


def _json(data: object) -> str:
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8", errors="replace")
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):  # a read-only file system refuses this too
            temporary.unlink(missing_ok=True)
        raise OSError(
            error.errno,
            f"{error.strerror}: {path} cannot be written. All marks are kept in the folder marks; "
            "make room or name another folder with --report, and run again",
        ) from None
