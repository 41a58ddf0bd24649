"""CSV: all grades, all exercises, and what Canvas and Moodle import."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

from course.chapters import file_stem
from course.classroom.names import plain
from course.classroom.settings import Settings
from course.grade.batch import Graded
from course.reports.score import by_student, counted, not_graded, ordered, points_of, score

CANVAS = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")
MOODLE = ("Full name", "Identifier", "Email address", "ID number")
# What a spreadsheet takes for a formula, at the start of a cell or after what may separate cells where it is opened.
FORMULA = re.compile(r"(?:^|(?<=[;\t\r\n]))(?= *[=+\-@\uff1d\uff0b\uff0d\uff20])|^(?=[\t\r\n])")


def grades_csv(graded: list[Graded], settings: Settings) -> str:
    rows: list[tuple] = [("student", "chapter", "points", "possible", "counts", "late", "not_graded", "unreadable",
                          "look_at", "file")]
    counts = {id(item) for item in counted(graded, settings)}
    for item in ordered(graded):
        rows.append((item.student, item.stem, _cell(points_of(item, settings)), _cell(score(item, settings)[1]),
                     "yes" if id(item) in counts else "no, another attempt", "late" if item.late else "",
                     "; ".join(not_graded(item, settings)), item.unreadable, "; ".join(item.look_at),
                     Path(item.path).name))
    return _csv(rows)


def exercises_csv(graded: list[Graded], settings: Settings) -> str:
    rows = [("student", "exercise", "verdict", "points", "possible", "mistake", "file")]
    for item in ordered(graded):
        for mark in item.marks:
            weight = settings.weight(mark.id)
            points = None if mark.verdict == "infra" else mark.points * weight
            rows.append((item.student, mark.id, mark.verdict, _cell(points), _cell(mark.possible * weight),
                         mark.mistake, Path(item.path).name))
    return _csv(rows)


def gradebook_csv(graded: list[Graded], settings: Settings, columns: tuple[str, ...], people: dict[str, dict],
                  possible_row: bool = False) -> str:
    """What a learning platform imports: a row for each student, a column for each chapter, named as its notebook.

    columns: the platform's own, to tell students by; the first holds the name, ``ID`` and ``Identifier`` the number
    that the platform put into a file's name, unless ``people`` (columns of the roster, by student) knows better. A
    chapter that was not handed in, or that the grader itself failed on, is left empty: nobody gets a zero unasked.
    """
    graded = counted(graded, settings)
    stems = sorted({item.stem for item in graded if item.stem}, key=file_stem)
    rows = [(*columns, *(file_stem(stem) for stem in stems))]
    if possible_row:
        most = {item.stem: score(item, settings)[1] for item in graded}
        rows.append(("Points Possible", *[""] * (len(columns) - 1), *(_cell(most[stem]) for stem in stems)))
    for student, items in by_student(graded).items():
        known = people.get(student, {})
        numbers = {item.lms_id for item in items if item.lms_id}
        number = numbers.pop() if len(numbers) == 1 else ""  # several (Moodle, a new one an assignment): none is theirs
        defaults = {"ID": number, "Identifier": f"Participant {number}" if number else ""}
        points = {item.stem: _cell(points_of(item, settings)) for item in items}
        rows.append((student, *(known.get(name) or defaults.get(name, "") for name in columns[1:]),
                     *(points.get(stem, "") for stem in stems)))
    return _csv(rows)


def _cell(points: float | None) -> str:
    return "" if points is None else f"{points:.10g}"


def _csv(rows: list[tuple]) -> str:
    """CSV text; a cell that a spreadsheet would run as a formula gets an apostrophe, what cannot be seen is shown."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    for row in rows:
        writer.writerow([FORMULA.sub("'", plain(str(cell))) for cell in row])
    return file.getvalue()
