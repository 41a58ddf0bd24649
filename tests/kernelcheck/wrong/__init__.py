"""The bug zoo: kernels that are wrong, each in one way, with the layer that must catch it and what it must say.

Most are right kernels with one piece of text replaced (`Mutant`); the rest are short kernels of their own
(`Wrong`). The layers, in the order in which a kernel is judged:

    fault      kernelcheck.checked raises a KernelFault: bounds, poison, races, unwritten, uninitialised, assert
    reference  the result differs from the fp64 reference
    traffic    assert_traffic: more bytes than the bound
    compile    the compiler rejects what the interpreter lets pass
    gpu        assert_gpu_ready: spills, no tensor cores, wrong dtype, narrow loads, too much shared memory
"""

import dataclasses
import importlib.util
import pathlib
import sys
import tempfile
from collections.abc import Callable

RIGHT = pathlib.Path(__file__).parent.parent / "right"


@dataclasses.dataclass(frozen=True)
class Mutant:
    """The right kernel's case `case` of right/`module`.py, after replacing `old` (found once) by `new`."""

    name: str
    bug: str
    layer: str
    module: str
    case: str
    old: str
    new: str
    kind: str | None = None
    says: str = ""

    def load(self):
        """The mutated module's Case."""
        text = (RIGHT / f"{self.module}.py").read_text()
        assert text.count(self.old) == 1, f"{self.name}: {self.old!r} occurs {text.count(self.old)} times"
        path = pathlib.Path(tempfile.mkdtemp(prefix="kernelcheck-zoo-")) / f"{self.module}.py"
        path.write_text(text.replace(self.old, self.new))
        name = f"right.{self.module}_{''.join(c if c.isalnum() else '_' for c in self.name)}"
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module, next(c for c in module.CASES if c.name == self.case)


@dataclasses.dataclass(frozen=True)
class Wrong:
    """A kernel of its own: `run()` launches it, and `says` is in the KernelFault of kind `kind`."""

    name: str
    bug: str
    run: Callable
    kind: str
    says: str
    layer: str = "fault"
