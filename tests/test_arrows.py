"""Arrows point one way: which package may import which, read from the source."""

import ast
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[1] / "src"
OURS = {"course", "gradeworker", "kernelcheck", "llm_internals"}
ALLOWED = {
    "llm_internals": set(),
    "kernelcheck": set(),
    "gradeworker": {"kernelcheck"},
    "course": {"gradeworker", "kernelcheck", "llm_internals"},
}
WORKER_MAY = {"kernelcheck", "torch", "triton", "numpy", "safetensors"}


def imports(path: Path):
    """Absolute names of all modules a file imports, at any depth."""
    package = path.relative_to(SRC).with_suffix("").parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: -node.level]) if node.level else ""
            yield ".".join(filter(None, [base, node.module]))
            yield from (".".join(filter(None, [base, node.module, alias.name])) for alias in node.names)


def files(package: str):
    return sorted((SRC / package).rglob("*.py"))


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_packages_import_only_what_they_may(package):
    assert files(package) or package == "kernelcheck"
    for path in files(package):
        reached = {name.split(".")[0] for name in imports(path)} & OURS - {package}
        assert reached <= ALLOWED[package], f"{path}: {reached - ALLOWED[package]}"


def test_the_worker_needs_nothing_but_what_the_sandbox_holds():
    import sys

    for path in files("gradeworker"):
        for name in imports(path):
            top = name.split(".")[0]
            assert top in WORKER_MAY | {"gradeworker"} or top in sys.stdlib_module_names, f"{path}: {name}"


def test_specs_do_not_import_the_book():
    for path in files("course/specs"):
        assert not any(name.startswith("course.book") for name in imports(path)), path


def test_given_modules_import_nothing_of_ours():
    for path in files("course/given"):
        assert not {name.split(".")[0] for name in imports(path)} & OURS, path


def test_ops_knows_no_implementation():
    names = set(imports(SRC / "llm_internals" / "ops.py"))
    assert not any(name.startswith("llm_internals") for name in names)


def test_chapter_modules_do_not_import_the_model_or_the_engine():
    upward = {"llm_internals.model", "llm_internals.engine", "llm_internals.cli", "llm_internals.checkpoint"}
    for stem in ("tokenization", "transformer_block"):
        assert not set(imports(SRC / "llm_internals" / f"{stem}.py")) & upward
