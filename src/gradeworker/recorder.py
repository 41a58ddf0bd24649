"""What an answer had the library do: every function of torch that it called, and every operator that ran.

Two modes of torch's own see it, however a call is spelt: one for functions as Python calls them, one for operators as
they are dispatched, so that neither another name nor a part of the library that calls on hides what did the work. What
a given module, a driver or the course's own code calls is not the answer's.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

ANSWER_FILE = "<answer>"
OTHERS = ("<given>", "<driver>", "<course.given.")  # files whose calls are not the answer's
MOST_NAMES = 400


class Calls(dict):
    """By name of a function or an operator: the first line of the answer that led to it. Each name is told once."""

    def __init__(self):
        super().__init__()
        self.known: set[str] = set()

    def told(self) -> None:
        """What was noted until now has been handed on."""
        self.clear()

    def note(self, name: str, frame: Any) -> None:
        """Note a call, unless it is known already or not the answer's own."""
        if name in self.known or len(self.known) >= MOST_NAMES:
            return
        while frame is not None:
            file = frame.f_code.co_filename
            if file == ANSWER_FILE:
                self[name] = frame.f_lineno
                self.known.add(name)
                return
            if file.startswith(OTHERS):
                return
            frame = frame.f_back


class _Functions(TorchFunctionMode):
    """Functions and methods as they are called; what they call in turn is seen as operators only."""

    def __init__(self, calls: Calls):
        super().__init__()
        self.calls = calls

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.calls.note(getattr(func, "__name__", type(func).__name__), sys._getframe(1))
        return func(*args, **(kwargs or {}))


class _Operators(TorchDispatchMode):
    """Operators as they are dispatched: ``aten._softmax``."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch's own question: a yes would import the whole of torch._dynamo at the first operator."""
        return False

    def __init__(self, calls: Calls):
        super().__init__()
        self.calls = calls

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls.note(f"aten.{func.overloadpacket.__name__}", sys._getframe(1))
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def recording(calls: Calls) -> Iterator[None]:
    """Note in ``calls`` what the answer has the library do meanwhile."""
    with _Functions(calls), _Operators(calls):
        yield
