"""What a learner has tried and solved: a small JSON file beside the work copies. Never needed for grading.

    {"v": 1, "exercises": {"kv_cache.append": {"tries": 2, "solved": true, "mistake": "", "digest": "...", "when": 0}}}

``solved`` is what the last check said, ``was_solved`` whether any ever passed. Several notebooks may write at once: the
file is read, changed and replaced under a lock. What cannot be understood is set aside under a dated name, and said.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import filelock

from course import paths
from course.sources import Answer

FILE = ".progress.json"
VERSION = 1
LOCK_SECONDS = 10
FIELDS = {"tries": int, "solved": bool, "was_solved": bool, "mistake": str, "digest": str, "when": int}


@dataclass
class Progress:
    """State by exercise id, and what the learner should know about the file it came from."""

    entries: dict[str, dict] = field(default_factory=dict)
    note: str = ""
    damaged: bool = False
    newer: bool = False  # written by a later course: it is left as it is


def read(folder: Path | None = None) -> Progress:
    """What is noted in ``folder`` (default: the work folder). Changes nothing; never raises for a bad file."""
    path = (folder or paths.work()) / FILE
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return Progress()
    except OSError as error:
        return Progress(note=f"{path} cannot be read ({error.strerror}): what it holds is not shown")
    except ValueError:
        return Progress(damaged=True, note=f"{path} is damaged: it is not text")
    try:
        state = json.loads(text)
    except (ValueError, RecursionError):
        return Progress(damaged=True, note=f"{path} is damaged: it is not JSON")
    return _understood(state, path)


def _understood(state: object, path: Path) -> Progress:
    """The entries that make sense. A file without a version is of the first releases: entries at its top level."""
    if not isinstance(state, dict):
        return Progress(damaged=True, note=f"{path} is damaged: it holds no entries")
    version = state.get("v", 0)
    if isinstance(version, int) and version > VERSION:
        return Progress(newer=True, note=f"{path} was written by a later release of the course (version {version}): "
                        "it is kept as it is, and nothing is noted until you use that release again")
    entries = state.get("exercises") if "v" in state else state
    if version not in (0, VERSION) or not isinstance(entries, dict):
        return Progress(damaged=True, note=f"{path} is damaged: it holds no entries")
    good = {key: value for key, value in entries.items() if _is_entry(value)}
    if len(good) < len(entries):
        lost = ", ".join(sorted(set(entries) - set(good)))
        return Progress(good, damaged=True, note=f"{path} is damaged: the entry of {lost} makes no sense")
    return Progress(good)


def _is_entry(value: object) -> bool:
    return isinstance(value, dict) and "tries" in value and all(
        type(value[key]) is kind for key, kind in FIELDS.items() if key in value
    )


def record(exercise_id: str, source: str, passed: bool, mistake: str = "", folder: Path | None = None) -> str:
    """Note one check. Returns "" or one line for the learner; failing to write is no reason to stop a check.

    Without ``folder`` only a learner's copy is noted: the working directory must be exercises/work.
    """
    if folder is None:
        folder = Path.cwd()
        if folder.name != "work" or folder.parent.name != "exercises":
            return ""  # the course's own runs leave no trace
    try:
        with _locked(folder):
            state = read(folder)
            if state.newer:
                return state.note
            said = _set_aside(folder / FILE, state.note) if state.damaged else ""
            entry = state.entries.setdefault(exercise_id, {"tries": 0})
            entry["tries"] += 1
            entry["solved"] = bool(passed)
            entry["was_solved"] = bool(passed or entry.get("was_solved"))
            entry.update(digest=Answer.of(source).digest, mistake=mistake, when=int(time.time()))
            _write(folder / FILE, {"v": VERSION, "exercises": state.entries})
            return said
    except filelock.Timeout:
        return f"progress was not noted: another notebook has held {folder / FILE} for {LOCK_SECONDS} s"
    except OSError as error:
        return (f"progress was not noted: {folder / FILE} cannot be written ({error.strerror}). Your answers are in "
                "the notebook as always; only `course status` does not know of this check")


def reopen(ids: list[str], why: str, folder: Path) -> None:
    """Take exercises as not solved any more, with the reason; those never tried stay so. Raises nothing."""
    with contextlib.suppress(OSError, filelock.Timeout), _locked(folder):
        state = read(folder)
        touched = [state.entries[name] for name in ids if name in state.entries]
        if not touched or state.newer or state.damaged:
            return
        for entry in touched:
            entry.update(solved=False, mistake=why)
        _write(folder / FILE, {"v": VERSION, "exercises": state.entries})


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One writer at a time, where the file system knows locks; elsewhere without."""
    lock = filelock.FileLock(folder / f"{FILE}.lock", timeout=LOCK_SECONDS)
    try:
        lock.acquire()
    except NotImplementedError:
        yield
        return
    try:
        yield
    finally:
        lock.release()


def _set_aside(path: Path, why: str) -> str:
    """Move a damaged file out of the way, under a name that is free."""
    stem = f".progress.damaged-{time.strftime('%Y%m%d-%H%M%S')}"
    names = (path.with_name(f"{stem}{suffix}.json") for suffix in ("", *(f"-{i}" for i in range(2, 1000))))
    target = next(name for name in names if not name.exists())
    path.rename(target)
    return f"{why}. It is kept as {target.name}; progress is noted afresh, your answers are not touched"


def _write(path: Path, state: dict) -> None:
    """Replace the file in one step: whoever reads sees the old state or the new one."""
    temporary = path.with_name(f"{FILE}.{os.getpid()}.tmp")
    try:
        temporary.write_text(json.dumps(state, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
