"""Arrows point one way: who imports whom, read from the source, lazy imports counted."""

import ast
import sys
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
# Parts of course, each after those it may lean on.
ORDER = ["specs", "judging", "notebooks", "running", "check", "classroom", "grade", "reports", "authoring", "book",
         "cli"]
NEVER = {  # beyond the order: who must not know whom, however far up they stand
    "running": {"specs", "judging", "notebooks"},  # behind the wall nobody knows what is right
    "check": {"classroom", "grade", "reports"},  # a student edition has these not
    "book": {"authoring", "grade", "classroom", "reports", "judging"},
    "classroom": {"check", "judging", "running"},
}


def names_in(path: Path):
    """Every name that a file imports, at any depth of its code, as dotted text."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_of(path): path for package in sorted(OURS) for path in sorted((SRC / package).rglob("*.py"))}


def imports(module: str) -> set[str]:
    """Modules of ours that a module imports: of ``from a import b`` the module a.b where there is one, else a."""
    found = set()
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    here = module if MODULES[module].name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = ".".join(here.split(".")[: len(here.split(".")) - node.level + 1]) if node.level else ""
            base = ".".join(filter(None, [above, node.module]))
            inner = [f"{base}.{alias.name}" for alias in node.names]
            found.update(name if name in MODULES else base for name in inner)
    return (found & set(MODULES)) - {module}


GRAPH = {module: imports(module) for module in MODULES}


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected parts of more than one node (Tarjan, 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            part = stack[stack.index(node):]
            del stack[stack.index(node):]
            if len(part) > 1:
                found.append(sorted(part))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def folders(graph: dict[str, set[str]], package: str) -> dict[str, set[str]]:
    """The graph of a package's folders and top modules: ``course.grade.batch`` is ``course.grade``."""
    def short(name: str) -> str:
        return ".".join(name.split(".")[:2])

    found: dict[str, set[str]] = {}
    for module, reached in graph.items():
        if module.split(".")[0] == package:
            inside = {short(other) for other in reached if other.split(".")[0] == package}
            found.setdefault(short(module), set()).update(inside - {short(module), package})
    return found


def test_the_search_for_circles_finds_them():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": {"f"}}) == [["a", "b", "c"]]
    assert circles({"a": {"b"}, "b": set()}) == []


def test_lazy_imports_are_seen():
    assert "course.grade.distribute" in GRAPH["course.reports.class_run"]  # inside a method
    assert "course.sources" in GRAPH["course.judging.gate"]


@pytest.mark.parametrize("package", sorted(OURS))
def test_no_module_imports_itself_round_a_circle(package):
    mine = {module: reached for module, reached in GRAPH.items() if module.split(".")[0] == package}
    assert circles(mine) == []


def test_no_folder_of_the_course_imports_itself_round_a_circle():
    assert circles(folders(GRAPH, "course")) == []


def test_the_arrows_of_the_course_are_those_that_are_drawn():
    """CONTRIBUTING's order, derived from the tree: whoever stands earlier never imports who stands later."""
    graph = folders(GRAPH, "course")
    parts = {path.name for path in (SRC / "course").iterdir() if (path / "__init__.py").is_file()}
    assert parts - {"given"} <= set(ORDER), "a new folder: say where it stands"
    for name in ORDER:
        reached = {other.split(".")[1] for other in graph.get(f"course.{name}", ())}
        later = set(ORDER[ORDER.index(name) + 1:])
        assert not reached & (later | NEVER.get(name, set())), (name, reached & (later | NEVER.get(name, set())))


def test_no_private_name_is_used_across_modules():
    found = []
    for module, path in MODULES.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        aliases = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                aliases |= {alias.asname or alias.name.split(".")[0]: alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in OURS:
                aliases |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
                found += [f"{module}: {node.module}.{alias.name}" for alias in node.names if private(alias.name)]
        found += [
            f"{module}: {aliases[node.value.id]}.{node.attr}" for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and private(node.attr)
            and aliases.get(node.value.id) in MODULES
        ]
    assert found == []


def private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and not any(
        module.endswith(f".{name}") for module in MODULES)  # a module of a package may be for that package alone


def test_private_modules_stay_in_their_package():
    for module, reached in GRAPH.items():
        for other in reached:
            package, _, name = other.rpartition(".")
            assert not name.startswith("__main__")
            if name.startswith("_") and not name.endswith("__"):
                assert module.startswith(package), f"{module} imports {other}"


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_packages_import_only_what_they_may(package):
    mine = [module for module in MODULES if module.split(".")[0] == package]
    assert mine
    for module in mine:
        reached = {other.split(".")[0] for other in names_in(MODULES[module])} & OURS - {package}
        assert reached <= ALLOWED[package], f"{module}: {reached - ALLOWED[package]}"


def test_the_worker_needs_nothing_but_what_the_sandbox_holds():
    for module, path in MODULES.items():
        if module.split(".")[0] == "gradeworker":
            for name in names_in(path):
                top = name.split(".")[0]
                assert top in WORKER_MAY | {"gradeworker"} or top in sys.stdlib_module_names, f"{path}: {name}"


def test_given_modules_import_nothing_of_ours():
    for module, path in MODULES.items():
        if module.startswith("course.given."):
            assert not {name.split(".")[0] for name in names_in(path)} & OURS, path


def test_ops_knows_no_implementation():
    assert GRAPH["llm_internals.ops"] == set()


def test_chapter_modules_lean_on_ops_and_are_leant_on():
    """engine → model → ops ← chapter modules and kernels: a module with a page of its stem knows nothing above it."""
    upward = {f"llm_internals.{name}" for name in ("model", "engine", "cli", "checkpoint")}
    stems = {path.stem.split("_", 1)[1] for path in (SRC.parent / "book").glob("[0-9][0-9]_*.md")}
    chapters = [f"llm_internals.{stem}" for stem in sorted(stems) if f"llm_internals.{stem}" in MODULES]
    assert chapters
    for module in chapters + [name for name in MODULES if name.startswith("llm_internals.kernels")]:
        assert not GRAPH[module] & upward, (module, GRAPH[module] & upward)
