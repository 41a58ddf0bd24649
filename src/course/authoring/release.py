"""`course release DIR`: a student edition, without solutions and without what makes hidden cases.

It is a folder that works like this one for whoever reads and solves: the book, the library, the notebooks, practice
checks, progress. Left out are solutions, specs (references, wrong answers, generators of cases), the grader and
all that only authors need. In the place of the specs lie recordings of what practice compares with (see
:mod:`course.specs.recorded`).

The new edition is made whole beside the old one before anything is exchanged; learners' copies are never touched.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import yaml

import course
from course import paths
from course.authoring.build import AuthoringError, solution_regions
from course.chapters import file_stem
from course.classroom.names import safe
from course.classroom.roster import Enrolled
from course.grade import variants
from course.judging import judge
from course.notebooks import editions
from course.specs import CHAPTERS, exercises, recorded
from course.specs.exercise import Exercise
from course.specs.recorded import Recorded

MARKER = ".course-release.json"
STAGE = ".course-release-new"
TOP = ("LICENSE", "LICENSE-TEXT.md", "THIRD_PARTY.md", "CITATION.cff", "_config.yml", "requirements.txt",
       "pyproject.toml", ".gitignore")
FOLDERS = ("book", "exercises", "third_party", "src")
# Below src/course: what belongs to who writes the course and who teaches; of the specs what holds no answer stays.
INSTRUCTORS = ("authoring", "classroom", "grade", "reports", "cli/author.py", "cli/teach.py")
PRACTICE_SPECS = {"__init__.py", "exercise.py", "recorded.py", "solutions.py"}
TARGETS = {"help", "$(STAMP)", "book", "lab", "clean"}
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc", "*.egg-info", ".ipynb_checkpoints", "work", "*.tmp", "_build",
                                  ".DS_Store")
TEACHERS = ("teaching", "questions")  # pages of the book: rubrics, questions asked in person
TELLING = 25  # a shorter line of code is nobody's answer
# Lines of answers that other code of the course has for reasons of its own: heads put together again by try_in_model.
COMMON = {"return torch.stack(heads, dim=1)", "except UnicodeDecodeError:"}

README = """# LLM Internals: KV Cache & Generation. Student edition

You press Enter, and a language model answers. This course shows every step in between, on a real model that runs on
your laptop. You read it as a book, you write the parts yourself, and your own function then runs inside the model.

```
make book                     # builds the book; open _build/html/index.html
make lab                      # your copies of the exercises in exercises/work, in JupyterLab
course status                 # what is solved, what was tried, what comes next
course check NOTEBOOK         # the notebook's checks from the shell
course doctor                 # what works on this machine, and how to mend the rest
```

Without make: `python3 -m venv .venv && . .venv/bin/activate`, then `pip install -r requirements.txt` and
`pip install --no-deps -e .`. Python 3.11 to 3.13.

## What is not here

Solutions, the checkers' sources and the grader: the instructor's edition has them. The course itself is public, and
the library in `src/llm_internals` is the code that the book shows. So answers of this course can be found by whoever
looks for them, and hiding them is not what protects a grade. What does: hidden inputs that come from a secret and your
own answer, wrong answers that are known by name, constants that may differ from student to student, and the questions
you are asked in person about what you wrote.

Code: Apache-2.0 (`LICENSE`). Text: CC BY 4.0 (`LICENSE-TEXT.md`). Third parties: `THIRD_PARTY.md`.
"""


@dataclass
class Released:
    """What a release wrote: how many files, which are new or changed, which were removed."""

    folder: Path
    files: int = 0
    written: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)


def release(folder: Path, roster: list[Enrolled] | None = None) -> Released:
    """Write the student edition to ``folder``, or bring the one that lies there up to date.

    With a roster, also each student's own notebooks, with the constants of their edition:
    ``students/<match>/NN_topic.ipynb``. They are left out of git, since they are nobody else's.

    Raises ValueError when ``folder`` holds anything else, :class:`AuthoringError` when something of an answer would
    have gone into it, OSError with what to do when it cannot be written.
    """
    folder = folder.absolute()
    before = _before(folder)
    fresh = not folder.exists()
    stage = folder / STAGE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(stage, ignore_errors=True)
        stage.mkdir()
        make(stage)
        if roster is not None:
            personal(stage, roster, variants.shared_secret())
        found = leaks(stage)
        if found:
            raise AuthoringError("the student edition would hold parts of answers:\n" + "\n".join(found[:20]))
    except BaseException:
        shutil.rmtree(stage, ignore_errors=True)
        if fresh:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise
    try:
        return _exchange(folder, stage, before)
    except BaseException as error:
        text = (f"the release in {folder} is between two versions: run `course release {folder}` again, which "
                "completes it. Nothing of exercises/work was touched")
        if isinstance(error, OSError):
            raise OSError(error.errno, f"{error.strerror}; {text}") from None
        if isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt(text) from None
        raise


def make(stage: Path) -> None:
    """The whole student edition below ``stage``."""
    root = paths.root()
    for name in TOP:
        shutil.copyfile(root / name, stage / name)
    for name in FOLDERS:
        shutil.copytree(root / name, stage / name, ignore=LEFT_OUT)
    _without_pages(stage / "book", TEACHERS)
    package = stage / "src" / "course"
    for name in INSTRUCTORS:
        shutil.rmtree(package / name) if (package / name).is_dir() else (package / name).unlink()
    _keep(package / "specs", PRACTICE_SPECS)
    for stem in CHAPTERS:
        items = exercises(stem)
        others = {item.id: [item.for_student(constants) for constants in item.editions()] for item in items}
        data = recorded.dumps([(item, record(item), [(each, record(each)) for each in others[item.id]])
                               for item in items])
        (package / "specs" / f"{stem}{recorded.ENDING}").write_bytes(data)
    (stage / "README.md").write_text(README, encoding="utf-8")
    (stage / "Makefile").write_text(_makefile((root / "Makefile").read_text(encoding="utf-8")), encoding="utf-8")


def _without_pages(book: Path, names: tuple[str, ...]) -> None:
    """Take pages out of a book and of its table of contents; a part that is left empty goes with them."""
    table = yaml.safe_load((book / "_toc.yml").read_text(encoding="utf-8"))
    for part in table["parts"]:
        part["chapters"] = [chapter for chapter in part["chapters"] if chapter["file"] not in names]
    table["parts"] = [part for part in table["parts"] if part["chapters"]]
    (book / "_toc.yml").write_text(yaml.safe_dump(table, sort_keys=False, allow_unicode=True), encoding="utf-8")
    for name in names:
        (book / f"{name}.md").unlink()


def personal(stage: Path, roster: list[Enrolled], secret: bytes) -> None:
    """Every student's notebooks below ``stage``/students, and a line that keeps them out of git."""
    with (stage / ".gitignore").open("a", encoding="utf-8") as file:
        file.write("/students/\n")
    for row in roster:
        for stem in CHAPTERS:
            name = f"{file_stem(stem)}.ipynb"
            notebook = json.loads((stage / "exercises" / name).read_text(encoding="utf-8"))
            constants = {item.id: variants.constants(secret, row.student, item) for item in exercises(stem)}
            target = stage / "students" / safe(row.match) / name
            target.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps(editions.with_constants(notebook, constants), indent=1, ensure_ascii=False) + "\n"
            target.write_text(text, encoding="utf-8")


def record(item: Exercise) -> Recorded:
    """What practice needs to know of an exercise's public cases."""
    if item.track == "kernel":
        import kernelcheck

        kernelcheck.install()
    memory = judge.Memory(item, list(judge.public_cases(item.id, item.edition)))
    expected = [memory.expected(index) for index in range(len(memory.cases))]
    outcomes = {near_miss.name: memory.outcomes(near_miss) for near_miss in item.near_misses}
    return Recorded(memory.cases, [(one.value, one.exact, one.tolerance) for one in expected], outcomes)


def telling_lines() -> dict[str, str]:
    """Lines that only an answer holds, with where they come from: of solutions, near-misses, alternates, references.

    What the learner is given anyway (the book, stubs, given cells and modules, hints, the words of a diagnosis) tells
    nothing.
    """
    root = paths.root()
    shown = [*sorted((root / "src/course/given").glob("*.py")), *sorted((root / "book").glob("*.md"))]
    given = [path.read_text(encoding="utf-8") for path in shown]
    for path in sorted((root / "exercises").glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        given += ["".join(cell["source"]) for cell in cells]
    sources: list[tuple[str, str]] = [(f"solution of {name}", text) for name, text in solution_regions().items()]
    for item in exercises():
        given += [*item.hints, item.prelude, item.driver, *(near.says for near in item.near_misses)]
        sources += [(f"near-miss of {item.id}", near.source) for near in item.near_misses]
        sources += [(f"alternate of {item.id}", other.source) for other in item.alternates]
        sources.append((f"reference of {item.id}", inspect.getsource(item.reference)))
    known = "\n".join(given)
    found: dict[str, str] = {}
    for where, text in sources:
        for line in text.splitlines():
            line = line.strip()
            if len(line) < TELLING or line in COMMON or re.match(r"(#|import |from |@|def |class |\"\"\")", line):
                continue
            if line not in known:
                found.setdefault(line, where)
    return found


def leaks(folder: Path, lines: dict[str, str] | None = None) -> list[str]:
    """Telling lines in any file below ``folder`` but src/llm_internals and src/kernelcheck, which the book shows."""
    lines = telling_lines() if lines is None else lines
    found = []
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if not path.is_file() or inside.parts[:2] in {("src", "llm_internals"), ("src", "kernelcheck")}:
            continue
        data = path.read_bytes()
        for line, where in lines.items():
            plain = line.encode()
            if plain in data or json.dumps(line)[1:-1].encode() in data:
                found.append(f"{inside}: a line of the {where}: {line}")
    return found


def _keep(folder: Path, names: set[str]) -> None:
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name not in names:
            path.unlink()


def _makefile(text: str) -> str:
    """The course's Makefile with the targets that a learner needs: a rule reaches to the next line that begins one."""
    kept = []
    for number, block in enumerate(re.split(r"\n(?=[^\s#=:][^\n=:]*:(?!=))", text)):
        target = block.split(":")[0].strip()
        if number == 0 or target in TARGETS or target.startswith("."):
            kept.append(block.rstrip("\n"))
    return "\n\n".join(kept).replace("find src tests ", "find src ") + "\n"


def _before(folder: Path) -> dict:
    """What the marker of an earlier release says; empty for a new folder. Raises ValueError for any other folder."""
    if folder.is_dir() and not any(path.name not in {".git", STAGE} for path in folder.iterdir()):
        return {}
    if not folder.exists():
        return {}
    try:
        marker = json.loads((folder / MARKER).read_text(encoding="utf-8"))
        files = {str(name): str(digest) for name, digest in marker["files"].items()}
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        raise ValueError(f"{folder} is not empty and holds no earlier release ({MARKER} is missing or damaged): name a "
                         "new folder, or empty this one") from None
    if any(Path(name).is_absolute() or ".." in Path(name).parts for name in files):
        raise ValueError(f"{folder / MARKER} names files outside of {folder}: name a new folder")
    return files


def _exchange(folder: Path, stage: Path, before: dict[str, str]) -> Released:
    """Move the staged files to their places, one atomic step each; remove what the earlier release had more."""
    staged = {str(path.relative_to(stage)): hashlib.sha256(path.read_bytes()).hexdigest()
              for path in sorted(stage.rglob("*")) if path.is_file()}
    result = Released(folder, files=len(staged))
    _mark(folder, {**before, **staged}, complete=False)
    for name, digest in staged.items():
        target = folder / name
        if target.is_file() and hashlib.sha256(target.read_bytes()).hexdigest() == digest:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(stage / name, target)
        result.written.append(name)
    for name in sorted(set(before) - set(staged)):
        if not name.startswith("exercises/work/"):
            (folder / name).unlink(missing_ok=True)
            result.removed.append(name)
    _mark(folder, staged, complete=True)
    shutil.rmtree(stage, ignore_errors=True)
    return result


def _mark(folder: Path, files: dict[str, str], complete: bool) -> None:
    text = json.dumps({"v": 1, "release": course.__version__, "complete": complete, "files": files}, indent=1)
    temporary = folder / f"{MARKER}.tmp"
    temporary.write_text(text + "\n", encoding="utf-8")
    os.replace(temporary, folder / MARKER)
