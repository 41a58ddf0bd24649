"""Triton as a notebook imports it: ``from course.check.kernels import tl, triton``.

Importing this module switches Triton to kernelcheck's interpreter before anything else imports it, so that a kernel
launched in the notebook runs on the CPU and computes what the compiled one would. Where Triton is missing (macOS), two
stand-ins let every cell of the notebook run; the check of a kernel says how to go on.
"""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace

__all__ = ["tl", "triton"]

if importlib.util.find_spec("triton") is None:
    tl = SimpleNamespace(constexpr=None)  # what a signature needs
    triton = SimpleNamespace(jit=lambda kernel: kernel)
else:
    import kernelcheck

    kernelcheck.install()
    import triton
    import triton.language as tl
