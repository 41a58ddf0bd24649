"""Load an answer in a fresh namespace and call it on inputs. Used by the worker and, for practice, by `check`."""

from __future__ import annotations

import contextlib
import io
import linecache
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.utils.deterministic

from gradeworker import namespace, wire
from gradeworker.recorder import ANSWER_FILE, MOST_NAMES, Calls, recording

LOADING = -1
OUTPUT_KEPT = 4096
MESSAGE_KEPT = 1000
NAME_KEPT = 100
MEASURES = ("loaded", "stored", "traffic", "compulsory", "flops")


@dataclass
class Job:
    """What a worker is sent: source text and typed values; nothing in it tells what is expected."""

    id: str
    entry: str
    source: str
    prelude: str = ""
    modules: dict[str, str] = field(default_factory=dict)  # name -> source of a module the answer may import
    driver: str = ""  # source of `drive(answer, *args, **kwargs)`; empty: the answer itself is called
    cases: list[tuple[tuple, dict]] = field(default_factory=list)
    kernel: bool = False  # the answer is a Triton kernel: every call is made under kernelcheck
    free: bool = False  # all of Python's names, nothing recorded: for what tries the sandbox

    def to_bytes(self) -> bytes:
        parts = [self.id, self.entry, self.source, self.prelude, self.modules, self.driver, self.cases, self.kernel,
                 self.free]
        return wire.encode(parts)

    @classmethod
    def from_bytes(cls, data: bytes) -> Job:
        return cls(*wire.decode(data, allow_build=True))


@dataclass
class Outcome:
    """Of one case (or of loading, index -1): a value and the inputs afterwards, or an error."""

    index: int
    value: Any = None
    inputs_after: Any = None
    error: dict | None = None  # type, message, line (in the answer, from 1; 0: elsewhere), name
    printed: str = ""
    measured: dict[str, int] | None = None  # of a kernel: bytes loaded, stored, traffic, compulsory; flops
    called: dict[str, int] = field(default_factory=dict)  # functions and operators of torch, with a line of the answer

    def to_bytes(self) -> bytes:
        return wire.encode([self.index, self.value, self.inputs_after, self.error, self.printed, self.measured,
                            self.called])

    @classmethod
    def from_bytes(cls, data: bytes, budget: wire.Budget | None = None) -> Outcome:
        """Parse bytes of a worker. Raises :class:`wire.WireError` unless they are an outcome.

        ``budget``: what all outcomes of one answer may take together.
        """
        parts = wire.decode(data, budget=budget)
        if not (isinstance(parts, list) and len(parts) == 7 and type(parts[0]) is int):
            raise wire.WireError("not an outcome")
        error = parts[3]
        if error is not None:
            fields = {"type": str, "message": str, "line": int, "name": str}
            if not isinstance(error, dict) or any(type(error.get(key)) is not kind for key, kind in fields.items()):
                raise wire.WireError("not an outcome")
            if not 0 <= error["line"] < 2**31:
                raise wire.WireError("not an outcome")
            parts[3] = {key: wire.plain_text(error[key], MESSAGE_KEPT) if kind is str else error[key]
                        for key, kind in fields.items()}
        if not isinstance(parts[4], str):
            raise wire.WireError("not an outcome")
        parts[4] = wire.plain_text(parts[4], OUTPUT_KEPT)
        measured = parts[5]
        if measured is not None and not (isinstance(measured, dict) and set(measured) == set(MEASURES)
                                         and all(type(value) is int for value in measured.values())):
            raise wire.WireError("not an outcome")
        if not (isinstance(parts[6], dict) and len(parts[6]) <= MOST_NAMES and all(
                type(name) is str and type(line) is int for name, line in parts[6].items())):
            raise wire.WireError("not an outcome")
        parts[6] = {wire.plain_text(name, NAME_KEPT): line for name, line in parts[6].items()}
        return cls(*parts)


def run(job: Job) -> Iterator[Outcome]:
    """Outcomes of all cases, in order.

    Values are turned into data only after the last case has run, so that an answer which hands out one and the
    same buffer twice is seen to do so. Memory that torch hands out uninitialised is filled with NaN. What the answer
    has torch do is recorded while it is loaded and in every call: in a later one it could fill in what an earlier one
    handed out.
    """
    if job.kernel:  # before the prelude imports Triton, or its interpreter is not the repaired one
        import kernelcheck

        kernelcheck.install()
    with given_modules(job.modules), poisoned_allocations():
        printed, calls = io.StringIO(), Calls()
        watched = not (job.kernel or job.free)
        try:
            with contextlib.redirect_stdout(printed), recording(calls) if watched else contextlib.nullcontext():
                call = load(job)
        except BaseException as error:
            _reraise_interrupt(error)
            yield Outcome(LOADING, error=describe(error), printed=printed.getvalue()[:OUTPUT_KEPT], called=dict(calls))
            return
        held: list[tuple] = []
        for index, case in enumerate(job.cases):
            args, kwargs = build(wire.clone(case, allow_build=True))
            value, failure, measured, printed = None, None, None, io.StringIO()
            try:
                with contextlib.redirect_stdout(printed), recording(calls) if watched else contextlib.nullcontext():
                    if job.kernel:
                        value, measured = _checked(call, args, kwargs, index)
                    else:
                        value = call(*args, **kwargs)
                    if isinstance(value, types.GeneratorType):
                        value = list(value)
            except BaseException as error:
                _reraise_interrupt(error)
                failure = describe(error)
            after = wire.clone((_plain(args), _plain(kwargs)))
            held.append((index, value, after, failure, printed.getvalue()[:OUTPUT_KEPT], measured, dict(calls)))
            calls.told()
        for parts in held:
            yield _outcome(*parts)


def load(job: Job) -> Any:
    """Run prelude and answer in a fresh module; return what the cases call.

    A kernel's cell holds nothing but kernels, which the gate has seen to, and so has all of Python's names. Raises
    NameError when the answer does not define ``job.entry``.
    """
    if job.kernel or job.free:
        module = sys.modules[namespace.NAME] = types.ModuleType(namespace.NAME)
    else:
        module = namespace.make(job.modules)
    space = vars(module)
    exec(compile(job.prelude, "<given>", "exec", dont_inherit=True), space)
    linecache.cache[ANSWER_FILE] = (len(job.source), None, job.source.splitlines(True), ANSWER_FILE)
    given = space.get(job.entry)
    exec(compile(job.source, ANSWER_FILE, "exec", dont_inherit=True), space)
    if job.entry not in space or space[job.entry] is given:
        raise NameError(f"the cell does not define {job.entry}", name=job.entry)
    answer = space[job.entry]
    if not job.driver:
        return answer
    driver: dict[str, Any] = {"__name__": "__driver__"}
    exec(compile(job.prelude, "<given>", "exec", dont_inherit=True), driver)
    exec(compile(job.driver, "<driver>", "exec", dont_inherit=True), driver)
    drive = driver["drive"]
    return lambda *args, **kwargs: drive(answer, *args, **kwargs)


def describe(error: BaseException) -> dict:
    """The error as data: type, message, line in the answer, and the missing name or the kind of a kernel's fault."""
    if type(error).__name__ == "InterpreterError" and error.__cause__ is not None:  # Triton wraps what a kernel raises
        error = error.__cause__
    line = 0
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == ANSWER_FILE:
            line = trace.tb_lineno
        trace = trace.tb_next
    if isinstance(error, SyntaxError) and error.filename == ANSWER_FILE:
        line = error.lineno or 0
    try:
        message = str(error)[:MESSAGE_KEPT]
    except BaseException:
        message = ""
    name = getattr(error, "name", None) if isinstance(error, NameError) else None
    if type(error).__name__ == "KernelFault":
        name, line = error.kind, error.line if error.file == ANSWER_FILE else line
    return {"type": type(error).__name__[:100], "message": message, "line": line,
            "name": name if type(name) is str else ""}


def _checked(call: Any, args: tuple, kwargs: dict, seed: int) -> tuple[Any, dict[str, int]]:
    """Call under kernelcheck: every access looked at, programs in a shuffled order. Returns value and measures."""
    import kernelcheck

    kernelcheck.install()
    with kernelcheck.checked(poison=True, races="raise", shuffle=seed) as trace:
        value = call(*args, **kwargs)
    return value, {name: int(getattr(trace, name)) for name in MEASURES}


def _outcome(index: int, value: Any, after: Any, failure: dict | None, *rest: Any) -> Outcome:
    return Outcome(index, wire.clone(value) if failure is None else None, after, failure, *rest)


def _reraise_interrupt(error: BaseException) -> None:
    if isinstance(error, KeyboardInterrupt):
        raise error


def build(value: Any) -> Any:
    """Replace every :class:`wire.Build` by what its module's function makes of it."""
    if isinstance(value, wire.Build):
        return getattr(sys.modules[value.module], value.name)(**build(value.kwargs))
    if isinstance(value, (list, tuple)):
        return type(value)(build(item) for item in value)
    if isinstance(value, dict):
        return {key: build(item) for key, item in value.items()}
    return value


def _plain(value: Any) -> Any:
    """Inputs as data; objects that were built (a model) are not compared and become None."""
    if isinstance(value, (list, tuple)):
        return type(value)(_plain(item) for item in value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if value is None or isinstance(value, (torch.Tensor, bool, int, float, str, bytes)):
        return value
    return None


@contextlib.contextmanager
def poisoned_allocations() -> Iterator[None]:
    """Fill torch.empty and its kin with NaN, so that an element nobody writes is seen; undo it afterwards."""
    # torch.use_deterministic_algorithms would do, but imports the whole of torch._inductor: seconds in a fresh child.
    set_mode = torch._C._set_deterministic_algorithms
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    filled = torch.utils.deterministic.fill_uninitialized_memory
    set_mode(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    try:
        yield
    finally:
        set_mode(before[0], warn_only=before[1])
        torch.utils.deterministic.fill_uninitialized_memory = filled


@contextlib.contextmanager
def given_modules(modules: dict[str, str]) -> Iterator[None]:
    """Make the given modules importable under their names, whatever is installed; undo it afterwards."""
    names = [*dict.fromkeys(parent for name in modules for parent in _parents(name)), *modules]
    before = {name: sys.modules.get(name) for name in names}
    try:
        for name in names:
            if name in modules:
                module = types.ModuleType(name)
                sys.modules[name] = module
                exec(compile(modules[name], f"<{name}>", "exec", dont_inherit=True), module.__dict__)
            elif before[name] is None:
                package = types.ModuleType(name)
                package.__path__ = []
                sys.modules[name] = package
        yield
    finally:
        for name, module in before.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module


def _parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]
