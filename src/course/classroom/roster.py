"""Who is in the class: a CSV file that says what names of files and folders hold, and whose they are."""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from pathlib import Path

from course.classroom.identity import Handed
from course.classroom.names import folded, nfc


@dataclass(frozen=True)
class Enrolled:
    """One row of a roster: what names of files and folders hold, who that is, where their repository is."""

    match: str
    student: str
    repository: str = ""
    columns: dict[str, str] = field(default_factory=dict, hash=False)  # all others, by name: for a gradebook


def roster_rows(path: Path) -> list[Enrolled]:
    """The rows of a roster: a CSV file with the columns ``match`` and ``student``, and if need be ``repository``.

    Other columns (``ID``, ``SIS Login ID``, ``Email address``) are handed on to the gradebook that asks for them.
    ``match`` is the name of the student's folder, the login in front of a file's name, or other words of the path.
    Raises ValueError that names the row for any other file, and for a student or a match that comes twice.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file))
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: this is not a CSV file in UTF-8 ({error})") from None
    if not rows or not {"match", "student"} <= set(rows[0]):
        raise ValueError(f"{path}: a roster is a CSV file whose first line is match,student (or "
                         "match,student,repository), with a line for each student below it")
    found: list[Enrolled] = []
    seen: dict[str, int] = {}  # line by match
    people: dict[str, int] = {}  # line by name
    for number, row in enumerate(rows, start=2):
        named = {key: nfc((row.pop(key, None) or "").strip()) for key in ("match", "student", "repository")}
        one = Enrolled(**named, columns={key: value.strip() for key, value in row.items() if key and value})
        if not one.match and not one.student:
            continue
        if not one.match or not one.student:
            raise ValueError(f"{path}, line {number}: both match and student are needed")
        if one.match in seen:
            raise ValueError(f"{path}, line {number}: {one.match!r} is there twice (line {seen[one.match]} too), so it "
                             "cannot tell who handed in")
        name = folded(one.student)
        if name in people:
            raise ValueError(
                f"{path}, line {number}: the student {one.student!r} is there twice (line {people[name]} too), and "
                f"both would share one grade. Two people of one name: write {one.student} ({one.match}) here"
            )
        seen[one.match] = people[name] = number
        found.append(one)
    return found


def read_roster(path: Path) -> dict[str, str]:
    """Student by match (see :func:`roster_rows`)."""
    return {row.match: row.student for row in roster_rows(path)}


def enrolled_only(handed: list[Handed], roster: dict[str, str] | None) -> None:
    """Where constants differ from student to student, all must be known. Raises ValueError that names who is not."""
    if not roster:
        raise ValueError("course.toml says variants = true: give --roster, since every student has own constants")
    strange = sorted({item.student for item in handed} - set(roster.values()))
    if strange:
        raise ValueError(f"not in the roster, so their constants are not known: {', '.join(strange)}. "
                         "Add a line for each")
