"""A page runs again when code that it imports changed, and only then."""

import shutil
import subprocess
import sys

import pytest

from course import paths
from course.book import freshness

PAGE = """---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  name: python3
  display_name: Python 3
---

# A page

```{code-cell} ipython3
:tags: [remove-input]
%matplotlib inline
from llm_internals import kv_cache
```

```python
import gguf
```
"""


def names(text: str) -> set[str]:
    return {path.stem for path in freshness.depends_on(text)}


def test_cells_are_code_cells_without_options_and_magics():
    assert freshness.cells(PAGE) == ["from llm_internals import kv_cache"]


def test_a_page_depends_on_what_its_imports_import():
    assert {"kv_cache", "ops"} <= names(PAGE)
    assert "sandbox" not in names(PAGE)


def test_relative_and_lazy_imports_are_followed():
    lazy = PAGE.replace("from llm_internals import kv_cache", "def f():\n    from course.grade import batch")
    assert {"batch", "judge", "gate", "sandbox", "answer"} <= names(lazy)


def test_a_page_that_starts_processes_depends_on_everything():
    assert names(PAGE.replace("from llm_internals import kv_cache", "import subprocess")) > names(PAGE) | {"sandbox"}


def test_specs_bring_all_chapters_and_the_solutions():
    found = names(PAGE.replace("from llm_internals import kv_cache", "from course.specs import exercises"))
    assert "04_kv_cache" in found
    assert "kv_cache" in found


def test_every_executed_page_imports_something_of_ours():
    for path in sorted((paths.root() / "book").glob("*.md")):
        text = path.read_text(encoding="utf-8")
        if freshness.KERNEL.search(text):
            assert freshness.depends_on(text), path.name


def test_a_change_in_the_module_runs_page_04_again(tmp_path, monkeypatch):
    """The digest of page 04 follows llm_internals/kv_cache.py, that of the first chapter does not follow another."""
    copy = tmp_path / "src"
    shutil.copytree(paths.root() / "src", copy, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from course.book import freshness; from pathlib import Path; "
        "print(*(freshness.digest(Path(name).read_text(encoding='utf-8')) for name in sys.argv[2:]))"
    )
    pages = [str(paths.root() / "book" / f"{name}.md") for name in ("04_kv_cache", "glossary")]

    def digests() -> list[str]:
        command = [sys.executable, "-c", code, str(copy), *pages]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.split()

    before = digests()
    assert digests() == before
    module = copy / "llm_internals" / "kv_cache.py"
    module.write_text(module.read_text(encoding="utf-8") + "\n# a comment\n", encoding="utf-8")
    after = digests()
    assert after[0] != before[0]
    assert after[1] == before[1]


@pytest.mark.slow
def test_sphinx_executes_a_page_again_only_when_its_imports_changed(tmp_path):
    """A book of one page, built four times: unchanged, with another module, with the module changed."""
    book, package = tmp_path / "book", tmp_path / "llm_internals"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "shown.py").write_text("VALUE = 1\n")
    (package / "other.py").write_text("VALUE = 1\n")
    book.mkdir()
    log = tmp_path / "log"
    cell = f"from llm_internals import shown\nopen({str(log)!r}, 'a').write('x')\nprint('value', shown.VALUE)"
    (book / "index.md").write_text(PAGE.replace("from llm_internals import kv_cache", cell))
    (book / "conf.py").write_text(
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nextensions = ['myst_nb', 'only_freshness']\n"
        "nb_execution_mode = 'cache'\n")
    (tmp_path / "only_freshness.py").write_text("from course.book.freshness import setup  # noqa: F401\n")

    def build() -> str:
        environment = {"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
        command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", str(book), str(tmp_path / "out")]
        subprocess.run(command, check=True, env=environment, capture_output=True, text=True)
        return (tmp_path / "out" / "index.html").read_text(encoding="utf-8")

    assert "value 1" in build()
    build()
    (package / "other.py").write_text("VALUE = 3\n")
    build()
    assert log.read_text() == "x"
    (package / "shown.py").write_text("VALUE = 2\n")
    assert "value 2" in build()
    assert log.read_text() == "xx"
