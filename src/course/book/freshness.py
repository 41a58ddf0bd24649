"""A page is executed again when its code changed, or code that it imports, however far away; and only then.

myst-nb keeps the results of a page under a key made of its cells and its kernel. To that key comes a digest of the
sources that the page's cells lead to: a line in the kernel's metadata, put there as the page is read. Sphinx is told
which pages to read again by the same digest.

A cell that starts a process, or that imports by a name made at run time, may run anything: its page depends on all of
the course.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from course import paths

OURS = ("course", "gradeworker", "kernelcheck", "llm_internals")
CELL = re.compile(r"^(`{3,}|:{3,})\{code-cell\}[^\n]*\n(.*?)^\1\s*$", re.M | re.S)
OPTIONS = re.compile(r"\A(?:---\n.*?^---\n|(?::[\w-]+:[^\n]*\n)+)", re.M | re.S)
KERNEL = re.compile(r"^kernelspec:\n", re.M)
DATA = {".json", ".csv", ".npz", ".txt"}
RUNS_ANYTHING = {"subprocess", "importlib", "runpy", "multiprocessing"}


def cells(text: str) -> list[str]:
    """The code of a MyST page, cell by cell, as Python: lines of magics are left out."""
    found = []
    for match in CELL.finditer(text):
        lines = OPTIONS.sub("", match[2]).splitlines()
        found.append("\n".join(line for line in lines if not line.lstrip().startswith(("%", "!"))))
    return found


def modules_named(tree: ast.AST, package: str = "") -> Iterator[str]:
    """Every module that the code may import, as dotted text; of ``from a import b`` both a and a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: -node.level] if node.level > 1 else package.split(".") if node.level else []
            module = ".".join([*filter(None, above), *filter(None, [node.module])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def closure(names: Iterable[str]) -> dict[str, Path]:
    """Modules of ours among ``names`` and all that they import, lazily or not, with their files."""
    found: dict[str, Path] = {}
    todo = [part for name in names for part in _with_parents(name)]
    while todo:
        name = todo.pop()
        if name in found or name.split(".")[0] not in OURS:
            continue
        path = _file(name)
        if path is not None:
            found[name] = path
            todo += [part for other in _imports(path, name) for part in _with_parents(other)]
            if "import_module(" in path.read_text(encoding="utf-8"):  # whatever lies beside it
                todo += [name + "".join(f".{part}" for part in file.relative_to(path.parent).with_suffix("").parts)
                         for file in path.parent.rglob("*.py") if file.name != "__init__.py"]
    return found


def depends_on(text: str) -> list[Path]:
    """Files that the results of a page depend on, besides the page itself."""
    names: set[str] = set()
    for cell in cells(text):
        try:
            names.update(modules_named(ast.parse(cell)))
        except SyntaxError:  # the build will say so
            continue
    if names & RUNS_ANYTHING:
        return sorted(file for package in OURS for file in Path(_file(package)).parent.rglob("*")
                      if file.is_file() and "__pycache__" not in file.parts)
    reached = closure(names)
    found = set(reached.values()) | {data for path in reached.values() for data in _data(path)}
    if "course.specs" in reached:  # near-misses are edits of the solutions
        found |= set(paths.solutions().glob("*.py"))
    return sorted(found)


def digest(text: str) -> str:
    """Of all that the results of a page depend on besides its own text, requirements included."""
    whole = hashlib.sha256()
    requirements = paths.root() / "requirements.txt"
    for path in [*depends_on(text), *([requirements] if requirements.is_file() else [])]:
        whole.update(hashlib.sha256(path.read_bytes()).digest())
    return whole.hexdigest()[:16]


def _with_parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]


@functools.cache
def _file(name: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, AttributeError, ValueError):
        return None
    return Path(spec.origin) if spec is not None and spec.origin and spec.origin.endswith(".py") else None


def _imports(path: Path, name: str) -> list[str]:
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    return list(modules_named(ast.parse(path.read_text(encoding="utf-8")), package))


def _data(path: Path) -> list[Path]:
    """What lies beside a module and is no module: figures' scripts, recorded runs."""
    return [file for file in path.parent.glob("*") if file.is_file() and file.suffix in DATA]


def _outdated(app, env, added, changed, removed) -> list[str]:
    """Sphinx: pages to read again, since what they import is not what it was when they were read."""
    before = getattr(env, "page_sources", {})
    again = []
    for name in env.found_docs:
        path = Path(env.doc2path(name))
        if path.suffix == ".md" and before.get(name) != _digest_of(path.read_text(encoding="utf-8")):
            again.append(name)
    return again


def _digest_of(text: str) -> str:
    return digest(text) if KERNEL.search(text) else ""


def _read(app, name: str, content: list[str]) -> None:
    """Sphinx: the digest joins the kernel's metadata, and so the key under which results are kept."""
    if not hasattr(app.env, "page_sources"):
        app.env.page_sources = {}
    found = app.env.page_sources[name] = _digest_of(content[0])
    if found:
        content[0] = KERNEL.sub(f"kernelspec:\n  sources: {found}\n", content[0], count=1)


def _purge(app, env, name: str) -> None:
    getattr(env, "page_sources", {}).pop(name, None)


def _merge(app, env, names, other) -> None:
    """Sphinx, reading in several processes: what the other has read."""
    if not hasattr(env, "page_sources"):
        env.page_sources = {}
    env.page_sources |= {name: value for name, value in getattr(other, "page_sources", {}).items() if name in names}


def setup(app) -> None:
    """Connect to the build."""
    app.connect("env-get-outdated", _outdated)
    app.connect("env-purge-doc", _purge)
    app.connect("env-merge-info", _merge)
    app.connect("source-read", _read)
