"""Read an answer before it runs: calls the exercise asks you to do without, and code no answer needs."""

from __future__ import annotations

import ast
from dataclasses import dataclass

ALLOWED_IMPORTS = {
    "__future__", "abc", "bisect", "collections", "copy", "dataclasses", "enum", "functools", "heapq", "itertools",
    "math", "numpy", "random", "re", "regex", "statistics", "string", "torch", "triton", "typing",
    "unicodedata",
}
# Names that reach around the language: no exercise needs them, every cheat does.
FORBIDDEN_NAMES = {
    "eval", "exec", "compile", "open", "__import__", "globals", "locals", "vars", "breakpoint", "input", "exit", "quit",
    "memoryview", "delattr", "get_ipython",
}
FORBIDDEN_TORCH = {"load", "save", "compile", "ops", "classes", "library", "utils", "hub", "jit", "_C", "_dynamo",
                   "multiprocessing", "distributed", "backends", "overrides", "_ops", "cpp_extension"}


REACHES = {"getattr", "setattr", "hasattr"}
# Doors to files, raw memory, foreign code and global state, whatever module they hang on.
FORBIDDEN_ANYWHERE = {
    "ctypeslib", "ctypes", "memmap", "fromfile", "tofile", "loadtxt", "genfromtxt", "savetxt", "savez", "f2py",
    "from_file", "data_ptr", "untyped_storage", "_storage", "set_num_threads", "sys", "os", "subprocess", "builtins",
    "use_deterministic_algorithms", "set_default_dtype", "set_default_device", "attrgetter", "methodcaller",
}


@dataclass(frozen=True)
class Finding:
    """One thing the gate does not let pass."""

    line: int
    message: str
    kind: str  # "denied": the exercise wants you to write it; "policy": no answer needs it; "syntax"


NOT_IN_A_KERNEL = (ast.FunctionDef, ast.Lambda, ast.Try, ast.With, ast.ClassDef, ast.Global, ast.Nonlocal)
KERNEL_BUILTINS = {"range", "float", "int", "bool", "min", "max", "abs", "len", "True", "False", "None"}


def inspect(
    source: str, denied: tuple[str, ...] = (), given: tuple[str, ...] = (), kernel: bool = False
) -> list[Finding]:
    """Findings in ``source``, in order of line; an empty list when it may run.

    ``kernel``: the answer is Triton, so it may hold nothing but imports and ``@triton.jit`` functions that use
    their own names, each other and ``tl``. ``denied``: names of functions or methods this exercise does without.
    ``given``: modules below course.given that it may import.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError) as error:
        return [Finding(getattr(error, "lineno", 0) or 0, f"this is not Python: {error.args[0]}", "syntax")]
    found = [item for node in ast.walk(tree) for item in _look(node, frozenset(denied), frozenset(given))]
    if kernel:
        found += _kernel_only(tree)
    found += _loose_getattr(tree)
    found += _borrowed(tree, frozenset(denied))
    return sorted(found, key=lambda item: item.line)


def _kernel_only(tree: ast.Module) -> list[Finding]:
    """What a cell with a kernel may hold: the interpreter runs it as plain Python, so this is an allowlist."""
    found, functions = [], []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            functions.append(node)
            if [ast.unparse(decorator) for decorator in node.decorator_list] != ["triton.jit"]:
                found.append(Finding(node.lineno, f"{node.name} must be a kernel: put @triton.jit above it", "policy"))
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            if ast.unparse(node) not in {"import triton", "import triton.language as tl", "import torch"}:
                found.append(Finding(node.lineno, f"a kernel's cell does without `{ast.unparse(node)}`", "policy"))
        elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            found.append(Finding(node.lineno, "a kernel's cell holds kernels only; the launch is given", "policy"))
    known = {function.name for function in functions} | KERNEL_BUILTINS | {"tl"}
    for function in functions:
        own = known | {argument.arg for argument in ast.walk(function.args) if isinstance(argument, ast.arg)}
        own |= {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        for node in (inner for statement in function.body for inner in ast.walk(statement)):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in own:
                text = f"{node.id} is not known inside a kernel: use tl, parameters and local names"
                found.append(Finding(node.lineno, text, "policy"))
            elif isinstance(node, NOT_IN_A_KERNEL):
                found.append(Finding(node.lineno, "a kernel has no functions, try, with or global inside", "policy"))
    return found


def _loose_getattr(tree: ast.AST) -> list[Finding]:
    """getattr and its kin may be called, not handed on: what they are asked for must be readable."""
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return [
        Finding(node.lineno, f"{node.id} may only be called, with the attribute's name written out", "policy")
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and node.id in REACHES and id(node) not in called
    ]


def _borrowed(tree: ast.AST, denied: frozenset[str]) -> list[Finding]:
    """A denied name used as a plain name, unless the answer defines it itself."""
    own = {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    own |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    own |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    return [
        Finding(node.lineno, f"{node.id} does the work this exercise asks you to write", "denied")
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in denied - own
    ]


def _look(node: ast.AST, denied: frozenset[str], given: frozenset[str]):
    line = getattr(node, "lineno", 0)
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from _look_import(node, denied, given)
    elif isinstance(node, ast.Attribute):
        yield from _look_name(node.attr, line, denied)
        if isinstance(node.value, ast.Name) and node.value.id == "torch" and node.attr in FORBIDDEN_TORCH:
            yield Finding(line, f"torch.{node.attr} has no place in an answer", "policy")
        elif node.attr in FORBIDDEN_ANYWHERE:
            yield Finding(line, f"{node.attr} has no place in an answer", "policy")
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        if node.id in FORBIDDEN_NAMES or (node.id.startswith("__") and node.id.endswith("__")):
            yield Finding(line, f"{node.id} has no place in an answer", "policy")
    elif isinstance(node, ast.Call):
        yield from _look_getattr(node, denied)


def _look_name(name: str, line: int, denied: frozenset[str]):
    if name.strip("_") in denied or name.lower() in denied:
        yield Finding(line, f"{name} does the work this exercise asks you to write", "denied")
    elif name.startswith("__") and name.endswith("__") and name not in {"__init__", "__name__", "__len__"}:
        yield Finding(line, f"{name} has no place in an answer", "policy")


def _look_import(node: ast.Import | ast.ImportFrom, denied: frozenset[str], given: frozenset[str]):
    if isinstance(node, ast.ImportFrom):
        modules = [node.module or ""]
        for alias in node.names:
            yield from _look_name(alias.name, node.lineno, denied)
            if alias.name == "*":
                yield Finding(node.lineno, "name what you import instead of *", "policy")
            if alias.name in FORBIDDEN_ANYWHERE:
                yield Finding(node.lineno, f"{alias.name} has no place in an answer", "policy")
            if node.module == "torch" and alias.name in FORBIDDEN_TORCH:
                yield Finding(node.lineno, f"torch.{alias.name} has no place in an answer", "policy")
    else:
        modules = [alias.name for alias in node.names]
    for module in modules:
        if module in {f"course.given.{name}" for name in given}:
            continue
        parts = module.split(".")
        forbidden = FORBIDDEN_ANYWHERE | FORBIDDEN_TORCH if parts[0] == "torch" else FORBIDDEN_ANYWHERE
        if forbidden & set(parts[1:]):
            yield Finding(node.lineno, f"{module} has no place in an answer", "policy")
        elif parts[0] == "llm_internals":
            yield Finding(node.lineno, "an answer stands on its own: it may not import llm_internals", "policy")
        elif parts[0] not in ALLOWED_IMPORTS:
            yield Finding(node.lineno, f"an answer may not import {module or 'relatively'}", "policy")


def _look_getattr(node: ast.Call, denied: frozenset[str]):
    if not (isinstance(node.func, ast.Name) and node.func.id in REACHES):
        return
    name = node.args[1] if len(node.args) > 1 else None
    if not (isinstance(name, ast.Constant) and isinstance(name.value, str)):
        yield Finding(node.lineno, f"{node.func.id} needs the attribute's name written out", "policy")
    elif node.func.id != "hasattr":
        yield from _look_name(name.value, node.lineno, denied)
