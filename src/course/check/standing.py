"""Where a learner stands: by chapter what is solved, what was tried, and what comes next. Practice, never a grade."""

from __future__ import annotations

import functools
import importlib.util
import io
from dataclasses import dataclass
from pathlib import Path

from course.chapters import file_stem
from course.check import progress
from course.specs import CHAPTERS, exercises
from course.specs.exercise import Exercise

WIDTH = 100


@dataclass(frozen=True)
class Row:
    """One exercise and what is noted of it."""

    exercise: Exercise
    tries: int = 0
    solved: bool = False
    was_solved: bool = False
    mistake: str = ""

    @property
    def state(self) -> str:
        if self.solved:
            return "solved"
        if self.was_solved:
            return "solved before"
        return "tried" if self.tries else ""


@dataclass(frozen=True)
class Chapter:
    """The exercises of one notebook."""

    stem: str
    rows: tuple[Row, ...]

    @property
    def begun(self) -> bool:
        return any(row.tries for row in self.rows)

    @property
    def tried(self) -> int:
        return sum(row.tries > 0 for row in self.rows)

    def part(self, core: bool) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.exercise.core == core)


def solved(rows: tuple[Row, ...]) -> tuple[int, int]:
    """How many are solved, of how many."""
    return sum(row.solved for row in rows), len(rows)


def points(rows: tuple[Row, ...]) -> tuple[int, int]:
    """Points by the learner's own checks, of how many."""
    return sum(row.exercise.points for row in rows if row.solved), sum(row.exercise.points for row in rows)


@dataclass(frozen=True)
class Status:
    """All chapters. A notebook shows it as HTML, anything else as text."""

    chapters: tuple[Chapter, ...]
    note: str = ""

    def __repr__(self) -> str:
        return text(self)

    def _repr_html_(self) -> str:
        return rich_html(self)


def status(folder: Path | None = None) -> Status:
    """What is solved, what was tried and what comes next, as noted by the checks in the work folder."""
    try:
        state = progress.read(folder)
    except FileNotFoundError as error:  # no course folder: a notebook that was opened somewhere else
        state = progress.Progress(note=str(error))
    chapters = []
    for stem in CHAPTERS:
        noted = ((item, state.entries.get(item.id, {})) for item in exercises(stem))
        rows = (Row(item, entry.get("tries", 0), entry.get("solved", False), entry.get("was_solved", False),
                    entry.get("mistake", "")) for item, entry in noted)
        chapters.append(Chapter(stem, tuple(rows)))
    return Status(tuple(chapters), state.note)


def suggestion(chapters: tuple[Chapter, ...]) -> Exercise | None:
    """What to do next: the first unsolved core exercise of the first chapter begun, then of those that follow.

    When no core exercise is left, the first unsolved extra one in the same order; None when all is solved. Kernels are
    left out where there is no Triton to run them.
    """
    first = next((i for i, chapter in enumerate(chapters) if chapter.begun), 0)
    ordered = [row for chapter in (*chapters[first:], *chapters[:first]) for row in chapter.rows]
    kernels = importlib.util.find_spec("triton") is not None
    left = [row.exercise for row in ordered if not row.solved and (kernels or row.exercise.track != "kernel")]
    return next((item for item in left if item.core), left[0] if left else None)


def next_line(chapters: tuple[Chapter, ...]) -> str:
    """The suggestion in words."""
    item = suggestion(chapters)
    if item is None:
        left = sum(not row.solved for chapter in chapters for row in chapter.rows)
        return f"all but {left} kernels are solved; they need Triton" if left else "all exercises are solved"
    kind = "core" if item.core else "extra; all core exercises are solved"
    return f"next: {item.id} in {file_stem(item.stem)}.ipynb: {item.title} ({kind}, about {item.minutes} minutes)"


def of(counts: tuple[int, int]) -> str:
    """"2 of 3", or nothing where there are none."""
    return f"{counts[0]} of {counts[1]}" if counts[1] else ""


COLUMNS = ("chapter", "tried", "core solved", "points", "extra solved", "points")


def cells(chapter: Chapter) -> tuple[str, ...]:
    """One chapter's line of the table, in the order of COLUMNS: of core and extra exercises how many are solved."""
    core, extra = chapter.part(True), chapter.part(False)
    tried = f"{chapter.tried} of {len(chapter.rows)}"
    return (file_stem(chapter.stem), tried, of(solved(core)), of(points(core)), of(solved(extra)), of(points(extra)))


def total(status: Status) -> tuple[str, ...]:
    rows = tuple(row for chapter in status.chapters for row in chapter.rows)
    return ("all", *cells(Chapter(status.chapters[0].stem, rows))[1:])


DETAILS = ("exercise", "", "points", "tries", "last mistake")


def details(row: Row) -> tuple[str, ...]:
    """One exercise's line, in the order of DETAILS."""
    kind = "core" if row.exercise.core else "extra"
    return (row.exercise.id, row.state, f"{row.exercise.points} {kind}", str(row.tries or ""),
            "" if row.solved else row.mistake)


def show(status: Status, console, stem: str | None = None) -> None:
    """Print with rich: the overview, then the exercises of every chapter begun (or of chapter ``stem`` alone)."""
    from rich.table import Table
    from rich.text import Text

    def table(columns, right):
        made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        for name in columns:
            made.add_column(name, justify="right" if name in right else "left", no_wrap=name != "last mistake")
        return made

    if stem is None:
        overview = table(COLUMNS, COLUMNS[1:])
        for chapter in status.chapters:
            overview.add_row(*cells(chapter))
        overview.add_row(*total(status), style="bold")
        console.print(overview)
    for chapter in status.chapters:
        if chapter.stem != stem and (stem is not None or not chapter.begun):
            continue
        console.print(f"\n{file_stem(chapter.stem)}", style="bold", highlight=False)
        inside = table(DETAILS, ("tries",))
        colours = {"solved": "green", "": ""}
        for row in chapter.rows:
            shown = [Text(cell) for cell in details(row)]
            shown[1].stylize(colours.get(row.state, "yellow"))
            inside.add_row(*shown)
        console.print(inside)
    said = ["", next_line(status.chapters), "counted by your own checks; your teacher's grader gives the points"]
    console.print("\n".join([*said, *([status.note] if status.note else [])]), markup=False, soft_wrap=True)


def text(status: Status) -> str:
    """The same as plain text."""
    from rich.console import Console

    stream = io.StringIO()
    show(status, Console(file=stream, width=WIDTH, color_system=None, legacy_windows=False))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


@functools.cache
def _template():
    import jinja2  # not at the top: a shell shows no HTML

    folder = jinja2.FileSystemLoader(Path(__file__).with_name("templates"))
    made = jinja2.Environment(loader=folder, autoescape=True, undefined=jinja2.StrictUndefined)
    return made.get_template("status.html")


def rich_html(status: Status) -> str:
    """The same as HTML, legible in a light and a dark theme; the colours of the theme are used as they come."""
    rows = tuple(row for chapter in status.chapters for row in chapter.rows)
    begun = [{"name": file_stem(chapter.stem), "rows": [(row.solved, details(row)) for row in chapter.rows]}
             for chapter in status.chapters if chapter.begun]
    return _template().render(
        columns=COLUMNS, detail_columns=DETAILS, begun=begun, next=next_line(status.chapters), note=status.note,
        chapters=[(cells(chapter), _share(chapter.rows)) for chapter in status.chapters],
        total=(total(status), _share(rows)),
    )


def _share(rows: tuple[Row, ...]) -> int:
    """Points reached, in percent."""
    reached, possible = points(rows)
    return round(100 * reached / max(1, possible))
