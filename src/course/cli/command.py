"""What all subcommands share: how a function becomes one, and how its errors are said."""

from __future__ import annotations

import enum
import functools
import sys
from collections.abc import Callable

import typer


class Panel(enum.StrEnum):
    """Whose commands they are, as `course --help` groups them."""

    LEARN = "If you solve"
    AUTHOR = "If you write the course"
    TEACH = "If you teach"


def add(app: typer.Typer, panel: Panel, name: str, function: Callable[..., int]) -> None:
    """Make ``function`` the subcommand ``name``; the first line of its docstring is its help, its result the status."""
    app.command(name, rich_help_panel=panel.value, help=(function.__doc__ or "").split("\n")[0])(_guarded(function))


def not_here(app: typer.Typer, name: str) -> None:
    """A subcommand that this edition does not have."""

    def absent(context: typer.Context) -> int:
        raise ValueError(f"this is a student edition; `course {name}` belongs to the instructor's edition, which has "
                         "the solutions and grades")

    settings = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command(name, hidden=True, context_settings=settings)(_guarded(absent))


def _guarded(function: Callable[..., int]) -> Callable[..., None]:
    """The function with its errors as one line on standard error, and its result as the exit status."""

    @functools.wraps(function)
    def run(*args, **kwargs) -> None:
        raise typer.Exit(_status(functools.partial(function, *args, **kwargs)))

    return run


def _status(call: Callable[[], int]) -> int:
    try:
        return call()
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
