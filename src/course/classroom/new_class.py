"""`course new-class DIR`: the instructor's repository, which grades what students' repositories hold."""

from __future__ import annotations

import re
import subprocess
from importlib import resources
from pathlib import Path

from course import paths

FILES = {
    "grade.yml": ".github/workflows/grade.yml",
    "course.toml": "course.toml",
    "roster.csv": "roster.csv",
    "README.md": "README.md",
    "gitignore.txt": ".gitignore",
    "gradescope/setup.sh": "gradescope/setup.sh",
    "gradescope/run_autograder": "gradescope/run_autograder",
}
MOST_SHARDS = 256  # jobs of one GitHub matrix


HERE = ("course.toml", "roster.csv", "gitignore.txt")  # all that grading on one's own machine needs


def new_class(folder: Path, course: str | None = None, ref: str | None = None, shards: int = 4,
              local: bool = False) -> list[Path]:
    """Write the repository of a class to ``folder``; returns the files.

    local: only settings and roster, for a class that is graded on this machine; GitHub and Gradescope are left out.

    course: OWNER/NAME of the course on GitHub; ref: the commit that grades. Both default to those of this checkout (see
    :func:`on_github`). Raises ValueError when ``folder`` holds something, when they cannot be told, and for what is no
    such name.
    """
    if folder.is_dir() and any(path.name != ".git" for path in folder.iterdir()):
        raise ValueError(f"{folder} is not empty: name a new folder, or an empty repository")
    if local:
        return [_write(folder, name, {}) for name in HERE]
    course = course or on_github()
    ref = ref or _commit()
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", course or ""):
        raise ValueError("say where on GitHub the course lies, since GitHub's and Gradescope's machines fetch it "
                         "there: --course OWNER/NAME; or give --local, to grade on this machine only")
    if not re.fullmatch(r"[\w][\w./-]*", ref or ""):
        raise ValueError("say which commit of the course grades: --ref COMMIT")
    if not 1 <= shards <= MOST_SHARDS:
        raise ValueError(f"--shards goes from 1 to {MOST_SHARDS}")
    values = {
        "@COURSE@": course,
        "@REF@": ref,
        "@SHARDS@": ", ".join(f'"{number}/{shards}"' for number in range(1, shards + 1)),
    }
    return [_write(folder, name, values) for name in FILES]


def _write(folder: Path, name: str, values: dict[str, str]) -> Path:
    """Write one file of the template, with these words in the place of its marks."""
    text = resources.files("course.classroom").joinpath("class_template", *name.split("/")).read_text(encoding="utf-8")
    for mark, value in values.items():
        text = text.replace(mark, value)
    path = folder / FILES[name]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")
    if text.startswith("#!"):
        path.chmod(0o755)
    return path


def on_github() -> str | None:
    """OWNER/NAME of the repository that this checkout was cloned from; None when that does not lie on GitHub."""
    url = _git("remote", "get-url", "origin") or ""
    found = re.search(r"github\.com[:/]([\w.-]+/[\w.-]+?)(?:\.git)?/?$", url)
    return found[1] if found else None


def _commit() -> str | None:
    return _git("rev-parse", "HEAD")


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(paths.root()), *arguments], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
