"""Every private name of Triton that kernelcheck touches. No other module may reach for one.

Triton's interpreter is not a public API: its names move from release to release. They are kept here, so
that a new release is judged in one place. `verify()` looks each one up, with the parameters that we rely
on, and says by name what has changed; `install()` calls it before it repairs anything.

triton.runtime.interpreter
    InterpreterBuilder     create_masked_load, create_masked_store, create_atomic_rmw, create_atomic_cas,
                           create_dot, cast_impl, create_fp_to_fp, binary_op, unary_op, ternary_op,
                           create_minnumf, create_maxnumf, create_fma, create_histogram, create_assert,
                           create_extern_elementwise, create_inline_asm, set_grid_idx, set_grid_dim;
                           get_bf16 is added where it is missing (3.6)
    interpreter_builder    .grid_dim, .grid_idx, .options
    TensorHandle           (data, dtype)
    ReduceOps, ScanOps     .axis, .keep_dims, .combine_fn, to_tensor, unravel, min_max, sum, generic_reduce;
                           cumsum, cumprod, generic_scan
    InterpretedFunction    .fn, .rewrite, .rewritten_fn, __call__
    FunctionRewriter       .ast_transformer
    ASTTransformer         visit, visit_Compare (native from 3.9)
    GridExecutor           __call__, .fn, .arg_names, .constexprs, .grid
    _LangPatchScope        ._changes, set_attr, restore; _MISSING
    _implicit_cvt, _patch_lang, _get_np_dtype, interpreter_semantic.builder
    _ir                    ROUNDING_MODE, INPUT_PRECISION, MEM_SEMANTIC, ATOMIC_OP.FADD and its neighbours
triton.language.extra      libdevice, cuda.libdevice: the functions' names, as tanh
triton.runtime.autotuner   Autotuner.run, .configs, .nargs, .fn, prune_configs
triton.runtime.jit         mangle_type, JITFunction.fn
triton.runtime.errors      InterpreterError
triton.backends.nvidia     bin/cuobjdump
"""

import dataclasses
import importlib
import inspect
import pathlib
import sys

SUPPORTED = ((3, 6), (3, 9))  # first and last minor release that the tests run on


@dataclasses.dataclass(frozen=True)
class Name:
    """One private name: where it lives and the parameters that kernelcheck passes or receives."""

    module: str
    path: str
    parameters: tuple[str, ...] = ()

    def problem(self) -> str | None:
        """What is wrong with this name in the Triton that is installed, or None."""
        full = f"{self.module}.{self.path}"
        try:
            found = importlib.import_module(self.module)
            for part in self.path.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError):
            return f"{full} is gone"
        if self.parameters:
            has = tuple(inspect.signature(found).parameters)[: len(self.parameters)]
            if has != self.parameters:
                return f"{full} takes {has}, not {self.parameters}"
        return None


_I = "triton.runtime.interpreter"
_B = "InterpreterBuilder"
PRIVATE_NAMES = (
    Name(_I, f"{_B}.create_masked_load", ("self", "ptrs", "mask", "other")),
    Name(_I, f"{_B}.create_masked_store", ("self", "ptrs", "value", "mask")),
    Name(_I, f"{_B}.create_atomic_rmw", ("self", "rmwOp", "ptr", "val", "mask", "sem", "scope")),
    Name(_I, f"{_B}.create_atomic_cas", ("self", "ptr", "cmp", "val", "sem", "scope")),
    Name(_I, f"{_B}.create_dot", ("self", "a", "b", "d", "input_precision", "max_num_imprecise_acc")),
    Name(_I, f"{_B}.cast_impl", ("self", "src", "dst_type")),
    Name(_I, f"{_B}.create_fp_to_fp", ("self", "src", "dst_type", "rounding_mode")),
    Name(_I, f"{_B}.binary_op", ("self", "lhs", "rhs", "op")),
    Name(_I, f"{_B}.unary_op", ("self", "arg", "op")),
    Name(_I, f"{_B}.ternary_op", ("self", "lhs", "rhs", "other", "op")),
    Name(_I, f"{_B}.create_minnumf", ("self", "lhs", "rhs")),
    Name(_I, f"{_B}.create_maxnumf", ("self", "lhs", "rhs")),
    Name(_I, f"{_B}.create_fma", ("self", "x", "y", "z")),
    Name(_I, f"{_B}.create_histogram", ("self", "data", "bins", "mask")),
    Name(_I, f"{_B}.create_extern_elementwise", ("self", "libName", "libPath", "symbol", "argList", "retType")),
    Name(_I, f"{_B}.create_inline_asm", ("self", "inlineAsm", "constraints", "values", "type", "isPure", "pack")),
    Name(_I, f"{_B}.create_assert", ("self", "condition", "message")),
    Name(_I, f"{_B}.set_grid_idx", ("self", "x", "y", "z")),
    Name(_I, f"{_B}.set_grid_dim", ("self", "nx", "ny", "nz")),
    Name(_I, "interpreter_builder.options.debug"),
    Name(_I, "TensorHandle", ("data", "dtype")),
    Name(_I, "ReduceOps", ("axis", "combine_fn", "keep_dims")),
    Name(_I, "ReduceOps.generic_reduce", ("self", "input")),
    Name(_I, "ReduceOps.min_max", ("self", "input", "val_reduce_op", "idx_reduce_op")),
    Name(_I, "ReduceOps.sum", ("self", "input")),
    Name(_I, "ReduceOps.unravel", ("self", "input", "axis")),
    Name(_I, "ReduceOps.to_tensor", ("self", "ret", "dtype")),
    Name(_I, "ScanOps.generic_scan", ("self", "input")),
    Name(_I, "ScanOps.cumsum", ("self", "input")),
    Name(_I, "ScanOps.cumprod", ("self", "input")),
    Name(_I, "ScanOps.to_tensor", ("self", "ret", "dtype")),
    Name(_I, "InterpretedFunction.__call__", ("self", "args", "kwargs")),
    Name(_I, "InterpretedFunction.rewrite", ("self",)),
    Name(_I, "InterpretedFunction.rewritten_fn"),
    Name(_I, "FunctionRewriter.ast_transformer"),
    Name(_I, "ASTTransformer.visit", ("self", "node")),
    Name(_I, "GridExecutor", ("fn", "arg_names", "grid", "pre_run_hooks")),
    Name(_I, "GridExecutor.__call__", ("self", "args_dev", "kwargs")),
    Name(_I, "_implicit_cvt", ("arg",)),
    Name(_I, "_patch_lang", ("fn",)),
    Name(_I, "_LangPatchScope.restore", ("self",)),
    Name(_I, "_get_np_dtype", ("tt_dtype",)),
    Name(_I, "interpreter_semantic.builder"),
    Name("triton.language.extra.libdevice", "tanh"),
    Name("triton.language.extra.cuda.libdevice", "tanh"),
    Name(_I, "_ir.ATOMIC_OP.FADD"),
    Name(_I, "_ir.ROUNDING_MODE.RTZ"),
    Name(_I, "_ir.INPUT_PRECISION.TF32"),
    Name(_I, "_ir.MEM_SEMANTIC.RELAXED"),
    Name("triton.runtime.autotuner", "Autotuner.run", ("self", "args", "kwargs")),
    Name("triton.runtime.autotuner", "Autotuner.prune_configs", ("self", "kwargs")),
    Name("triton.runtime.jit", "mangle_type", ("arg", "specialize")),
    Name("triton.runtime.jit", "JITFunction"),
    Name("triton.runtime.errors", "InterpreterError"),
)


class TritonChanged(RuntimeError):
    """A private name that kernelcheck repairs or reads is not what it was."""


def version() -> tuple[int, int]:
    import triton

    major, minor = triton.__version__.split(".")[:2]
    return int(major), int(minor)


def supported() -> bool:
    """Whether the installed Triton is one that kernelcheck was tested with."""
    first, last = SUPPORTED
    return first <= version() <= last


def verify(names: tuple[Name, ...] = PRIVATE_NAMES) -> None:
    """Raise TritonChanged, with every changed name, unless all of `names` are as expected."""
    import triton

    problems = [problem for name in names if (problem := name.problem())]
    if problems:
        (a, b), (c, d) = SUPPORTED
        raise TritonChanged(
            f"Triton {triton.__version__} changed {len(problems)} private name(s) that kernelcheck needs; it is "
            f"tested with {a}.{b} to {c}.{d}. Install one of those (pip install 'triton>={a}.{b},<{c}.{d + 1}'), "
            "or report:\n  " + "\n  ".join(problems)
        )


def interpreter():
    """The module triton.runtime.interpreter."""
    return importlib.import_module("triton.runtime.interpreter")


def libdevice_modules():
    """The functions of a card's libdevice, and the empty ones that kernels import."""
    return (importlib.import_module("triton.language.extra.cuda.libdevice"),
            importlib.import_module("triton.language.extra.libdevice"))  # fmt: skip


def absent():
    """How the interpreter marks an attribute that was not there before it patched it."""
    return getattr(interpreter(), "_MISSING", None)


def autotuner_class():
    return importlib.import_module("triton.runtime.autotuner").Autotuner


def interpreter_error():
    return importlib.import_module("triton.runtime.errors").InterpreterError


def type_name(arg) -> str:
    """Triton's own name of the type of a launch argument: '*fp32', 'i32', 'fp32'."""
    return importlib.import_module("triton.runtime.jit").mangle_type(arg)


def pointer_type(arg):
    """The triton.language type of a pointer argument."""
    import triton.language as tl

    return tl.str_to_ty(type_name(arg), None)


def interpreted_at_import() -> bool:
    """Whether triton.language's own @jit functions are interpreted: decided when triton was imported."""
    import triton.language as tl

    return isinstance(tl.sum, interpreter().InterpretedFunction)


def is_jit(value) -> bool:
    """Whether `value` is what @triton.jit returns, in either mode."""
    jit = importlib.import_module("triton.runtime.jit").JITFunction
    if isinstance(value, jit):
        return True
    loaded = sys.modules.get(_I)
    return loaded is not None and isinstance(value, loaded.InterpretedFunction)


def python_function(kernel):
    """The Python function under @triton.jit, @triton.autotune and @triton.heuristics."""
    seen = kernel
    while not inspect.isfunction(seen):
        if not hasattr(seen, "fn"):
            raise ValueError(f"{kernel!r} is not a Triton kernel: decorate the function with @triton.jit")
        seen = seen.fn
    return seen


def autotune_configs(kernel) -> list:
    """The configs of an autotuned kernel, [] for any other."""
    while kernel is not None and not isinstance(kernel, autotuner_class()):
        kernel = getattr(kernel, "fn", None)
    return list(kernel.configs) if kernel is not None else []


def tool(name: str) -> pathlib.Path:
    """A program of NVIDIA's that the Triton wheel carries: cuobjdump, ptxas."""
    import triton

    return pathlib.Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name
