"""Read an answer before it runs: calls the exercise asks you to do without, and code no answer needs."""

from __future__ import annotations

import ast
import importlib
import types
from dataclasses import dataclass

from course.sources import MAX_SOURCE, Answer

ALLOWED_IMPORTS = {
    "__future__", "abc", "bisect", "codecs", "collections", "copy", "dataclasses", "enum", "functools", "heapq",
    "itertools", "math", "numpy", "random", "re", "regex", "statistics", "string", "torch", "triton", "typing",
    "unicodedata",
}
# Names that reach around the language: no exercise needs them, every cheat does.
FORBIDDEN_NAMES = {
    "eval", "exec", "compile", "open", "__import__", "globals", "locals", "vars", "breakpoint", "input", "exit", "quit",
    "memoryview", "delattr", "get_ipython",
}
FORBIDDEN_TORCH = {"load", "save", "compile", "ops", "classes", "library", "utils", "hub", "jit", "_C", "_dynamo",
                   "multiprocessing", "distributed", "backends", "overrides", "_ops", "cpp_extension", "fx", "package",
                   "onnx", "export", "testing", "serialization", "storage", "ao", "quantization", "profiler", "monitor"}
# Modules below the allowed packages. Every other module that hangs on one is a way out: enum.bltns, re.copyreg,
# dataclasses.types, torch.optim.lr_scheduler.types ...
ALLOWED_MODULES = {
    "collections.abc", "numpy.linalg", "numpy.fft", "numpy.random", "torch.nn", "torch.nn.functional", "torch.nn.init",
    "torch.linalg", "torch.fft", "torch.special", "torch.random", "triton.language",
}
# Triton is not asked: importing it here would come before kernelcheck has repaired its interpreter.
TRITON_PARTS = {"jit", "language", "cdiv", "next_power_of_2"}
GIVEN_NAMES = {"F": "torch.nn.functional", "tl": "triton.language", "np": "numpy", "nn": "torch.nn"}
REACHES = {"getattr", "setattr", "hasattr"}
# Doors to files, raw memory, foreign code and global state, whatever module they hang on; and functions of the
# standard library that look an attribute up by a text, or run one.
FORBIDDEN_ANYWHERE = {
    "ctypeslib", "ctypes", "memmap", "fromfile", "tofile", "loadtxt", "genfromtxt", "savetxt", "savez", "f2py",
    "from_file", "data_ptr", "untyped_storage", "_storage", "set_num_threads", "sys", "os", "subprocess", "builtins",
    "use_deterministic_algorithms", "set_default_dtype", "set_default_device", "attrgetter", "methodcaller",
    "importlib", "inspect", "pickle", "gc", "threading", "linecache", "weakref", "socket", "warnings", "contextvars",
    "Formatter", "get_field", "vformat", "update_wrapper", "wraps", "get_type_hints", "ForwardRef", "singledispatch",
    "open", "EncodedFile", "open_memmap", "DataSource", "dump", "dumps",
    "singledispatchmethod", "make_dataclass", "astuple", "asdict", "runstring", "rundocs", "fromregex",
}
# A library function whose inside is the denied one goes by other names too.
DETOURS = {
    "softmax": ("softmax", "softmin", "logsumexp", "logcumsumexp", "logaddexp", "cross_entropy", "distributions",
                "attention"),
    "scaled_dot_product_attention": ("attention", "transformerencoder", "transformerdecoder"),
    "rms_norm": ("rms_norm", "layer_norm", "group_norm", "batch_norm", "instance_norm"),
    "silu": ("silu", "hardswish"),
}
# What a class of a learner may define; the others change what isinstance, match or an assignment means.
OWN_METHODS = {
    "__init__", "__post_init__", "__new__", "__call__", "__len__", "__getitem__", "__setitem__", "__delitem__",
    "__contains__", "__iter__", "__next__", "__reversed__", "__repr__", "__str__", "__eq__", "__hash__", "__bool__",
    "__lt__", "__le__", "__gt__", "__ge__", "__add__", "__sub__", "__mul__", "__enter__", "__exit__", "__slots__",
    "__missing__", "__name__",
}
READABLE = {"__init__", "__name__", "__len__", "__getitem__", "__contains__"}  # dunder attributes one may ask for
PLAIN_PRIVATE = {"_asdict", "_fields", "_make", "_replace"}  # of a named tuple: public in spite of their names


@dataclass(frozen=True)
class Finding:
    """One thing the gate does not let pass."""

    line: int
    message: str
    kind: str  # "denied": the exercise wants you to write it; "policy": no answer needs it; "syntax"


NOT_IN_A_KERNEL = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.Try, ast.TryStar, ast.With, ast.AsyncWith, ast.ClassDef,
    ast.Global, ast.Nonlocal, ast.Import, ast.ImportFrom, ast.Match, ast.ListComp, ast.SetComp, ast.DictComp,
    ast.GeneratorExp, ast.Yield, ast.YieldFrom, ast.Await,
)
# Parts of triton.language that are modules or plumbing, and what lies below a tensor of the interpreter.
NOT_ON_A_TENSOR = {"core", "semantic", "standard", "extra", "random", "handle", "data", "builder", "fn", "src", "run"}
KERNEL_BUILTINS = {"range", "float", "int", "bool", "min", "max", "abs", "len", "True", "False", "None"}


def inspect(
    source: str, denied: tuple[str, ...] = (), given: tuple[str, ...] = (), kernel: bool = False
) -> list[Finding]:
    """Findings in ``source``, in order of line; an empty list when it may run.

    ``kernel``: the answer is Triton, so it may hold nothing but imports and ``@triton.jit`` functions that use
    their own names, each other and ``tl``. ``denied``: names of functions or methods this exercise does without.
    ``given``: modules below course.given that it may import.
    """
    answer = Answer.of(source)
    if len(answer) > MAX_SOURCE:
        return [Finding(0, f"the answer has more than {MAX_SOURCE:,} characters", "policy")]
    if isinstance(answer.problem, (RecursionError, MemoryError)):
        return [Finding(0, "this is nested too deeply to be read: give the parts names", "syntax")]
    if answer.problem is not None:
        line = getattr(answer.problem, "lineno", 0) or 0
        return [Finding(line, f"this is not Python: {answer.problem.args[0]}", "syntax")]
    names = _denied_names(denied)
    modules = _modules(answer)
    found = [item for node in answer.nodes for item in _look(node, names, frozenset(given), modules)]
    if kernel:
        found += _kernel_only(answer)
    found += _handed_on(answer, modules)
    found += _ways_out(answer)
    found += _borrowed(answer, frozenset(denied))
    return sorted(found, key=lambda item: item.line)


@dataclass(frozen=True)
class _Denied:
    """What the exercise asks one to do without: whole names, and parts of names that mean the same work."""

    names: frozenset[str]
    parts: frozenset[str]

    def __contains__(self, name: str) -> bool:
        squashed = name.lower().replace("_", "")
        return squashed in self.names or any(part in squashed for part in self.parts)


def _denied_names(denied: tuple[str, ...]) -> _Denied:
    """``denied`` with every name under which a library hides the same work: ``torch._safe_softmax`` and the like."""
    names = {name.lower().replace("_", "") for name in denied}
    parts = {part.replace("_", "") for name in denied for part in DETOURS.get(name, ())}
    return _Denied(frozenset(names), frozenset(parts))


def _modules(answer: Answer) -> dict[str, str]:
    """Names that stand for modules, with the package they are of: those given, and what `import` binds.

    A given one that the answer uses for something else (``B, T, F = x.shape``) is left out.
    """
    stored = {node.id for node in answer.nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    stored |= {node.arg for node in answer.nodes if isinstance(node, ast.arg)}
    given = {"F": "torch", "math": "math", "triton": "triton", "tl": "triton"}
    bound = {"torch": "torch"} | {name: package for name, package in given.items() if name not in stored}
    for node in answer.nodes:
        if isinstance(node, ast.Import):
            bound |= {alias.asname or alias.name.split(".")[0]: alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in {"torch", "triton", "numpy"}:
            package = node.module.split(".")[0]
            bound |= {alias.asname or alias.name: package for alias in node.names if alias.name.islower()}
    return bound


def _kernel_only(answer: Answer) -> list[Finding]:
    """What a cell with a kernel may hold: the interpreter runs it as plain Python, so this is an allowlist."""
    found, functions = [], []
    for node in answer.tree.body:
        if isinstance(node, ast.FunctionDef):
            functions.append(node)
            if not _is_jit(node.decorator_list):
                found.append(Finding(node.lineno, f"{node.name} must be a kernel: put @triton.jit above it", "policy"))
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            imported = [(alias.name, alias.asname) for alias in node.names]
            if isinstance(node, ast.ImportFrom) or not set(imported) <= KERNEL_IMPORTS:
                text = "a kernel's cell imports torch, triton and triton.language as tl, nothing else"
                found.append(Finding(node.lineno, text, "policy"))
        elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            found.append(Finding(node.lineno, "a kernel's cell holds kernels only; the launch is given", "policy"))
    known = {function.name for function in functions} | KERNEL_BUILTINS | {"tl"}
    for function in functions:
        found += _runs_at_definition(function)
        own = known | {argument.arg for argument in ast.walk(function.args) if isinstance(argument, ast.arg)}
        own |= {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        for node in (inner for statement in function.body for inner in ast.walk(statement)):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in own:
                do = "tl.device_print('x', x) shows x" if node.id == "print" else "use tl, parameters and local names"
                text = f"{node.id} is not known inside a kernel: {do}"
                found.append(Finding(node.lineno, text, "policy"))
            elif isinstance(node, ast.Name) and node.id in {"tl", "triton", "torch"} and not isinstance(
                node.ctx, ast.Load
            ):
                found.append(Finding(node.lineno, f"{node.id} keeps its meaning inside a kernel", "policy"))
            elif isinstance(node, NOT_IN_A_KERNEL):
                text = "a kernel has no functions, imports, try, with, match, comprehensions or global inside"
                found.append(Finding(getattr(node, "lineno", function.lineno), text, "policy"))
            elif isinstance(node, ast.Attribute) and (
                node.attr in NOT_ON_A_TENSOR or node.attr.startswith("_") or not isinstance(node.ctx, ast.Load)
            ):
                found.append(Finding(node.lineno, f"{node.attr} has no place in a kernel", "policy"))
    return found


KERNEL_IMPORTS = {("torch", None), ("triton", None), ("triton.language", "tl")}


def _is_jit(decorators: list[ast.expr]) -> bool:
    """Exactly ``@triton.jit``."""
    return len(decorators) == 1 and ast.dump(decorators[0]) == _JIT


_JIT = ast.dump(ast.parse("triton.jit", mode="eval").body)


def _runs_at_definition(function: ast.FunctionDef) -> list[Finding]:
    """Defaults and annotations are run as plain Python when a kernel is defined, so they are constants or tl's."""
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    notes = [argument.annotation for argument in every if argument is not None] + [function.returns]
    values = [*arguments.defaults, *arguments.kw_defaults]
    found = []
    for node in [*notes, *values, *getattr(function, "type_params", ())]:
        plain = node is None or isinstance(node, ast.Constant) or (
            isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in {"tl", "torch"}
        )
        if not plain:
            text = "defaults and annotations of a kernel are constants or tl.constexpr"
            found.append(Finding(function.lineno, text, "policy"))
    return found


def _handed_on(answer: Answer, modules: dict[str, str]) -> list[Finding]:
    """getattr and its kin may be called, modules asked for a name, but neither handed on or given another name.

    What they are asked for must be readable here.
    """
    calls = [node for node in answer.nodes if isinstance(node, ast.Call)]
    called = {id(node.func) for node in calls}
    asked = {id(node.value) for node in answer.nodes if isinstance(node, ast.Attribute)}
    asked |= {id(argument) for node in calls if isinstance(node.func, ast.Name) and node.func.id in REACHES
              for argument in node.args}
    found = []
    for node in answer.nodes:
        if not isinstance(node, ast.Name):
            continue
        if node.id in REACHES and id(node) not in called:
            text = f"{node.id} may only be called, with the attribute's name written out"
            found.append(Finding(node.lineno, text, "policy"))
        elif modules.get(node.id) in {"torch", "numpy", "triton"} and id(node) not in asked:
            text = f"{node.id} is a module: write {node.id}.name where you need it"
            found.append(Finding(node.lineno, text, "policy"))
    return found


def _borrowed(answer: Answer, denied: frozenset[str]) -> list[Finding]:
    """A denied name used as a plain name, unless the answer defines it itself."""
    own = {node.name for node in answer.nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    own |= {node.id for node in answer.nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    own |= {node.arg for node in answer.nodes if isinstance(node, ast.arg)}
    return [
        Finding(node.lineno, f"{node.id} does the work this exercise asks you to write", "denied")
        for node in answer.nodes
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in denied - own
    ]


def _look(node: ast.AST, denied: _Denied, given: frozenset[str], modules: dict[str, str]):
    line = getattr(node, "lineno", 0)
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from _look_import(node, denied, given)
    elif isinstance(node, ast.Attribute):
        yield from _look_name(node.attr, line, denied)
        base = _base(node.value)
        if base in modules and not isinstance(node.ctx, ast.Load):
            yield Finding(line, f"an answer does not change what {base} is", "policy")
        elif node.attr.startswith("_") and not node.attr.endswith("__") and not _own(node):
            yield Finding(line, f"{node.attr} is private: an answer needs public names only", "policy")
        yield from _look_module_name(node.attr, node.value, line, modules)
    elif isinstance(node, ast.Name):
        dunder = node.id.startswith("__") and node.id.endswith("__") and node.id not in OWN_METHODS
        if dunder or (node.id in FORBIDDEN_NAMES and isinstance(node.ctx, ast.Load)):
            yield Finding(line, f"{node.id} has no place in an answer", "policy")
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        if node.name.startswith("__") and node.name.endswith("__") and node.name not in OWN_METHODS:
            yield Finding(line, f"{node.name} has no place in an answer", "policy")
    elif isinstance(node, ast.MatchClass):
        if node.patterns or node.kwd_patterns:
            yield Finding(line, "a class pattern with parts reads attributes unseen: use if and a name", "policy")
    elif isinstance(node, ast.ClassDef):
        if node.keywords:
            yield Finding(line, "a class of an answer has no metaclass", "policy")
        if any(getattr(base, "attr", getattr(base, "id", "")).endswith(("Tensor", "Parameter")) for base in node.bases):
            yield Finding(line, "an answer does not make a tensor of its own kind", "policy")
    elif isinstance(node, ast.Call):
        yield from _look_getattr(node, denied, modules)


def _base(node: ast.AST) -> str:
    """The name at the root of a chain of attributes, "" when there is none."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _ways_out(answer: Answer) -> list[Finding]:
    """Modules that are reached through a module and that no answer needs, found by asking the real ones.

    A name counts as its module even where the answer assigns to it: ``F = F`` would hide it otherwise.
    """
    known = {name: name for name in ALLOWED_IMPORTS} | GIVEN_NAMES
    found = []
    for node in answer.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                package = alias.name.split(".")[0]
                known[alias.asname or package] = alias.name if alias.asname else package
                if package == "triton":
                    found += _of_triton(alias.name.split("."), node.lineno)
                elif package != alias.name and package in ALLOWED_IMPORTS:
                    found += _way_out(_loaded(alias.name), alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ALLOWED_IMPORTS:
            if node.module.split(".")[0] == "triton":
                for alias in node.names:
                    found += _of_triton([*node.module.split("."), alias.name], node.lineno)
                    known[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                continue
            module = _loaded(node.module)
            found += _way_out(module, node.module, node.lineno)
            for alias in node.names:
                inner = getattr(module, alias.name, None)
                found += _way_out(inner, f"{node.module}.{alias.name}", node.lineno)
                if isinstance(inner, types.ModuleType):
                    known[alias.asname or alias.name] = inner.__name__
    for node in answer.nodes:
        if isinstance(node, ast.Attribute):
            names = _dotted(node)
            if names and known.get(names[0], "").split(".")[0] == "triton":
                found += _of_triton([*known[names[0]].split("."), *names[1:]], node.lineno)
                continue
            here = _loaded(known[names[0]]) if names and names[0] in known else None
            for name in names[1:]:
                here = getattr(here, name, None) if isinstance(here, types.ModuleType) else None
            found += _way_out(here, ".".join(names), node.lineno)
    return found


def _of_triton(names: list[str], line: int) -> list[Finding]:
    """Of triton a few functions, of triton.language what is no module."""
    inner = names[2:3] if names[1:2] == ["language"] else names[1:2]
    wrong = set(inner) & NOT_ON_A_TENSOR if names[1:2] == ["language"] else set(inner) - TRITON_PARTS
    return [Finding(line, f"{'.'.join(names)} has no place in an answer", "policy")] if wrong else []


def _way_out(thing: object, text: str, line: int) -> list[Finding]:
    if not isinstance(thing, types.ModuleType):
        return []
    if thing.__name__ in ALLOWED_MODULES or thing.__name__ in ALLOWED_IMPORTS:
        return []
    return [Finding(line, f"{text} has no place in an answer", "policy")]


def _dotted(node: ast.Attribute) -> list[str]:
    """The names of ``a.b.c``; empty when it does not begin with a name."""
    names: list[str] = []
    inner: ast.AST = node
    while isinstance(inner, ast.Attribute):
        names.append(inner.attr)
        inner = inner.value
    return [inner.id, *reversed(names)] if isinstance(inner, ast.Name) else []


def _loaded(name: str) -> types.ModuleType | None:
    """A module of an allowed package, if it is installed here."""
    try:
        return importlib.import_module(name) if name.split(".")[0] in ALLOWED_IMPORTS else None
    except ImportError:
        return None


def _own(node: ast.Attribute) -> bool:
    """A private attribute of the learner's own object, or a public one of a named tuple."""
    mine = isinstance(node.value, ast.Name) and node.value.id in {"self", "cls", "other"}
    return mine or node.attr in PLAIN_PRIVATE


def _look_name(name: str, line: int, denied: _Denied):
    if name in denied:
        yield Finding(line, f"{name} does the work this exercise asks you to write", "denied")
    elif name.startswith("__") and name.endswith("__") and name not in READABLE:
        yield Finding(line, f"{name} has no place in an answer", "policy")


def _look_module_name(name: str, value: ast.AST, line: int, modules: dict[str, str]):
    """Names that no object of an answer should be asked for; some only of torch, under whatever name it goes."""
    of = modules.get(value.id) if isinstance(value, ast.Name) else getattr(value, "attr", None)
    if name in FORBIDDEN_TORCH and of in {"torch", "numpy"}:
        yield Finding(line, f"{of}.{name} has no place in an answer", "policy")
    elif name in FORBIDDEN_ANYWHERE:
        yield Finding(line, f"{name} has no place in an answer", "policy")


def _look_import(node: ast.Import | ast.ImportFrom, denied: _Denied, given: frozenset[str]):
    if isinstance(node, ast.ImportFrom):
        modules = [node.module or ""]
        for alias in node.names:
            yield from _look_name(alias.name, node.lineno, denied)
            if alias.name == "*":
                yield Finding(node.lineno, "name what you import instead of *", "policy")
            if alias.name in FORBIDDEN_ANYWHERE:
                yield Finding(node.lineno, f"{alias.name} has no place in an answer", "policy")
            if alias.name.startswith("_"):
                yield Finding(node.lineno, f"{alias.name} is private: an answer needs public names only", "policy")
            if node.module == "torch" and alias.name in FORBIDDEN_TORCH:
                yield Finding(node.lineno, f"torch.{alias.name} has no place in an answer", "policy")
    else:
        modules = [alias.name for alias in node.names]
    for module in modules:
        if module in {f"course.given.{name}" for name in given}:
            continue
        parts = module.split(".")
        forbidden = FORBIDDEN_ANYWHERE | FORBIDDEN_TORCH if parts[0] == "torch" else FORBIDDEN_ANYWHERE
        if forbidden & set(parts[1:]) or any(part.startswith("_") for part in parts[1:]):
            yield Finding(node.lineno, f"{module} has no place in an answer", "policy")
        elif parts[0] == "llm_internals":
            yield Finding(node.lineno, "an answer stands on its own: it may not import llm_internals", "policy")
        elif parts[0] not in ALLOWED_IMPORTS:
            yield Finding(node.lineno, f"an answer may not import {module or 'relatively'}", "policy")


def _look_getattr(node: ast.Call, denied: _Denied, modules: dict[str, str]):
    if not (isinstance(node.func, ast.Name) and node.func.id in REACHES):
        return
    target = node.args[0] if node.args else None
    name = node.args[1] if len(node.args) > 1 else None
    if not (isinstance(name, ast.Constant) and isinstance(name.value, str)):
        yield Finding(node.lineno, f"{node.func.id} needs the attribute's name written out", "policy")
    elif node.func.id == "setattr" and _base(target) in modules:
        yield Finding(node.lineno, f"an answer does not change what {_base(target)} is", "policy")
    elif node.func.id != "hasattr":
        yield from _look_name(name.value, node.lineno, denied)
        yield from _look_module_name(name.value, target, node.lineno, modules)
        if name.value.startswith("_") and not (isinstance(target, ast.Name) and target.id == "self"):
            yield Finding(node.lineno, f"{name.value} is private: an answer needs public names only", "policy")
