"""Where Triton is missing the kernel pages are built without being run."""

import importlib.util
from types import SimpleNamespace

from course import paths
from course.book import sphinx_ext


def test_kernel_pages_are_not_run_without_triton(monkeypatch):
    config = SimpleNamespace(nb_execution_excludepatterns=["other.md"])
    sphinx_ext._without_triton(None, config)
    assert config.nb_execution_excludepatterns == ["other.md"]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    sphinx_ext._without_triton(None, config)
    assert config.nb_execution_excludepatterns == ["other.md", *sphinx_ext.KERNEL_PAGES]


def test_every_page_that_imports_triton_is_among_them():
    pages = {page.name for page in (paths.root() / "book").glob("*.md") if "\nimport triton" in page.read_text("utf-8")}
    assert pages == set(sphinx_ext.KERNEL_PAGES)
