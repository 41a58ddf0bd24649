"""Fetch the notebooks of a roster's repositories as data: git objects are read, nothing is ever checked out.

A bare clone of depth one has no working tree, so no hook, filter, LFS pointer, submodule or symbolic link of a
student's repository can do anything. Of its files only regular ones that are named as a chapter's notebook are written:
``OUT/<match>/04_kv_cache.ipynb``.
"""

from __future__ import annotations

import base64
import os
import re
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from course.chapters import file_stem
from course.classroom.names import safe
from course.classroom.roster import Enrolled
from course.classroom.shards import parse_shard
from course.specs import CHAPTERS

TOKEN = "STUDENT_REPOSITORIES_TOKEN"
SECONDS = 300
MAX_BYTES = 200 * 1024 * 1024  # a notebook with its outputs; what may be graded is decided when it is read
URL = re.compile(r"(https://|ssh://|file://|git@[\w.-]+:|/)\S+")


@dataclass
class Collected:
    """What was found in one repository; ``problem`` when it could not be read."""

    row: Enrolled
    notebooks: list[Path] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problem: str = ""


def part_of(rows: list[Enrolled], text: str | None) -> list[Enrolled]:
    """Every n-th row from the i-th on ("2/5"); all rows for None. Raises ValueError for any other text."""
    if text is None:
        return rows
    part, count = parse_shard(text)
    return rows[part - 1 :: count]


def collect(rows: list[Enrolled], out: Path, ref: str = "HEAD") -> list[Collected]:
    """Fetch every repository of ``rows``. One that cannot be read is noted, and the others are fetched all the same."""
    found = []
    for row in rows:
        one = Collected(row)
        found.append(one)
        try:
            _fetch(one, out, ref)
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            one.problem = f"not fetched within {SECONDS} s" if isinstance(error, subprocess.TimeoutExpired) \
                else str(error)
    return found


def _fetch(one: Collected, out: Path, ref: str) -> None:
    row = one.row
    if not row.repository:
        raise ValueError("the roster names no repository")
    if not URL.fullmatch(row.repository):
        raise ValueError(f"{row.repository!r} is not the address of a repository (https://..., git@...:...)")
    if safe(row.match) != row.match:
        raise ValueError(f"match {row.match!r} names the folder: use letters, digits, dots and dashes")
    if not re.fullmatch(r"[\w][\w./-]*", ref):
        raise ValueError(f"{ref!r} is not a branch or tag")
    with tempfile.TemporaryDirectory(prefix="course-collect-") as folder:
        branch = [] if ref == "HEAD" else ["--branch", ref]
        _git(["clone", "--quiet", "--bare", "--depth", "1", "--single-branch", "--no-tags", "--no-recurse-submodules",
              *branch, "--", _address(row.repository), folder])
        when = int(_git(["-C", folder, "log", "-1", "--format=%ct", "HEAD"]))
        for name, (path, sha) in _chapters(_git(["-C", folder, "ls-tree", "-r", "-l", "-z", "HEAD"]), one).items():
            target = out / row.match / name
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary = target.with_suffix(".tmp")
            temporary.write_bytes(_git(["-C", folder, "cat-file", "blob", sha]))
            os.utime(temporary, (when, when))
            temporary.replace(target)
            one.notebooks.append(target)
            one.notes += [f"{name} is {path}"] if path != name else []


def _chapters(listing: bytes, one: Collected) -> dict[str, tuple[str, str]]:
    """Of the files in a tree the notebook of each chapter: path and object. A work copy outranks a pristine one."""
    names = {f"{file_stem(stem)}.ipynb" for stem in CHAPTERS}
    found: dict[str, list[tuple[str, str]]] = {}
    for entry in listing.split(b"\0"):
        if not entry:
            continue
        facts, _, raw = entry.partition(b"\t")
        mode, kind, sha, size = facts.decode("ascii").split()
        path = raw.decode("utf-8", "replace")
        name = path.rpartition("/")[2]
        if name not in names:
            continue
        if kind != "blob" or mode not in {"100644", "100755"}:
            one.notes.append(f"{path} is no regular file and was left out")
        elif int(size) > MAX_BYTES:
            one.notes.append(f"{path} has {int(size) >> 20} MB and was left out")
        else:
            found.setdefault(name, []).append((path, sha))
    chosen = {}
    for name, several in sorted(found.items()):
        several.sort(key=lambda each: ("work" not in each[0].split("/"), each[0].count("/"), each[0]))
        chosen[name] = several[0]
        one.notes += [f"{path} was left out: {several[0][0]} is taken" for path, _ in several[1:]]
    return chosen


def _address(repository: str) -> str:
    return f"file://{repository}" if repository.startswith("/") else repository


def _git(arguments: list[str]) -> bytes:
    """Output of a git command that reads no settings but ours. Raises OSError with git's own words."""
    environment = {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": tempfile.gettempdir(), "LANG": "C.UTF-8",
        "GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ALLOW_PROTOCOL": "https:ssh:file", "GIT_LFS_SKIP_SMUDGE": "1", "GIT_TEMPLATE_DIR": "",
    }
    settings = {"core.hooksPath": os.devnull, "safe.directory": "*", "fetch.fsckObjects": "true",
                "core.fsmonitor": "false"}
    token = os.environ.get(TOKEN)
    if token:  # by environment, so that it stands neither in a command line nor in a file
        basic = base64.b64encode(f"x-access-token:{token}".encode()).decode()
        settings["http.https://github.com/.extraHeader"] = f"AUTHORIZATION: basic {basic}"
    environment["GIT_CONFIG_COUNT"] = str(len(settings))
    for number, (key, value) in enumerate(settings.items()):
        environment[f"GIT_CONFIG_KEY_{number}"], environment[f"GIT_CONFIG_VALUE_{number}"] = key, value
    for name in ("SSH_AUTH_SOCK", "HTTPS_PROXY", "https_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        if name in os.environ:
            environment[name] = os.environ[name]
    try:
        done = subprocess.run(["git", *arguments], env=environment, capture_output=True, timeout=SECONDS, check=False,
                              stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        raise OSError("git is not installed") from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no reason given"]
        raise OSError(f"git {arguments[0] if arguments[0] != '-C' else arguments[2]}: {said[-1]}")
    return done.stdout
