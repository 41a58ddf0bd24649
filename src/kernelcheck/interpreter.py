"""Repairs of Triton's interpreter, so that what runs on the CPU is what the compiled kernel would compute.

Each repair is a function below: its name in `_REPAIRS` is the private name that it replaces, its docstring
says what was wrong. `install()` applies them all, once; `uninstall()` takes them back. They hold for every
kernel that runs interpreted; a checked run (trace.py) hooks in through `active()`.
"""

import ast
import dataclasses
import importlib
import os
import sys
import threading
import traceback

import numpy as np

from . import _triton, floats
from .faults import KernelFault, Place

_MISSING = object()
_REPAIRS: list[tuple[str, object]] = []
_installed: list[tuple[object, str, object]] = []
_lock = threading.RLock()
_local = threading.local()
_autotune = 0

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
    global _autotune
    if autotune is not None:
        _autotune = autotune
    if _installed:
        os.environ["TRITON_INTERPRET"] = "1"
        return
    early = "triton" in sys.modules
    os.environ["TRITON_INTERPRET"] = "1"
    if early and not _triton.interpreted_at_import():
        del os.environ["TRITON_INTERPRET"]
        raise RuntimeError(TOO_EARLY)
    if not _triton.supported():
        first, last = _triton.SUPPORTED
        raise RuntimeError(
            f"kernelcheck is tested with Triton {first[0]}.{first[1]} to {last[0]}.{last[1]}, and this is "
            f"{_triton.version()[0]}.{_triton.version()[1]}: pip install "
            f"'triton>={first[0]}.{first[1]},<{last[0]}.{last[1] + 1}'"
        )
    _triton.verify()
    for path, make in _REPAIRS:
        owner, name = _resolve(path)
        original = getattr(owner, name, _MISSING)
        _installed.append((owner, name, original))
        setattr(owner, name, make(original))
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


def active():
    """The Trace that watches this thread's kernels, or None."""
    return getattr(_local, "trace", None)


def set_active(trace):
    """Make `trace` the one that watches this thread, and return the one before it."""
    before, _local.trace = active(), trace
    return before


def _resolve(path: str) -> tuple[object, str]:
    """'Autotuner.run' -> (the class, 'run'); a name without a class belongs to triton.runtime.interpreter."""
    module = "triton.runtime.autotuner" if path.startswith("Autotuner.") else "triton.runtime.interpreter"
    owner = importlib.import_module(module)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    return owner, name


def _repairs(path: str):
    """Register a function that, given the original, returns what stands in its place."""

    def register(make):
        _REPAIRS.append((path, make))
        return make

    return register


def _handle(data, dtype):
    return _triton.interpreter().TensorHandle(data, dtype)


def _values(handle) -> np.ndarray:
    """The numbers of a tensor, with bf16 and fp8 bits decoded."""
    name = handle.dtype.scalar.name
    return floats.decode(handle.data, name) if name in floats.SOFT else handle.data


def _is_soft(handle) -> bool:
    return handle.dtype.scalar.name in floats.SOFT


def _with_values(values, dtype):
    """A tensor of triton dtype `dtype` with these values; comparisons stay boolean."""
    scalar = dtype.scalar
    if scalar.name in floats.SOFT and values.dtype != np.bool_:
        return _handle(floats.encode(values, scalar.name), scalar)
    return _handle(values, scalar)


# ---- conversions -----------------------------------------------------------------------------------------


@_repairs("InterpreterBuilder.cast_impl")
def _cast(original):
    """fp32 -> bf16 was cut instead of rounded; bf16 <-> integer or fp16 converted the bits, not the value."""

    def cast_impl(self, src, dst_type):
        target = dst_type.scalar
        if not _is_soft(src) and target.name not in floats.SOFT:
            return original(self, src, dst_type)
        values = _values(src)
        if target.name in floats.SOFT:
            return _handle(floats.encode(values, target.name), target)
        return _handle(values.astype(_triton.interpreter()._get_np_dtype(target)), target)

    return cast_impl


@_repairs("InterpreterBuilder.create_fp_to_fp")
def _fp_to_fp(original):
    """Conversions to fp8 rounded wrongly near the subnormals, those from fp8 lost NaN and infinity."""

    def create_fp_to_fp(self, src, dst_type, rounding_mode):
        toward_zero = rounding_mode == _triton.interpreter()._ir.ROUNDING_MODE.RTZ
        if toward_zero or not (_is_soft(src) or dst_type.scalar.name in floats.SOFT):
            return original(self, src, dst_type, rounding_mode)
        return self.cast_impl(src, dst_type)

    return create_fp_to_fp


@_repairs("InterpreterBuilder.get_bf16")
def _bf16_constant(original):
    """Triton 3.6 has no bf16 constants: tl.full(..., dtype=tl.bfloat16) failed."""

    def get_bf16(self, value):
        import triton.language as tl

        return _handle(floats.encode(np.array([value], np.float32), "bf16"), tl.bfloat16)

    return get_bf16


# ---- arithmetic ------------------------------------------------------------------------------------------


@_repairs("InterpreterBuilder.binary_op")
def _binary(original):
    """Arithmetic and comparisons of bf16 worked on the bits: 1 + 1 gave 2^126 or so."""

    def binary_op(self, lhs, rhs, op):
        if not (_is_soft(lhs) or _is_soft(rhs)):
            return original(self, lhs, rhs, op)
        return _with_values(op(_values(lhs), _values(rhs)), lhs.dtype)

    return binary_op


@_repairs("InterpreterBuilder.unary_op")
def _unary(original):
    """As binary_op."""

    def unary_op(self, arg, op):
        return _with_values(op(_values(arg)), arg.dtype) if _is_soft(arg) else original(self, arg, op)

    return unary_op


@_repairs("InterpreterBuilder.ternary_op")
def _ternary(original):
    """As binary_op; a select only moves bits and stays as it is."""

    def ternary_op(self, lhs, rhs, other, op):
        if op is np.where or not _is_soft(other):
            return original(self, lhs, rhs, other, op)
        return _with_values(op(_values(lhs), _values(rhs), _values(other)), other.dtype)

    return ternary_op


@_repairs("InterpreterBuilder.create_fma")
def _fma(original):
    """As binary_op."""

    def create_fma(self, x, y, z):
        if not _is_soft(z):
            return original(self, x, y, z)
        return _with_values(_values(x) * _values(y) + _values(z), z.dtype)

    return create_fma


@_repairs("InterpreterBuilder.create_maxnumf")
def _maxnum(original):
    """tl.maximum drops NaN unless told otherwise (PTX max); Triton 3.6 passed it on."""
    return lambda self, lhs, rhs: self.binary_op(lhs, rhs, np.fmax)


@_repairs("InterpreterBuilder.create_minnumf")
def _minnum(original):
    """As create_maxnumf."""
    return lambda self, lhs, rhs: self.binary_op(lhs, rhs, np.fmin)


@_repairs("InterpreterBuilder.create_dot")
def _dot(original):
    """bf16 operands were multiplied as integers; int8 went through a slow loop. Products add up in fp32.

    A checked run counts the operations and, for fp32 operands with input_precision "tf32" (Triton's default),
    gives the product what a tf32 tensor core would read.
    """

    def create_dot(self, a, b, d, input_precision, max_num_imprecise_acc):
        trace = active()
        tf32 = False
        if trace is not None:
            tf32 = input_precision == _triton.interpreter()._ir.INPUT_PRECISION.TF32
            tf32 = tf32 and trace.tf32 and a.data.dtype == np.float32
            trace.count_dot("tf32" if tf32 else a.dtype.scalar.name, a.data.shape, b.data.shape)
        x, y = _values(a), _values(b)
        if tf32:
            x, y = floats.to_tf32(x), floats.to_tf32(y)
        # fp64 holds every int8 product sum exactly (below 2^53), and BLAS is fast in it.
        wide = np.float64 if x.dtype.kind in "iu" or x.dtype == np.float64 else np.float32
        product = np.matmul(x.astype(wide, copy=False), y.astype(wide, copy=False))
        out = d.data.dtype
        if out.kind in "iu":
            return _handle(product.astype(np.int64).astype(out) + d.data, d.dtype.scalar)
        return _handle((product + d.data).astype(out), d.dtype.scalar)

    return create_dot


@_repairs("InterpreterBuilder.create_histogram")
def _histogram(original):
    """Values outside 0 .. bins - 1 are dropped; Triton 3.6 counted value `bins` in the last one."""

    def create_histogram(self, data, bins, mask):
        import triton.language as tl

        valid = (data.data >= 0) & (data.data < bins)
        if mask is not None:
            valid &= np.asarray(mask.data).astype(bool)
        return _handle(np.bincount(data.data[valid].astype(np.int64), minlength=bins).astype(np.int32), tl.int32)

    return create_histogram


# ---- reductions and scans --------------------------------------------------------------------------------


@_repairs("ReduceOps.min_max")
def _min_max(original):
    """tl.max and tl.min drop NaN (PTX max, min). Triton 3.6 kept it, 3.9 raises on a row of nothing but NaN."""

    def min_max(self, input, val_reduce_op=None, idx_reduce_op=None):
        import triton.language as tl

        tensor = input[0] if isinstance(input, tuple) else input
        data = tensor.handle.data
        if data.dtype.kind != "f" or val_reduce_op is None:
            return original(self, input, val_reduce_op, idx_reduce_op)
        largest = "max" in val_reduce_op.__name__
        axis = self.axis if self.axis is not None else tuple(range(data.ndim))
        best = (np.fmax if largest else np.fmin).reduce(data, axis=axis, keepdims=self.keep_dims)
        value = self.to_tensor(best, tensor.dtype)
        if idx_reduce_op is None:
            return value
        ranked = np.where(np.isnan(data), -np.inf if largest else np.inf, data)
        index = (np.argmax if largest else np.argmin)(ranked, axis=self.axis, keepdims=self.keep_dims)
        return value, self.to_tensor(index, tl.int32)

    return min_max


@_repairs("ReduceOps.sum")
def _sum(original):
    """The sum of a bf16 tensor added up bits."""

    def sum(self, input):
        handle = input.handle
        if not _is_soft(handle):
            return original(self, input)
        total = np.sum(_values(handle), axis=self.axis, keepdims=self.keep_dims)
        return self.to_tensor(floats.encode(total, handle.dtype.scalar.name), input.dtype)

    return sum


def _combine(op, left: list, right: list, dtypes: list) -> list:
    """Apply a combine function to two lists of arrays, element by element."""
    tensors = [op.to_tensor(array, dtype) for array, dtype in zip(left + right, dtypes + dtypes)]
    result = op.combine_fn.rewrite()(*tensors)
    results = result if isinstance(result, (list, tuple)) or hasattr(result, "values") else [result]
    return [
        np.broadcast_to(r.handle.data.reshape(r.handle.data.shape if a.ndim else ()), a.shape)
        for r, a in zip(results, left)
    ]


@_repairs("ReduceOps.generic_reduce")
def _generic_reduce(original):
    """tl.sort, tl.topk and own combine functions ran element by element in Python: seconds a row.

    Here neighbours are combined in pairs, all pairs at once, as a GPU's tree does: ten steps for 1000 elements.
    """

    def generic_reduce(self, input):
        whole = self.axis is None
        ndim = input[0].handle.data.ndim
        input, axis = self.unravel(input, self.axis)
        dtypes = [t.dtype for t in input]
        arrays = [np.moveaxis(t.handle.data, axis, 0) for t in input]
        while arrays[0].shape[0] > 1:  # a power of two, as every shape in Triton
            arrays = _combine(self, [a[::2] for a in arrays], [a[1::2] for a in arrays], dtypes)
        results = []
        for array, dtype in zip(arrays, dtypes):
            data = array[0]
            if self.keep_dims:
                data = data.reshape((1,) * ndim) if whole else np.expand_dims(data, axis)
            elif whole:
                data = data.item()
            results.append(self.to_tensor(data, dtype))
        return results

    return generic_reduce


@_repairs("ScanOps.generic_scan")
def _generic_scan(original):
    """As generic_reduce: each step combines every element with the one 1, 2, 4 ... places before it."""

    def generic_scan(self, input):
        dtypes = [t.dtype for t in input]
        arrays = [np.moveaxis(t.handle.data, self.axis, 0) for t in input]
        step = 1
        while step < arrays[0].shape[0]:
            before = [np.concatenate([a[:step], a[:-step]]) for a in arrays]  # a tile's shape stays a power of two
            merged = _combine(self, before, arrays, dtypes)
            arrays = [np.concatenate([a[:step], m[step:]]) for a, m in zip(arrays, merged)]
            step *= 2
        return [self.to_tensor(np.ascontiguousarray(np.moveaxis(a, 0, self.axis)), t) for a, t in zip(arrays, dtypes)]

    return generic_scan


@_repairs("ScanOps.cumsum")
def _cumsum(original):
    """A running sum of bf16 added up bits."""

    def cumsum(self, input):
        if not _is_soft(input.handle):
            return original(self, input)
        total = np.cumsum(_values(input.handle), axis=self.axis)
        return [self.to_tensor(floats.encode(total, input.handle.dtype.scalar.name), input.dtype)]

    return cumsum


# ---- memory ----------------------------------------------------------------------------------------------


def _mask(mask) -> np.ndarray:
    """A mask as booleans; Triton 3.6 passes a bare array for block pointers."""
    return np.asarray(mask if isinstance(mask, np.ndarray) else mask.data).astype(bool, copy=False)


@_repairs("InterpreterBuilder.create_masked_load")
def _load(original):
    """A mask made of a vector and a scalar condition arrives as int32, which Triton 3.9 rejects."""

    def create_masked_load(self, ptrs, mask, other, *rest, **named):
        import triton.language as tl

        mask = _mask(mask)
        trace = active()
        if trace is None:
            return original(self, ptrs, _handle(mask, tl.int1), other, *rest, **named)
        dtype = ptrs.get_element_ty()
        np_dtype = _triton.interpreter()._get_np_dtype(dtype)
        data = trace.load(ptrs.data, mask, None if other is None else other.data, np_dtype, dtype.name)
        return _handle(data, dtype)

    return create_masked_load


@_repairs("InterpreterBuilder.create_masked_store")
def _store(original):
    """As create_masked_load."""

    def create_masked_store(self, ptrs, value, mask, *rest, **named):
        import triton.language as tl

        mask = _mask(mask)
        trace = active()
        if trace is None:
            return original(self, ptrs, value, _handle(mask, tl.int1), *rest, **named)
        return trace.store(ptrs.data, value.data, mask, value.dtype.scalar.name)

    return create_masked_store


@_repairs("InterpreterBuilder.create_atomic_rmw")
def _atomic_rmw(original):
    """As create_masked_load."""

    def create_atomic_rmw(self, rmwOp, ptr, val, mask, sem, scope):
        import triton.language as tl

        mask = _handle(_mask(mask), tl.int1)
        trace = active()
        if trace is not None:
            relaxed = sem == _triton.interpreter()._ir.MEM_SEMANTIC.RELAXED
            address = trace.atomic(ptr.data, mask.data, val.data.itemsize, relaxed)
            ptr = _handle(address, ptr.dtype)
        return original(self, rmwOp, ptr, val, mask, sem, scope)

    return create_atomic_rmw


@_repairs("InterpreterBuilder.create_atomic_cas")
def _atomic_cas(original):
    """Not repaired, only watched."""

    def create_atomic_cas(self, ptr, cmp, val, sem, scope):
        trace = active()
        if trace is not None:
            relaxed = sem == _triton.interpreter()._ir.MEM_SEMANTIC.RELAXED
            everywhere = np.ones(ptr.data.shape, bool)
            ptr = _handle(trace.atomic(ptr.data, everywhere, val.data.itemsize, relaxed), ptr.dtype)
        return original(self, ptr, cmp, val, sem, scope)

    return create_atomic_cas


@_repairs("InterpreterBuilder.create_assert")
def _assert(original):
    """tl.device_assert never fired: the interpreter's options leave debug off. A checked run turns it on."""

    def create_assert(self, condition, message):
        trace = active()
        if trace is None:
            return original(self, condition, message)
        trace.device_assert(np.asarray(condition.data).astype(bool), message)

    return create_assert


# ---- launching -------------------------------------------------------------------------------------------


@_repairs("_implicit_cvt")
def _argument(original):
    """A bool argument failed on Triton 3.6; a float stayed a Python double where the GPU gets fp32."""

    def convert(arg):
        import triton.language as tl

        if isinstance(arg, bool):
            return tl.tensor(_handle(np.array([arg], bool), tl.int1), tl.int1)
        if isinstance(arg, float):
            return tl.tensor(_handle(np.array([arg], np.float32), tl.float32), tl.float32)
        trace = active()
        if trace is not None and hasattr(arg, "data_ptr"):
            pointer = _triton.pointer_type(arg)
            return tl.tensor(_handle(np.array([trace.argument(arg)], np.uint64), pointer), pointer)
        return original(arg)

    return convert


@_repairs("InterpreterBuilder.set_grid_idx")
def _program(original):
    """Not repaired: a checked run learns which program runs, and may run them in another order."""

    def set_grid_idx(self, x, y, z):
        trace = active()
        if trace is not None:
            x, y, z = trace.begin_program((x, y, z), self.grid_dim)
        return original(self, x, y, z)

    return set_grid_idx


@_repairs("InterpreterBuilder.set_grid_dim")
def _grid(original):
    """A grid function that computes with an argument yields tensors where the launcher wants numbers."""

    def set_grid_dim(self, *dims):
        return original(self, *(int(d) if hasattr(d, "handle") else d for d in dims))

    return set_grid_dim


@_repairs("GridExecutor.__call__")
def _launch(original):
    """Kernels launched by two threads shared one interpreter state; now they take turns.

    NumPy's warnings about overflow and NaN are silenced, since a GPU gives none. A KernelFault comes out as it is,
    any other error of the kernel keeps its type and says in which line and program it happened.
    """

    def call(self, *args, **kwargs):
        with _lock, np.errstate(all="ignore"):
            trace = active()
            builder = _triton.interpreter().interpreter_builder
            options, builder.grid_idx = builder.options, None
            if isinstance(self.grid, list):
                self.grid = tuple(self.grid)
            try:
                if trace is not None:
                    trace.begin_launch(self.fn, args, kwargs, self.constexprs)
                    builder.options = dataclasses.replace(options, debug=True, sanitize_overflow=False)
                return original(self, *args, **kwargs)
            except _triton.interpreter_error() as error:
                fault = _fault_behind(error)
                if fault is not None:
                    raise fault from None
                _say_where(error, self.fn, builder.grid_idx)
                raise
            finally:
                builder.options = options
                if trace is not None:
                    trace.end_launch()

    return call


def _fault_behind(error) -> KernelFault | None:
    while error is not None and not isinstance(error, KernelFault):
        error = error.__cause__
    return error


def _say_where(error, function, program_id) -> None:
    cause = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    lines = [f.lineno for f in traceback.extract_tb(cause.__traceback__) if f.filename == function.__code__.co_filename]
    if lines:
        place = Place(function.__name__, function.__name__, function.__code__.co_filename, lines[-1], program_id)
        error.add_note(f"in {place.kernel}, line {place.line}, program {place.program_id}: {place.source}")


@_repairs("_patch_lang")
def _patch(original):
    """Runtime loop bounds failed on Triton 3.6 with NumPy 2.4; a vector counted as true in an `if`, and a scalar
    `other=0.0` of a load as not given.

    The kernel's module may import only some of Triton's language; both of its modules are patched, since the
    functions of Triton's own library see the other one.
    """

    class Everything:
        def __init__(self, function):
            import triton.language as tl

            self.__globals__ = {**function.__globals__, "__tl": tl, "__core": tl.core}

    def index(self):
        return int(np.asarray(self.handle.data).reshape(-1)[0])

    def truth(self):
        if os.path.basename(sys._getframe(1).f_code.co_filename) in ("semantic.py", "core.py"):
            return True  # Triton's own `if other:` asks whether there is a tensor, not what is in it
        data = np.asarray(self.handle.data)
        if data.size != 1 or len(self.shape):
            raise TypeError(
                f"a tensor of shape {[int(s) for s in self.shape]} is neither true nor false as a whole: combine masks "
                "with & and |, choose values with tl.where"
            )
        return bool(data.reshape(-1)[0])

    def patch_lang(function):
        import triton.language as tl

        scope = original(Everything(function))
        scope.set_attr(tl.tensor, "__index__", index)
        scope.set_attr(tl.tensor, "__bool__", truth)
        depth = getattr(_local, "depth", 0)
        _local.depth = depth + 1
        restore = scope.restore

        def restore_all():
            _local.depth = depth
            restore()

        scope.restore = restore_all
        return scope

    return patch_lang


@_repairs("InterpretedFunction.__call__")
def _device_call(original):
    """Each call of a @triton.jit function from a kernel patched the whole language again, and left it patched."""

    def call(self, *args, **kwargs):
        if not getattr(_local, "depth", 0):
            raise RuntimeError(
                f"{self.fn.__name__} is a @triton.jit function: launch it as {self.fn.__name__}[grid](...), or call it "
                "from another kernel"
            )
        return self.rewrite()(*args, **kwargs)

    return call


@_repairs("Autotuner.run")
def _autotuned(original):
    """@triton.autotune times its configs, which needs a GPU driver. One config is taken instead."""

    def run(self, *args, **kwargs):
        configs = self.configs
        function = self.fn
        while hasattr(function, "fn") and not isinstance(function, _triton.interpreter().InterpretedFunction):
            function = function.fn
        if not isinstance(function, _triton.interpreter().InterpretedFunction):
            return original(self, *args, **kwargs)
        try:
            self.nargs = dict(zip(self.arg_names, args))
            self.configs = [_choose(list(self.prune_configs(kwargs)), function.fn.__name__)]
            return original(self, *args, **kwargs)
        finally:
            self.configs = configs

    return run


def _choose(configs: list, kernel: str):
    trace = active()
    choice = _autotune if trace is None or trace.autotune is None else trace.autotune
    if callable(choice):
        return choice(configs)
    if not -len(configs) <= choice < len(configs):
        raise ValueError(f"{kernel} has {len(configs)} autotune configs, so there is no config {choice}")
    return configs[choice]


# ---- the Python of a kernel ------------------------------------------------------------------------------


class _Logic(ast.NodeTransformer):
    """`a and b` on tensors is element-wise for the compiler; Python would return b. `not a` likewise."""

    def visit_BoolOp(self, node):
        node = self.generic_visit(node)
        name = "_kernelcheck_and" if isinstance(node.op, ast.And) else "_kernelcheck_or"
        nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        first, *others = node.values
        later = [ast.Lambda(args=nothing, body=value) for value in others]
        call = ast.Call(func=ast.Name(id=name, ctx=ast.Load()), args=[first, *later], keywords=[])
        return ast.copy_location(call, node)

    def visit_UnaryOp(self, node):
        node = self.generic_visit(node)
        if not isinstance(node.op, ast.Not):
            return node
        call = ast.Call(func=ast.Name(id="_kernelcheck_not", ctx=ast.Load()), args=[node.operand], keywords=[])
        return ast.copy_location(call, node)


class _NoChains(_Logic):
    """Before 3.9 the compiler rejects `0 <= x < n`, and the interpreter silently kept only `x < n`."""

    def visit_Compare(self, node):
        if len(node.ops) > 1:
            raise SyntaxError(
                f"line {node.lineno} of the kernel: this Triton has no chained comparison, write (a <= x) & (x < b)"
            )
        return self.generic_visit(node)


@_repairs("FunctionRewriter.ast_transformer")
def _rewriting(original):
    """Logic on tensors meant something else than in a compiled kernel; see _Logic and _NoChains."""

    class Both:
        def visit(self, tree):
            chains = hasattr(type(original), "visit_Compare")
            return original.visit((_Logic() if chains else _NoChains()).visit(tree))

    return Both()


def _tensor_like(value) -> bool:
    return hasattr(value, "handle")


def _fold(values, stops, method):
    first, *later = values
    result = first
    for thunk in later:
        if not _tensor_like(result) and stops(result):
            return result
        value = thunk()
        if _tensor_like(result):
            result = getattr(result, method)(value)
        elif _tensor_like(value):
            result = getattr(value, method)(result)
        else:
            result = value
    return result


@_repairs("_kernelcheck_and")
def _and(original):
    return lambda *values: _fold(values, lambda v: not v, "logical_and")


@_repairs("_kernelcheck_or")
def _or(original):
    return lambda *values: _fold(values, bool, "logical_or")


@_repairs("_kernelcheck_not")
def _not(original):
    return lambda value: value.__not__() if _tensor_like(value) else not value
