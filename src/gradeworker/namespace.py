"""What an answer finds by name: builtins that stay inside, and modules as shop windows.

An answer is plain Python in a sandbox; nothing here is the wall. It is what keeps an answer honest: no module leads on
to another one, no text is turned into code or into the name of an attribute, and what records the library's work
(:mod:`gradeworker.recorder`) cannot be switched off. So it does not matter how a name is spelt: what is not in the
window is not there.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import sys
import types
from collections.abc import Iterable
from typing import Any

NAME = "__answer__"  # the module that an answer is

# Modules an answer may import, with what it is shown of them: everything public that is no module, or just these names.
WINDOWS: dict[str, frozenset[str] | None] = dict.fromkeys([
    "__future__", "abc", "bisect", "codecs", "collections", "collections.abc", "contextlib", "copy", "dataclasses",
    "decimal", "enum", "fractions", "functools", "heapq", "itertools", "math", "numbers", "operator", "random", "re",
    "regex", "statistics", "string", "struct", "textwrap", "typing", "unicodedata",
    "numpy", "numpy.fft", "numpy.linalg", "numpy.random",
    "torch", "torch.fft", "torch.linalg", "torch.nn", "torch.nn.functional", "torch.nn.init", "torch.random",
    "torch.special", "triton", "triton.language",
]) | {
    "io": frozenset({"BytesIO", "StringIO"}),
    "logging": frozenset({"CRITICAL", "DEBUG", "ERROR", "INFO", "WARNING", "critical", "debug", "error", "exception",
                          "getLogger", "info", "warning"}),
    "time": frozenset({"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "sleep", "time",
                       "time_ns"}),
    "warnings": frozenset({"warn"}),
}
# Never shown, whatever they hang on: doors to files, raw memory and global state; what runs a text or follows one.
HIDDEN = {
    "DataSource", "EncodedFile", "Formatter", "ForwardRef", "SystemRandom", "attrgetter", "compile", "cond",
    "evaluate", "fork", "from_dlpack", "from_file", "fromfile", "fromregex", "genfromtxt", "get_file_path",
    "get_protocol_members", "get_type_hints", "import_ir_module", "import_ir_module_from_buffer",
    "init_num_threads", "load", "loadtxt", "make_dataclass", "memmap", "merge_type_from_type_comment",
    "methodcaller", "open", "open_memmap", "parse_ir", "parse_schema", "parse_type_comment",
    "prepare_multiprocessing_environment", "save", "savetxt", "savez", "savez_compressed",
    "set_num_interop_threads", "set_num_threads", "singledispatch", "singledispatchmethod", "test",
    "thread_safe_generator", "tofile", "unify_type_list", "update_wrapper", "use_deterministic_algorithms", "vmap",
    "wait", "while_loop", "classproperty", "runstring", "rundocs", "get_device_module", "to_dlpack",
}
# Of torch itself: its classes are a machine room, so these and no others.
TORCH_CLASSES = {
    "BFloat16Tensor", "BoolTensor", "ByteTensor", "CharTensor", "DoubleTensor", "FloatTensor", "Generator",
    "HalfTensor", "IntTensor", "LongTensor", "ShortTensor", "Size", "Tensor", "device", "dtype", "enable_grad",
    "finfo", "iinfo", "inference_mode", "layout", "memory_format", "no_grad", "set_grad_enabled",
}
# Names of a public door behind which somebody else's code, or the interpreter itself, begins.
FRAMES = {
    "ag_await", "ag_code", "ag_frame", "co_code", "co_consts", "cr_await", "cr_code", "cr_frame", "cr_origin",
    "f_back", "f_builtins", "f_code", "f_globals", "f_locals", "f_trace", "gi_code", "gi_frame", "gi_yieldfrom",
    "mro", "tb_frame", "tb_lasti", "tb_next",
}
MEMORY = {"data_ptr", "untyped_storage", "tofile", "ctypes", "dump", "dumps"}  # of a tensor or an array
READABLE = {"__init__", "__name__", "__len__", "__getitem__", "__contains__", "__doc__"}
PLAIN_PRIVATE = {"_asdict", "_fields", "_make", "_replace"}  # of a named tuple: public in spite of their names
NOT_BUILT_IN = {
    "__debug__", "__loader__", "__spec__", "breakpoint", "compile", "delattr", "eval", "exec", "exit",
    "get_ipython", "globals", "help", "input", "locals", "memoryview", "open", "quit", "vars",
}


class Hidden(AttributeError):
    """What an answer asked for is not shown to answers."""


class Window(types.ModuleType):
    """A module as an answer sees it.

    Its own name is none that ``sys.modules`` knows: there ``from torch import optim`` would look for what is missing.
    """

    def __init__(self, name: str):
        super().__init__(f"<{name}>")

    def __getattr__(self, name: str) -> Any:
        inner = f"{self.__name__.strip('<>')}.{name}"
        if inner in WINDOWS and name not in HIDDEN:  # numpy.random, which numpy imports when it is asked for
            return vars(self).setdefault(name, window(inner))
        raise Hidden(f"{self.__name__.strip('<>')}.{name} has no place in an answer")


def window(name: str) -> Window:
    """The window on a module of :data:`WINDOWS`. Raises ModuleNotFoundError when it is not installed."""
    if name not in sys.modules or name not in _shown:
        _shown[name] = _furnish(name)
    fresh = Window(name)  # one for each answer, so that what it assigns to stays its own
    vars(fresh).update(_shown[name])
    for inner in WINDOWS:
        package, _, last = inner.rpartition(".")
        if package == name and inner in sys.modules:
            vars(fresh)[last] = window(inner)
    return fresh


_shown: dict[str, dict[str, Any]] = {}


def _furnish(name: str) -> dict[str, Any]:
    """What is shown of a module: all that is public and leads nowhere."""
    only = WINDOWS[name]
    return {key: value for key, value in vars(importlib.import_module(name)).items()
            if (only is None or key in only) and _is_shown(name, key, value)}


@functools.cache
def _rest_of_numpy() -> None:
    """Let numpy import what its methods fetch when they are first called: an answer's own import would refuse it."""
    import numpy

    array = numpy.ones((2, 2))
    for method in ("sum", "prod", "mean", "std", "var", "max", "min", "any", "all", "clip"):
        getattr(array, method)(*((0, 1) if method == "clip" else ()))
    repr(array)


def _is_shown(module: str, name: str, value: Any) -> bool:
    if name.startswith("_") or name in HIDDEN or isinstance(value, types.ModuleType):
        return False
    if module.split(".")[0] == "torch" and name.startswith("set_") and name not in TORCH_CLASSES:
        return False
    return not (module == "torch" and isinstance(value, type) and name not in TORCH_CLASSES)


def reachable(name: str) -> bool:
    """May an answer ask an object for this attribute, as far as its name tells?"""
    if name.startswith("_"):
        return name in READABLE or name in PLAIN_PRIVATE
    return name not in FRAMES and name not in MEMORY


def _importer(given: dict[str, types.ModuleType]):
    """An ``__import__`` that knows the windows and the given modules."""
    windows: dict[str, types.ModuleType] = {}

    def load(name: str, globals=None, locals=None, fromlist: Iterable[str] = (), level: int = 0) -> types.ModuleType:
        package = name.split(".")[0]
        if level or (name not in WINDOWS and package != "course"):
            raise ImportError(f"an answer may not import {name or 'relatively'}")
        if package == "course":  # `from course.given import kv_cache`
            if not any(f"{module}.".startswith(f"{name}.") for module in given):
                raise ImportError(f"an answer may not import {name}")
            root = _packages(given)[package]
            return functools.reduce(getattr, name.split(".")[1:], root) if fromlist else root
        for part in (package, name):
            if part not in windows:
                windows[part] = window(part)
        if package != name:  # import torch.nn.functional: reached from the package, which is handed out
            windows[package] = window(package)
        return windows[name] if fromlist else windows[package]

    return load


def _packages(given: dict[str, types.ModuleType]) -> dict[str, types.ModuleType]:
    """The given modules with the packages above them, by name of the outermost one."""
    roots: dict[str, types.ModuleType] = {}
    for name, module in given.items():
        parts = name.split(".")
        place = roots.setdefault(parts[0], Window(parts[0]))
        for end in range(1, len(parts) - 1):
            place = vars(place).setdefault(parts[end], Window(".".join(parts[: end + 1])))
        vars(place)[parts[-1]] = module
    return roots


def _asked(function):
    """getattr and its kin, for names that an answer may ask for."""

    @functools.wraps(function)
    def ask(thing: Any, name: str, *rest: Any) -> Any:
        own = (thing if isinstance(thing, type) else type(thing)).__module__ == NAME
        if type(name) is not str or not (reachable(name) or (own and not name.startswith("__"))):
            raise Hidden(f"{name!s:.80} has no place in an answer")
        if function is setattr and not own and not isinstance(thing, Window):
            raise Hidden(f"an answer does not change what {type(thing).__name__} is")
        return function(thing, name, *rest)

    return ask


def make(given: Iterable[str] = ()) -> types.ModuleType:
    """A fresh module for an answer to be run in. ``given``: names of modules that are there to be imported.

    It is entered in ``sys.modules`` as :data:`NAME`, where dataclasses look for it.
    """
    _rest_of_numpy()
    shown = {}
    for name in given:
        shown[name] = Window(name)
        vars(shown[name]).update({key: value for key, value in vars(sys.modules[name]).items()
                                  if not key.startswith("_") and not isinstance(value, types.ModuleType)})
    safe = {name: value for name, value in vars(builtins).items() if name not in NOT_BUILT_IN}
    safe |= {function.__name__: _asked(function) for function in (getattr, setattr, hasattr)}
    safe["__import__"] = _importer(shown)
    module = types.ModuleType(NAME)
    vars(module)["__builtins__"] = safe
    sys.modules[NAME] = module
    return module
