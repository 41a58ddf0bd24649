"""Triton kernels for CUDA tensors. Importing this package registers them with `ops`, where Triton is there.

Each has a torch twin in `transformer_block`, which CPU tensors use and the tests compare it with. Without
Triton (macOS) the package still imports, registers nothing, and `MISSING` says why and what to do.
"""

from importlib.util import find_spec

MISSING: str | None = None
if find_spec("triton") is None:
    MISSING = (
        "Triton is not installed, so CUDA kernels are not available and torch does their work. On Linux "
        "(also in a container, or in Colab): pip install 'triton>=3.6,<3.10'; on Windows: triton-windows"
    )
else:
    from . import rms_norm, rope, swiglu

    __all__ = ["rms_norm", "rope", "swiglu"]
