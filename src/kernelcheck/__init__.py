"""kernelcheck: see what a Triton kernel does, without a GPU.

    import kernelcheck
    kernelcheck.install()                   # before the first `import triton`

    with kernelcheck.checked() as t:        # every access is looked at before it happens
        kernel[grid](x, y, n, BLOCK=128)
    print(t.report())                       # what it moved, by tensor and source line

Nothing heavy is imported until it is used: `install()` must come before Triton.
"""

import importlib

__version__ = "0.1.0"

_WHERE = {
    "install": "start",
    "uninstall": "interpreter",
    "installed": "interpreter",
    "checked": "trace",
    "Trace": "trace",
    "KernelFault": "faults",
    "TritonChanged": "_triton",
    "AccessMap": "traffic",
    "assert_traffic": "traffic",
    "count_ops": "eager",
    "roofline": "gpus",
    "GPUS": "gpus",
    "CompileError": "compile",
    "CompileReport": "compile",
    "assert_gpu_ready": "compile",
    "compile_report": "compile",
    "launch_signature": "compile",
    "selftest": "selftest",
}
__all__ = sorted(_WHERE)


def __getattr__(name: str):
    if name not in _WHERE:
        raise AttributeError(f"module 'kernelcheck' has no attribute {name!r}")
    module = importlib.import_module(f".{_WHERE[name]}", __name__)
    return module if name == _WHERE[name] and not hasattr(module, name) else getattr(module, name)


def __dir__():
    return [*__all__, "__version__"]
