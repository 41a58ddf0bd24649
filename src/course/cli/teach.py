"""For who teaches: grade, merge, collect, new-class, release, graft, nbval."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from course.cli.command import Panel, add

Roster = Annotated[Path | None, typer.Option(help="CSV file with the columns match,student")]
SettingsFile = Annotated[Path | None, typer.Option(help="course.toml: what counts, and what students are shown")]
Output = Annotated[Path, typer.Option("-o", "--output", help="a folder, or for one notebook a notebook")]
Workers = Annotated[int, typer.Option(help="how many at a time (default: one for each core)")]


def Flag(name: str, help: str) -> object:
    """A switch that is off unless it is named."""
    return Annotated[bool, typer.Option(name, help=help)]


def add_to(app: typer.Typer) -> None:
    """Register these subcommands."""
    for name, function in {"grade": grade, "merge": merge, "collect": collect, "new-class": new_class,
                           "release": release, "graft": graft, "nbval": nbval}.items():
        add(app, Panel.TEACH, name, function)


def grade(
    paths: Annotated[list[Path], typer.Argument(help="notebooks, or folders of them")],
    report: Annotated[Path | None, typer.Option(help="write reports here; run again to resume or to add "
                                                "submissions")] = None,
    settings: SettingsFile = None,
    roster: Roster = None,
    student: Annotated[str | None, typer.Option(help="all of it is this student's, whatever files are called")] = None,
    gradescope: Annotated[Path | None, typer.Option(metavar="METADATA", help="all of it is the student's who stands in "
                                                    "Gradescope's submission_metadata.json")] = None,
    workers: Workers = 0,
    shard: Annotated[str | None, typer.Option(help="grade only part i of n: i/n")] = None,
    rerun: Annotated[list[str] | None, typer.Option(metavar="ID", help="grade this exercise again")] = None,
    all_attempts: Flag("--all-attempts", "not only each student's latest submission") = False,
    require_sandbox: Flag("--require-sandbox", "refuse to grade without a sandbox") = False,
    ray: Annotated[str | None, typer.Option(metavar="ADDRESS", help="grade on a Ray cluster, with --report: auto or "
                                            "HOST:PORT")] = None,
    backend: Annotated[Literal["bwrap", "landlock", "none"] | None, typer.Option(help="start with this "
                                                                                 "sandbox")] = None,
) -> int:
    """Grade notebooks: answers run in a sandbox on hidden inputs.

    Exit status 0: graded, whatever the points; 1: something must be run again (infra).
    """
    from course.running import sandbox, zygote

    probe = sandbox.probe(backend)
    launched = zygote.launch(probe.backend) if zygote.HAS_FORK and not ray else None
    try:  # the process imports its libraries while this one imports its own
        with zygote.importing():
            from course import specs
            from course.reports import class_run

            specs.exercises()
        order = class_run.Order(paths, report, settings, roster, student, gradescope, workers, shard,
                                frozenset(rerun or ()), all_attempts, require_sandbox, ray, backend)
        return _grade(class_run.ClassRun(order, probe), launched)
    finally:
        if launched is not None:
            launched.close(at_once=True)


def _grade(run, launched) -> int:
    """Carry a run out, and say how it goes."""
    from rich.console import Console
    from rich.progress import Progress

    from course.reports.terminal import print_graded, print_notes

    console, report = Console(), run.order.report
    for note in run.probe.notes:
        console.print(f"sandbox: {note}", markup=False)
    if run.probe.backend == "none":
        console.print("no sandbox works here: these results are advisory, grade only people you trust")
    with Progress(console=console, disable=not report or not console.is_terminal) as progress:
        task = progress.add_task("grading", total=len(run.handed))
        stream = run.stream(launched)
        try:
            for graded in stream:
                progress.advance(task)
                if not report:
                    print_graded(graded, console)
        except KeyboardInterrupt:
            stream.close()  # what runs now ends first, and its marks count
            console.print(f"stopped: {len(run.done)} of {len(run.handed)} submissions are graded whole; the "
                          f"{len(run.marks.kept)} marks made until now are kept, so that no answer of these is run "
                          "twice. Run it again to go on")
            return 130
    if run.lost:
        console.print(f"{len(run.lost)} submissions were lost with their machine and sent once more")
    if report:
        print_notes(run.publish(), console)
        console.print(f"{len(run.done)} submissions graded ({run.probe.label}); reports in {report}: overview.html "
                      "first, then grades.csv, and students/*/feedback.html to hand out", markup=False, soft_wrap=True)
    if run.failed:
        console.print(f"{run.failed} answers could not be graded because the grader failed; run again to grade them")
    return 1 if run.failed else 0


def merge(
    folders: Annotated[list[Path], typer.Argument(help="report folders of `course grade --shard`")],
    report: Annotated[Path, typer.Option(help="write the reports of all here")],
    settings: SettingsFile = None,
    roster: Annotated[Path | None, typer.Option(help="names by match, as in `course grade`; its other columns (ID, "
                                                "Email address ...) go into the gradebooks")] = None,
) -> int:
    """Join the reports of shards."""
    from rich.console import Console

    from course.classroom import settings as reading
    from course.classroom.roster import roster_rows
    from course.reports import merge as merging
    from course.reports import publish
    from course.reports.terminal import print_notes

    enrolled = roster_rows(roster) if roster else []
    graded = merging.merge(folders, {row.match: row.student for row in enrolled})
    people = {row.student: row.columns for row in enrolled}
    chosen = reading.read(settings)
    notes = [*publish.to_do(graded, chosen, people), *merging.versions_differ(graded)]
    publish.publish(graded, report, chosen, people, notes)
    print_notes(notes, Console())
    print(f"{len(graded)} submissions of {len(folders)} shards; reports in {report}")
    return 0


def collect(
    roster: Annotated[Path, typer.Argument(help="CSV file with the columns match,student,repository")],
    output: Output,
    shard: Annotated[str | None, typer.Option(help="only part i of n of the roster: i/n")] = None,
    ref: Annotated[str, typer.Option(help="branch or tag to read (default: the repository's own)")] = "HEAD",
) -> int:
    """Fetch the notebooks of a roster's repositories, as data."""
    from course.classroom import collect as collecting
    from course.classroom.names import shown
    from course.classroom.roster import roster_rows

    rows = collecting.part_of(roster_rows(roster), shard)
    found = collecting.collect(rows, output, ref)
    for one in found:
        print(f"{shown(one.row.student)}: {one.problem or f'{len(one.notebooks)} notebooks'}")
        for note in one.notes:
            print(f"  note: {note}")
    broken = sum(bool(one.problem) for one in found)
    print(f"{sum(len(one.notebooks) for one in found)} notebooks of {len(found)} students in {output}")
    if broken:
        print(f"{broken} repositories could not be read; run again to fetch them")
    return 1 if broken else 0


def new_class(
    folder: Annotated[Path, typer.Argument(help="a new folder")],
    course: Annotated[str | None, typer.Option(metavar="OWNER/NAME", help="the course on GitHub (default: this "
                                               "checkout's)")] = None,
    ref: Annotated[str | None, typer.Option(help="the commit of the course that grades (default: this "
                                            "checkout's)")] = None,
    shards: Annotated[int, typer.Option(help="jobs that grade side by side")] = 4,
    local: Flag("--local", "only settings and roster, to grade on this machine; so it is anyway where this copy of the "
                           "course does not come from GitHub") = False,
) -> int:
    """Write what grades a class: settings, roster, what GitHub or Gradescope runs."""
    from course.classroom.new_class import new_class as make
    from course.classroom.new_class import on_github

    elsewhere = not (local or course or on_github())
    local = local or elsewhere
    for path in make(folder, course, ref, shards, local):
        print(path)
    if elsewhere:
        print("this copy of the course does not come from GitHub, so what grades there was left out: name it by "
              "--course OWNER/NAME, in another new folder, to have that too")
    if local:
        toml, roster = folder / "course.toml", folder / "roster.csv"
        print(f"next: fill in {roster} (match,student), then `course grade SUBMISSIONS --roster {roster} "
              f"--settings {toml} --report REPORT`")
        return 0
    print("next: put it into a private repository, fill in roster.csv and set the secrets README.md names")
    return 0


def release(
    folder: Annotated[Path, typer.Argument(help="a new folder, or that of an earlier release")],
    roster: Annotated[Path | None, typer.Option(help="also write each student's notebooks, with constants of their "
                                                "own")] = None,
) -> int:
    """Write the student edition: no solutions, no hidden cases."""
    from rich.console import Console

    from course.authoring.release import release as make
    from course.classroom.roster import roster_rows

    rows = roster_rows(roster) if roster else None
    folder = folder.resolve()
    with Console(stderr=True).status("writing the student edition: every public case is recorded, about a minute"):
        done = make(folder, rows)
    for name in done.removed:
        print(f"removed: {name}")
    print(f"{done.folder}: {done.files} files, {len(done.written)} new or changed")
    if rows:
        print(f"notebooks of {len(rows)} students in {done.folder / 'students'}: hand each out to its owner alone")
    print("answers of a public course are public: hidden inputs, named mistakes and questions in person protect grades")
    return 0


def graft(
    submission: Annotated[Path, typer.Argument(help="a notebook, or a folder of them")],
    output: Output,
    roster: Roster = None,
    settings: Annotated[Path | None, typer.Option(help="course.toml, which says whether students have own "
                                                  "constants")] = None,
) -> int:
    """Make graded copies of submissions that nbval can run safely."""
    from course.classroom import identity
    from course.classroom import settings as reading
    from course.classroom.names import shown
    from course.classroom.roster import enrolled_only, read_roster
    from course.grade import nbval_route
    from course.grade.graft import graft as make
    from course.notebooks.submission import Unreadable

    chosen = reading.read(settings)
    enrolled = read_roster(roster) if roster else None
    if not submission.is_dir():
        student = ""
        if chosen.variants:
            found = identity.find([submission], enrolled)
            enrolled_only(found, enrolled)
            student = found[0].student
        try:
            read = make(submission, output, student=student)
        except Unreadable as error:
            raise ValueError(f"{submission}: {error}") from None
        for warning in read.warnings:
            print(f"note: {warning}")
        print(f"{output}: {len(read.answers)} answers; run `pytest --nbval {output}`")
        return 0
    if submission.resolve() in [output.resolve(), *output.resolve().parents]:
        raise ValueError(f"{output} lies in {submission}, where it would be taken for a submission next time: name a "
                         "folder outside")
    handed, _ = identity.choose(identity.find([submission], enrolled), chosen.attempts, chosen.attempt)
    if chosen.variants:
        enrolled_only(handed, enrolled)
    for entry in nbval_route.graft_all(handed, output, chosen.variants):
        print(shown(f"{entry.student}: {entry.notebook or f'unreadable: {entry.unreadable}'}"))
    print(f"{len(handed)} submissions in {output}; run `course nbval {output}`")
    return 0


def nbval(
    folder: Annotated[Path, typer.Argument(help="what `course graft FOLDER` made")],
    against: Annotated[Path | None, typer.Option(metavar="REPORT", help="compare with the report of `course "
                                                 "grade`")] = None,
    workers: Workers = 0,
) -> int:
    """Run pytest --nbval on what `course graft FOLDER` made, and read the grades.

    Exit status 0: graded; 1: the grader failed somewhere, or differs from the report it is compared with.
    """
    from course.classroom.names import shown
    from course.grade import nbval_route
    from course.reports.merge import merge as read

    entries = nbval_route.run_all(folder, workers)
    for entry in entries:
        failed = sum(verdict == "infra" for verdict in entry.verdicts.values())
        more = f", {len(entry.verdicts) - failed} exercises graded, the grader failed on {failed}" if failed else ""
        print(f"{shown(entry.student)}, {entry.stem}: {entry.points} of {entry.possible} points{more}")
    differing = nbval_route.differences(entries, read([against])) if against else []
    for line in differing:
        print(f"differs: {shown(line)}")
    if against and not differing:
        print(f"both routes agree on all {sum(len(entry.verdicts) for entry in entries)} verdicts")
    failed = any("infra" in entry.verdicts.values() for entry in entries)
    return 1 if differing or failed else 0
