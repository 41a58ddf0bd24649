"""For who solves the exercises: status, check, start, update, reset, doctor."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from course.cli.command import Panel, add


def add_to(app: typer.Typer) -> None:
    """Register these subcommands."""
    for function in (status, check, start, update, reset, doctor):
        add(app, Panel.LEARN, function.__name__, function)


def status(stem: Annotated[str | None, typer.Argument(help="only this chapter, such as kv_cache")] = None) -> int:
    """Show what is solved, what was tried, and what to do next."""
    from rich.console import Console

    from course.check import standing
    from course.specs import exercises

    if stem:
        exercises(stem)  # says which chapters there are when there is no such one
    standing.show(standing.status(), Console(), stem)
    return 0


def check(notebook: Annotated[Path, typer.Argument(help="a notebook of exercises")]) -> int:
    """Run the practice checks of a notebook, as its own check cells do; of your copy, `course status` knows of them."""
    from course import paths
    from course.check import progress
    from course.judging import feedback, judge
    from course.notebooks import editions
    from course.notebooks import submission as submissions
    from course.running.worker import Worker

    try:
        read = submissions.read(notebook)
    except submissions.Unreadable as error:
        raise ValueError(f"{notebook}: {error}") from None
    items = submissions.exercises_of(read, notebook)
    answers = submissions.extract(read, notebook.stem, items).answers
    mine = notebook.resolve().parent == paths.work().resolve()
    passed, said = 0, {}
    with Worker() as worker:
        for item in items:
            source = answers.get(item.id)
            if source is None:
                print(f"{item.id}: no answer found")
                continue
            item = editions.chosen(item, source, editions.of_notebook(read, item))
            verdict = judge.practice(item, source, runner=lambda job, item=item: worker.run(job, item.seconds).outcomes)
            passed += verdict.passed
            print(feedback.text(verdict))
            if mine and not source.is_stub:
                noted = progress.record(item.id, source, verdict.passed, feedback.in_short(verdict), paths.work())
                said.update({noted: None} if noted else {})
    print("\n".join([*said, f"{passed} of {len(items)} pass their public checks"]))
    return 0 if passed == len(items) else 1


def start() -> int:
    """Copy the notebooks you do not have yet to exercises/work; nothing is overwritten."""
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


def update() -> int:
    """Bring your copies to this release: new cells come, your answers and your own cells stay.

    Exit status 1: a notebook was left alone, and the line says why.
    """
    from course import paths
    from course.check import update as updates

    paths.work().mkdir(exist_ok=True)
    lines, good = updates.update_folder(paths.work(), paths.exercises())
    print("\n".join(lines))
    if any(updates.BACKUP in line for line in lines):
        print("reload what is open in your editor; to take an old file back, rename it to end in .ipynb")
    return 0 if good else 1


def reset(id: Annotated[str, typer.Argument(help="such as kv_cache.append")]) -> int:
    """Put the stub back into your copy; your answer is kept beside it."""
    from course import paths
    from course.chapters import file_stem
    from course.check import update as updates
    from course.specs import exercise

    item = exercise(id)
    name = f"{file_stem(item.stem)}.ipynb"
    backup = updates.reset(item, paths.work() / name, paths.exercises() / name)
    print(f"{item.id} is as it was given; your answer is kept in {backup.name}. Reload the notebook in your editor.")
    return 0


def doctor() -> int:
    """Say what of the course works on this machine, and how to mend the rest."""
    from course import health

    return health.report()
