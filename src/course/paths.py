"""Where things lie: the course's root, its exercises, the learner's work copies, the instructor's solutions."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def root() -> Path:
    """The course's folder: $COURSE_ROOT, else the nearest folder upwards that holds exercises/ and _config.yml.

    Looks upwards from the working directory, then from this file (an editable install). Raises FileNotFoundError
    with what to do when there is none.
    """
    if os.environ.get("COURSE_ROOT"):
        return Path(os.environ["COURSE_ROOT"]).resolve()
    for start in (Path.cwd(), Path(__file__).resolve()):
        for folder in (start, *start.parents):
            if (folder / "exercises").is_dir() and (folder / "_config.yml").is_file():
                return folder
    raise FileNotFoundError(
        "no course folder found: run this inside a clone of the course, or set COURSE_ROOT to its folder"
    )


def exercises() -> Path:
    return root() / "exercises"


def work() -> Path:
    return exercises() / "work"


def solutions() -> Path:
    return root() / "solutions"


def state() -> Path:
    """Where the grader keeps its secret when none is given: $LLM_INTERNALS_HOME, else the system's place for state."""
    home = os.environ.get("LLM_INTERNALS_HOME") or platformdirs.user_state_dir("llm-internals")
    return Path(home) / "grading"
