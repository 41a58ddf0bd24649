"""For who writes the course: build, proof, new-chapter."""

from __future__ import annotations

from typing import Annotated

import typer

from course.cli.command import Panel, add


def add_to(app: typer.Typer) -> None:
    """Register these subcommands."""
    add(app, Panel.AUTHOR, "build", build)
    add(app, Panel.AUTHOR, "proof", proof)
    add(app, Panel.AUTHOR, "new-chapter", new_chapter)


def build(
    stem: Annotated[str | None, typer.Argument(help="only this chapter's notebooks, such as kv_cache")] = None,
    check: Annotated[bool, typer.Option("--check", help="change nothing; fail when something would change")] = False,
) -> int:
    """Make the notebooks from solutions/*.py."""
    from course.authoring import build as authoring

    if check:
        differing = authoring.changed()
        for path in differing:
            print(f"differs from its source: {path}")
        print("run `course build` and commit the result" if differing else "all notebooks agree with their sources")
        return 1 if differing else 0
    for path in authoring.build(only=stem):
        print(path)
    return 0


def proof(stem: Annotated[str | None, typer.Argument(help="only this chapter, such as kv_cache")] = None,
          seeds: Annotated[int, typer.Option(help="draws on which each solution must pass")] = 20,
          mutate: Annotated[bool, typer.Option("--mutate", help="change the solutions by machine, and list the changes "
                                               "that all cases let pass")] = False) -> int:
    """Prove every checker: solutions, near-misses, alternates, stubs."""
    from rich.console import Console
    from rich.table import Table

    if mutate:
        return _mutate(stem)
    from course.authoring.proof import prove

    rows = prove(stem, seeds)
    table = Table()
    for name in ("exercise", "solution", "near-misses named", "alternates pass", "stub", "proved"):
        table.add_column(name, no_wrap=name == "exercise")
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


def new_chapter(
    stem: Annotated[str, typer.Argument(help="a chapter of the course that is not written yet, such as sampling")],
) -> int:
    """Write the stubs of all files that a chapter has."""
    from course.authoring import chapter

    for path in chapter.write(stem):
        print(path)
    print(f"next: CONTRIBUTING.md says in which order they are filled in; `course proof {stem}` tells what is left")
    return 0
