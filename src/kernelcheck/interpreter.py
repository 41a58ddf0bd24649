"""Switch Triton to its interpreter, and repair that, so that the CPU computes what the compiled kernel would.

The repairs are in repair_numbers.py (conversions, arithmetic, dots, reductions), repair_launch.py (memory, arguments,
programs, autotuning), repair_extern.py (libdevice, assembly, bf16 atomics) and repair_python.py (the Python of a
kernel). Each is a function under the private name that it
replaces, and its docstring says what was wrong. They hold for every kernel that runs interpreted; a checked run
(trace.py) hooks in through `state.active()`.
"""

import importlib
import os
import sys

from . import _triton, state

_MISSING = object()
_installed: list[tuple[object, str, object]] = []

TOO_EARLY = (
    "triton was imported before kernelcheck, without TRITON_INTERPRET, so its own functions (tl.sum, tl.max ...) are "
    "for the compiler and no kernel can be interpreted in this process. Put this line above the first import of "
    "triton (in a notebook: restart the kernel, then run it in the first cell):\n"
    "    import kernelcheck; kernelcheck.install()"
)


def install(autotune=None) -> None:
    """Switch Triton to its interpreter and repair it. Idempotent; call it before the first `import triton`.

    autotune: which config an @triton.autotune kernel runs with, since nothing is timed here: an index into its
    configs (0 unless set), or a function `configs -> config`.
    Raises RuntimeError if triton was imported too early or is not a supported release, TritonChanged if a
    private name is not what it was.
    """
    if autotune is not None:
        state.autotune = autotune
    if _installed:
        os.environ["TRITON_INTERPRET"] = "1"
        return
    if "triton" in sys.modules and not _triton.interpreted_at_import():
        raise RuntimeError(TOO_EARLY)
    os.environ["TRITON_INTERPRET"] = "1"
    if not _triton.supported():
        first, last = _triton.SUPPORTED
        raise RuntimeError(
            f"kernelcheck is tested with Triton {first[0]}.{first[1]} to {last[0]}.{last[1]}, and this is "
            f"{_triton.version()[0]}.{_triton.version()[1]}: pip install "
            f"'triton>={first[0]}.{first[1]},<{last[0]}.{last[1] + 1}'"
        )
    _triton.verify()
    from . import repair_extern, repair_launch, repair_numbers, repair_python  # noqa: F401  each registers its repairs

    try:
        for path, make in state.REPAIRS:
            owner, name = _resolve(path)
            original = getattr(owner, name, _MISSING)
            replacement = make(original)
            _installed.append((owner, name, original))
            setattr(owner, name, replacement)
    except BaseException:
        uninstall()
        raise
    _triton.interpreter().InterpretedFunction.rewritten_fn.clear()

def uninstall() -> None:
    """Take every repair back: Triton's interpreter is as it was shipped."""
    while _installed:
        owner, name, original = _installed.pop()
        if original is _MISSING:
            delattr(owner, name)
        else:
            setattr(owner, name, original)
    if "triton.runtime.interpreter" in sys.modules:
        _triton.interpreter().InterpretedFunction.rewritten_fn.clear()


def installed() -> bool:
    return bool(_installed)


def _resolve(path: str) -> tuple[object, str]:
    """'Autotuner.run' -> (the class, 'run'); a name without a class belongs to triton.runtime.interpreter.

    'a.module:name' says the module itself.
    """
    if ":" in path:
        module, _, name = path.partition(":")
        return importlib.import_module(module), name
    module = "triton.runtime.autotuner" if path.startswith("Autotuner.") else "triton.runtime.interpreter"
    owner = importlib.import_module(module)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    return owner, name
