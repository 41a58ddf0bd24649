"""The command `course`: for learners (status, check, reset, doctor), authors (build, proof), graders (grade, graft)."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path


def main(argv: list[str] | None = None) -> int:
    """Run one subcommand; returns the exit status (0 good, 1 not good, 2 bad usage, 130 interrupted)."""
    arguments = _parser().parse_args(argv)
    if arguments.instructor and importlib.util.find_spec("course.authoring") is None:
        print(f"course: this is a student edition; `course {arguments.command}` belongs to the instructor's edition, "
              "which has the solutions and grades", file=sys.stderr)
        return 2
    try:
        return arguments.run(arguments)
    except KeyboardInterrupt as error:
        print(f"\ninterrupted; {str(error) or 'everything finished so far is kept'}", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 1
    except OSError as error:
        said = f"{error.filename}: {error.strerror}" if error.filename and error.strerror else error.strerror or error
        print(f"course: {said}", file=sys.stderr)
        return 2
    except ValueError as error:
        print(f"course: {error}", file=sys.stderr)
        return 2


INSTRUCTOR = {"build", "proof", "release", "graft", "nbval", "collect", "new-class", "grade", "merge"}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="course", description="The course's own command.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name, function, help):
        command = commands.add_parser(name, help=help, description=help)
        command.set_defaults(run=function, command=name, instructor=name in INSTRUCTOR)
        return command

    command = add("status", status, "show what is solved, what was tried, and what to do next")
    command.add_argument("stem", nargs="?", help="only this chapter, such as kv_cache")
    command = add("check", check, "run the practice checks of a notebook, as its own check cells do")
    command.add_argument("notebook", type=Path)
    command = add("reset", reset, "put the stub back into your copy; your answer is kept beside it")
    command.add_argument("id", help="such as kv_cache.append")
    command = add("start", start, "copy the notebooks you do not have yet to exercises/work")
    add("update", update, "bring your copies to this release: new cells come, your answers and your own cells stay")
    add("doctor", doctor, "say what of the course works on this machine, and how to mend the rest")
    command = add("build", build, "make the notebooks from solutions/*.py")
    command.add_argument("--check", action="store_true", help="change nothing; fail when something would change")
    command = add("proof", proof, "prove every checker: solutions, near-misses, alternates, stubs")
    command.add_argument("stem", nargs="?", help="only this chapter, such as kv_cache")
    command.add_argument("--seeds", type=int, default=20)
    command.add_argument("--mutate", action="store_true",
                         help="change the solutions by machine, and list the changes that all cases let pass")
    command = add("release", release, "write the student edition: no solutions, no hidden cases")
    command.add_argument("folder", type=Path)
    command.add_argument("--roster", type=Path, help="also write each student's notebooks, with constants of their own")
    command = add("graft", graft, "make graded copies of submissions that nbval can run safely")
    command.add_argument("submission", type=Path, help="a notebook, or a folder of them")
    command.add_argument("-o", "--output", type=Path, required=True, help="a notebook, or for a folder a folder")
    command.add_argument("--roster", type=Path, help="CSV file with the columns match,student")
    command.add_argument("--settings", type=Path, help="course.toml, which says whether students have own constants")
    command = add("nbval", nbval, "run pytest --nbval on what `course graft FOLDER` made, and read the grades")
    command.add_argument("folder", type=Path)
    command.add_argument("--against", type=Path, metavar="REPORT", help="compare with the report of `course grade`")
    command.add_argument("--workers", type=int, default=0, help="notebooks at a time (default: one for each core)")
    command = add("collect", collect, "fetch the notebooks of a roster's repositories, as data")
    command.add_argument("roster", type=Path, help="CSV file with the columns match,student,repository")
    command.add_argument("-o", "--output", type=Path, required=True)
    command.add_argument("--shard", help="only part i of n of the roster: i/n")
    command.add_argument("--ref", default="HEAD", help="branch or tag to read (default: the repository's own)")
    command = add("new-class", new_class, "write what grades a class: settings, roster, what GitHub or Gradescope runs")
    command.add_argument("folder", type=Path)
    command.add_argument("--course", metavar="OWNER/NAME", help="the course on GitHub (default: this checkout's)")
    command.add_argument("--ref", help="the commit of the course that grades (default: this checkout's)")
    command.add_argument("--shards", type=int, default=4, help="jobs that grade side by side (default: 4)")
    command.add_argument("--local", action="store_true", help="only settings and roster, to grade on this machine")
    command = add("grade", grade, "grade notebooks: answers run in a sandbox on hidden inputs")
    command.add_argument("paths", type=Path, nargs="+", help="notebooks, or folders of them")
    command.add_argument("--report", type=Path, help="write reports here; run again to resume or to add submissions")
    command.add_argument("--settings", type=Path, help="course.toml: what counts, and what students are shown")
    command.add_argument("--roster", type=Path, help="CSV file with the columns match,student")
    command.add_argument("--student", help="all of it is this student's, whatever files and folders are called")
    command.add_argument("--gradescope", type=Path, metavar="METADATA", help="all of it is the student's who stands in "
                         "Gradescope's submission_metadata.json")
    command.add_argument("--workers", type=int, default=0, help="answers at a time (default: one for each core)")
    command.add_argument("--shard", help="grade only part i of n: i/n")
    command.add_argument("--rerun", action="append", default=[], metavar="ID", help="grade this exercise again")
    command.add_argument("--all-attempts", action="store_true", help="not only each student's latest submission")
    command.add_argument("--require-sandbox", action="store_true", help="refuse to grade without a sandbox")
    command.add_argument("--ray", metavar="ADDRESS", help="grade on a Ray cluster, with --report: auto or HOST:PORT")
    command.add_argument("--backend", choices=("bwrap", "landlock", "none"), help="start with this sandbox")
    command = add("merge", merge, "join the reports of shards")
    command.add_argument("folders", type=Path, nargs="+")
    command.add_argument("--report", type=Path, required=True)
    command.add_argument("--settings", type=Path)
    command.add_argument("--roster", type=Path, help="its other columns (ID, Email address ...) go into the gradebooks")
    return parser


def start(_: argparse.Namespace) -> int:
    """Copy missing notebooks to the work folder; nothing is overwritten."""
    import shutil

    from course import paths
    from course.check import update as updates

    folder = paths.work()
    folder.mkdir(exist_ok=True)
    for notebook in sorted(paths.exercises().glob("*.ipynb")):
        if not (folder / notebook.name).exists():
            shutil.copyfile(notebook, folder / notebook.name)
            print(f"new: exercises/work/{notebook.name}")
    for name in updates.behind(folder, paths.exercises()):
        print(f"{name} is of another release: `course update` brings the new cells and keeps your answers")
    print(f"your copies are in {folder}")
    return 0


def update(_: argparse.Namespace) -> int:
    """Bring the work copies to this release. Exit status 1: a notebook was left alone, and the line says why."""
    from course import paths
    from course.check import update as updates

    paths.work().mkdir(exist_ok=True)
    lines, good = updates.update_folder(paths.work(), paths.exercises())
    print("\n".join(lines))
    if any(updates.BACKUP in line for line in lines):
        print("reload what is open in your editor; to take an old file back, rename it to end in .ipynb")
    return 0 if good else 1


def status(arguments: argparse.Namespace) -> int:
    from rich.console import Console

    from course.check import standing

    if arguments.stem:
        from course.specs import exercises

        exercises(arguments.stem)  # says which chapters there are when there is no such one
    standing.show(standing.status(), Console(), arguments.stem)
    return 0


def check(arguments: argparse.Namespace) -> int:
    from course.check import editions, feedback, judge
    from course.grade import submission as submissions
    from course.grade.grading import exercises_of
    from course.grade.worker import Worker

    try:
        notebook = submissions.read(arguments.notebook)
    except submissions.Unreadable as error:
        raise ValueError(f"{arguments.notebook}: {error}") from None
    items = exercises_of(notebook, arguments.notebook)
    answers = submissions.extract(notebook, arguments.notebook.stem, items).answers
    passed = 0
    with Worker() as worker:
        for item in items:
            source = answers.get(item.id)
            if source is None:
                print(f"{item.id}: no answer found")
                continue
            item = editions.chosen(item, source, editions.of_notebook(notebook, item))
            verdict = judge.practice(item, source, runner=lambda job, item=item: worker.run(job, item.seconds).outcomes)
            passed += verdict.passed
            print(feedback.text(verdict))
    print(f"{passed} of {len(items)} pass their public checks")
    return 0 if passed == len(items) else 1


def reset(arguments: argparse.Namespace) -> int:
    """Put the stub back. The old answer goes to a text file beside the notebook, and says so."""
    import json
    import os
    import time

    from course import paths
    from course.check.cells import marked_id
    from course.specs import exercise, file_stem

    item = exercise(arguments.id)
    name = f"{file_stem(item.stem)}.ipynb"
    path = paths.work() / name
    if not path.is_file():
        raise ValueError(f"you have no copy of {name} yet: `course start` makes one")
    notebook = json.loads(path.read_text(encoding="utf-8-sig"))
    pristine = json.loads((paths.exercises() / name).read_text(encoding="utf-8"))
    text = "".join
    stub = next(cell["source"] for cell in pristine["cells"] if cell.get("id") == item.cell_id)
    hits = [c for c in notebook["cells"] if c.get("id") == item.cell_id or marked_id(text(c["source"])) == item.id]
    if not hits:
        raise ValueError(f"{path} has no cell for {item.id}: add one whose first line is `# answer: {item.id}`")
    backup = path.with_name(f"{item.cell_id}.{time.strftime('%Y%m%d-%H%M%S')}.py")
    backup.write_text("\n\n".join(text(cell["source"]) for cell in hits) + "\n", encoding="utf-8")
    for cell in hits:
        cell["source"] = stub
        cell["outputs"], cell["execution_count"] = [], None
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(temporary, path)
    print(f"{item.id} is as it was given; your answer is kept in {backup.name}. Reload the notebook in your editor.")
    return 0


def doctor(_: argparse.Namespace) -> int:
    from course import health

    return health.report()


def build(arguments: argparse.Namespace) -> int:
    from course.authoring import build as authoring

    if arguments.check:
        differing = authoring.changed()
        for path in differing:
            print(f"differs from its source: {path}")
        print("run `course build` and commit the result" if differing else "all notebooks agree with their sources")
        return 1 if differing else 0
    for path in authoring.build():
        print(path)
    return 0


def proof(arguments: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.table import Table

    if arguments.mutate:
        return _mutate(arguments.stem)
    from course.authoring.proof import prove

    rows = prove(arguments.stem, arguments.seeds)
    table = Table()
    for name in ("exercise", "solution", "near-misses named", "alternates pass", "stub", "proved"):
        table.add_column(name)
    for row in rows:
        item = row.exercise
        name = f"{item.id}, {row.edition}" if row.edition else item.id
        table.add_row(name, f"{row.seeds} seeds", f"{row.near_misses} of {len(item.near_misses)}",
                      f"{row.alternates} of {len(item.alternates)}", "kind" if row.stub else "-",
                      "[green]yes[/]" if not row.faults else "[red]no[/]")
    console = Console()
    console.print(table)
    faults = [(f"{row.exercise.id} {row.edition}".strip(), fault) for row in rows for fault in row.faults]
    for name, fault in faults:
        console.print(f"{name}: {fault}", markup=False)
    total = sum(row.near_misses for row in rows)
    console.print(f"{len(rows) - len({name for name, _ in faults})} of {len(rows)} checkers proved; "
                  f"{total} near-misses each met with their own name")
    return 1 if faults else 0


def _mutate(stem: str | None) -> int:
    """Print what survives of the solutions changed by machine: 1 when something does that nobody has judged."""
    from course.authoring.mutate import mutate

    open_ones = 0
    for found in mutate(stem):
        groups = ((found.survivors, "no case finds"), (found.public, "only hidden cases find"),
                  (found.stale, "listed as right as well, and found or made no more"))
        print(f"{found.exercise.id}: {found.mutants} mutants, {found.equivalent} right as well, "
              f"{len(found.survivors) + len(found.public)} to be judged")
        for changes, why in groups:
            open_ones += len(changes)
            for change in changes:
                print(f"  {why}: {change}")
    return 1 if open_ones else 0


def release(arguments: argparse.Namespace) -> int:
    from course.authoring.release import release as make
    from course.grade import identity

    roster = identity.roster_rows(arguments.roster) if arguments.roster else None
    done = make(arguments.folder, roster)
    for name in done.removed:
        print(f"removed: {name}")
    print(f"{done.folder}: {done.files} files, {len(done.written)} new or changed")
    if roster:
        print(f"notebooks of {len(roster)} students in {done.folder / 'students'}: hand each out to its owner alone")
    print("answers of a public course are public: hidden inputs, named mistakes and questions in person protect grades")
    return 0


def graft(arguments: argparse.Namespace) -> int:
    from course.grade import identity, nbval_route, settings
    from course.grade.graft import graft as make
    from course.grade.submission import Unreadable

    chosen = settings.read(arguments.settings)
    roster = identity.read_roster(arguments.roster) if arguments.roster else None
    if not arguments.submission.is_dir():
        student = ""
        if chosen.variants:
            found = identity.find([arguments.submission], roster)
            identity.enrolled_only(found, roster)
            student = found[0].student
        try:
            submission = make(arguments.submission, arguments.output, student=student)
        except Unreadable as error:
            raise ValueError(f"{arguments.submission}: {error}") from None
        for warning in submission.warnings:
            print(f"note: {warning}")
        print(f"{arguments.output}: {len(submission.answers)} answers; run `pytest --nbval {arguments.output}`")
        return 0
    if arguments.submission.resolve() in [arguments.output.resolve(), *arguments.output.resolve().parents]:
        raise ValueError(f"{arguments.output} lies in {arguments.submission}, where it would be taken for a submission "
                         "next time: name a folder outside")
    found = identity.find([arguments.submission], roster)
    handed, _ = identity.choose(found, chosen.attempts, chosen.attempt)
    if chosen.variants:
        identity.enrolled_only(handed, roster)
    for entry in nbval_route.graft_all(handed, arguments.output, chosen.variants):
        print(identity.shown(f"{entry.student}: {entry.notebook or f'unreadable: {entry.unreadable}'}"))
    print(f"{len(handed)} submissions in {arguments.output}; run `course nbval {arguments.output}`")
    return 0


def nbval(arguments: argparse.Namespace) -> int:
    """Exit status 0: graded; 1: the grader failed somewhere, or differs from the report it is compared with."""
    from course.grade import identity, nbval_route, publish

    entries = nbval_route.run_all(arguments.folder, arguments.workers)
    for entry in entries:
        failed = sum(verdict == "infra" for verdict in entry.verdicts.values())
        more = f", {len(entry.verdicts) - failed} exercises graded, the grader failed on {failed}" if failed else ""
        print(f"{identity.shown(entry.student)}, {entry.stem}: {entry.points} of {entry.possible} points{more}")
    differing = nbval_route.differences(entries, publish.merge([arguments.against])) if arguments.against else []
    for line in differing:
        print(f"differs: {identity.shown(line)}")
    if arguments.against and not differing:
        print(f"both routes agree on all {sum(len(entry.verdicts) for entry in entries)} verdicts")
    failed = any("infra" in entry.verdicts.values() for entry in entries)
    return 1 if differing or failed else 0


def collect(arguments: argparse.Namespace) -> int:
    from course.grade import collect as collecting
    from course.grade import identity

    rows = collecting.part_of(identity.roster_rows(arguments.roster), arguments.shard)
    found = collecting.collect(rows, arguments.output, arguments.ref)
    for one in found:
        print(f"{identity.shown(one.row.student)}: {one.problem or f'{len(one.notebooks)} notebooks'}")
        for note in one.notes:
            print(f"  note: {note}")
    broken = sum(bool(one.problem) for one in found)
    print(f"{sum(len(one.notebooks) for one in found)} notebooks of {len(found)} students in {arguments.output}")
    if broken:
        print(f"{broken} repositories could not be read; run again to fetch them")
    return 1 if broken else 0


def new_class(arguments: argparse.Namespace) -> int:
    from course.grade.new_class import new_class as make

    for path in make(arguments.folder, arguments.course, arguments.ref, arguments.shards, arguments.local):
        print(path)
    if arguments.local:
        toml, roster = arguments.folder / "course.toml", arguments.folder / "roster.csv"
        print(f"next: fill in {roster} (match,student), then `course grade SUBMISSIONS --roster {roster} "
              f"--settings {toml} --report REPORT`")
        return 0
    print("next: put it into a private repository, fill in roster.csv and set the secrets README.md names")
    return 0


def grade(arguments: argparse.Namespace) -> int:
    """Grade and report. Exit status 0: graded (whatever the points); 1: something must be run again (infra)."""
    from course.grade import sandbox, zygote

    probe = sandbox.probe(arguments.backend)
    if not zygote.HAS_FORK or arguments.ray:
        return _grade(arguments, probe, None)
    early = zygote.launch(probe.backend)  # imports its libraries while this process imports its own
    try:
        zygote.import_meanwhile()
        return _grade(arguments, probe, early)
    finally:
        early.close(at_once=True)


def _grade(arguments: argparse.Namespace, probe, launched) -> int:
    import os

    from rich.console import Console
    from rich.progress import Progress

    from course.grade import batch, gradescope, identity, publish, secret, settings, state_folder, variants
    from course.grade import report as reports
    from course.specs import exercise

    if arguments.ray and not arguments.report:
        raise ValueError("--ray needs --report DIR: a class that takes several machines is not read on the screen")
    console = Console()
    chosen = settings.read(arguments.settings)
    for name in arguments.rerun:
        exercise(name)  # says which there are when there is no such one
    enrolled = identity.roster_rows(arguments.roster) if arguments.roster else []
    roster = {row.match: row.student for row in enrolled}
    handed = identity.find(arguments.paths, roster)
    one = arguments.student
    if arguments.gradescope:
        one = gradescope.submitter(arguments.gradescope, enrolled, chosen.variants)
    if one:
        handed = identity.all_of(one, handed)
    if chosen.variants:
        identity.enrolled_only(handed, roster)
    earlier = publish.earlier(arguments.report)
    notes = [] if one else identity.notes(arguments.paths, roster, handed)
    if arguments.report and not arguments.all_attempts:
        handed, left_out = identity.choose(handed, chosen.attempts, chosen.attempt)
        notes += identity.left_out_notes(left_out, handed)
    if arguments.shard:
        handed = batch.shard(handed, arguments.shard)
    for note in probe.notes:
        console.print(f"sandbox: {note}", markup=False)
    if probe.backend == "none":
        if arguments.require_sandbox:
            raise ValueError("no sandbox works here, and --require-sandbox was given: nothing was graded")
        console.print("no sandbox works here: these results are advisory, grade only people you trust")
    folder = arguments.report or state_folder()
    key = variants.shared_secret() if chosen.variants else secret.read(folder)
    marks = batch.Marks(folder / "marks", key)
    done: list[batch.Graded] = []
    lost: list[identity.Handed] = []  # whose node went away, and who were sent to another
    workers = arguments.workers or os.cpu_count() or 1
    with Progress(console=console, disable=not arguments.report or not console.is_terminal) as progress:
        task = progress.add_task("grading", total=len(handed))
        try:
            rerun = frozenset(arguments.rerun)
            if arguments.ray:
                from course.grade import distribute

                stream = distribute.grade_all(handed, key, marks, arguments.ray, arguments.backend, rerun,
                                              chosen.variants, arguments.require_sandbox, on_lost=lost.append)
            else:
                stream = batch.grade_all(handed, key, marks, workers, arguments.backend, rerun,
                                         personal=chosen.variants, launched=launched)
            for graded in stream:
                done.append(graded)
                progress.advance(task)
                if not arguments.report:
                    reports.print_graded(graded, console)
        except KeyboardInterrupt:
            console.print(f"stopped: {len(done)} of {len(handed)} graded, every mark is kept; run it again to go on")
            return 130
    if lost:
        console.print(f"{len(lost)} submissions were lost with their machine and sent once more")
    if arguments.report:
        finished = batch.in_order(done, handed)
        united, more = publish.together(earlier, finished, chosen, arguments.all_attempts, same_names=not one)
        people = {row.student: row.columns for row in enrolled}
        notes += publish.settings_changed(arguments.report, chosen)
        notes = [*publish.to_do(united, chosen, {} if arguments.shard else people), *notes, *more,
                 *publish.outdated(united, batch.version(key, chosen.variants))]
        publish.publish(united, arguments.report, chosen, people, notes)
        _say_notes(notes, console)
        console.print(f"{len(done)} submissions graded ({probe.label}); reports in {arguments.report}: overview.html "
                      "first, then grades.csv, and students/*/feedback.html to hand out", markup=False, soft_wrap=True)
    failed = sum(mark.verdict == "infra" for graded in done for mark in graded.marks)
    if failed:
        console.print(f"{failed} answers could not be graded because the grader failed; run again to grade them")
    return 1 if failed else 0


def _say_notes(notes: list[str], console, most: int = 12) -> None:
    from course.grade.identity import shown

    for note in notes[:most]:
        console.print(f"note: {shown(note)}", markup=False, highlight=False, soft_wrap=True)
    if len(notes) > most:
        console.print(f"and {len(notes) - most} more notes: overview.html has all of them")


def merge(arguments: argparse.Namespace) -> int:
    from rich.console import Console

    from course.grade import identity, publish, settings

    graded = publish.merge(arguments.folders)
    enrolled = identity.roster_rows(arguments.roster) if arguments.roster else []
    people = {row.student: row.columns for row in enrolled}
    chosen = settings.read(arguments.settings)
    notes = [*publish.to_do(graded, chosen, people), *publish.versions_differ(graded)]
    publish.publish(graded, arguments.report, chosen, people, notes)
    _say_notes(notes, Console())
    print(f"{len(graded)} submissions of {len(arguments.folders)} shards; reports in {arguments.report}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
