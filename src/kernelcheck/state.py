"""What the repairs share: the list of them, the run that watches this thread, the choice for autotuned kernels."""

import threading

REPAIRS: list[tuple[str, object]] = []  # (private name that is replaced, function: original -> replacement)
lock = threading.RLock()  # held while a kernel runs: the interpreter's state is the process's
local = threading.local()  # .trace: the run that watches this thread; .depth: how many kernels it is in
autotune: object = 0  # which config an autotuned kernel takes; see interpreter.install


def repairs(path: str):
    """Register a function that, given the original, returns what stands in its place.

    path: "Autotuner.run"; a name without a class, or of another class, belongs to triton.runtime.interpreter;
    "a.module:name" says the module itself.
    """

    def register(make):
        REPAIRS.append((path, make))
        return make

    return register


def active():
    """The Trace that watches this thread's kernels, or None."""
    return getattr(local, "trace", None)


def set_active(trace):
    """Make `trace` the one that watches this thread, and return the one before it."""
    before, local.trace = active(), trace
    return before
