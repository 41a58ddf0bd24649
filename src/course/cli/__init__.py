"""The command `course`, by audience: who learns, who writes the course, who teaches with it.

A student edition has the first part alone, and says so of the others.
"""

from __future__ import annotations

import importlib
import importlib.util

import typer

from course.cli import learn
from course.cli.command import Panel, not_here

app = typer.Typer(name="course", help="The course's own command.", no_args_is_help=True, add_completion=False,
                  pretty_exceptions_enable=False, rich_markup_mode="rich", suggest_commands=True)
ELSEWHERE = {  # by module: what it would bring
    "author": ("build", "proof", "new-chapter"),
    "teach": ("grade", "merge", "collect", "new-class", "release", "graft", "nbval"),
}

learn.add_to(app)
for _module, _names in ELSEWHERE.items():
    if importlib.util.find_spec(f"{__name__}.{_module}"):
        importlib.import_module(f"{__name__}.{_module}").add_to(app)
    else:
        for _name in _names:
            not_here(app, _name)

__all__ = ["Panel", "app", "main"]


def main(argv: list[str] | None = None) -> int:
    """Run one subcommand; returns the exit status (0 good, 1 not good, 2 bad usage, 130 interrupted)."""
    try:
        app(args=argv, prog_name="course")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(bool(end.code))
    return 0
