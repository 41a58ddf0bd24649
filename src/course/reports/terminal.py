"""Print what grading found."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from course.classroom.names import shown
from course.grade.batch import Graded

COLOURS = {"pass": "green", "policy": "magenta", "missing": "yellow", "infra": "cyan"}


def print_graded(graded: Graded, console: Console) -> None:
    """A table of verdicts, then the details of each answer that earned nothing."""
    failed = sum(mark.verdict == "infra" for mark in graded.marks)
    more = f", so far: the grader failed on {failed}" if failed else ""
    title = f"{shown(graded.student)}, {graded.stem}: {graded.points} of {graded.possible} points{more}"
    table = Table(title=Text(title), title_justify="left")
    for name in ("exercise", "verdict", "points", "mistake"):
        table.add_column(name, justify="right" if name == "points" else "left")
    for mark in graded.marks:
        table.add_row(
            Text(mark.id),
            Text(mark.verdict, style=COLOURS.get(mark.verdict, "red")),
            f"{'–' if mark.verdict == 'infra' else mark.points} / {mark.possible}",
            Text(mark.mistake),
        )
    console.print(table)
    if graded.unreadable:
        console.print(Text(f"unreadable: {graded.unreadable}"))
    for warning in graded.warnings:
        console.print(Text(f"note: {warning}"))
    for mark in graded.marks:
        if mark.details and mark.verdict not in {"missing", "unreadable"}:
            console.print(Text(mark.details))


def print_notes(notes: list[str], console: Console, most: int = 12) -> None:
    """What there is to say about a class, the first few of it."""
    for note in notes[:most]:
        console.print(f"note: {shown(note)}", markup=False, highlight=False, soft_wrap=True)
    if len(notes) > most:
        console.print(f"and {len(notes) - most} more notes: overview.html has all of them")
