"""Repairs of the interpreter's numbers: conversions, arithmetic, dots, reductions and scans."""

import numpy as np

from . import _triton, floats
from .state import active, repairs


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


@repairs("_get_np_dtype")
def _np_dtype(original):
    """Right, but it built its table anew for every load and every sum."""
    known = {}

    def get_np_dtype(tt_dtype):
        found = known.get(tt_dtype.name)
        if found is None:
            found = known[tt_dtype.name] = original(tt_dtype)
        return found

    return get_np_dtype


@repairs("InterpreterBuilder.cast_impl")
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


@repairs("InterpreterBuilder.create_fp_to_fp")
def _fp_to_fp(original):
    """Conversions to fp8 rounded wrongly near the subnormals, those from fp8 lost NaN and infinity."""

    def create_fp_to_fp(self, src, dst_type, rounding_mode):
        toward_zero = rounding_mode == _triton.interpreter()._ir.ROUNDING_MODE.RTZ
        if toward_zero or not (_is_soft(src) or dst_type.scalar.name in floats.SOFT):
            return original(self, src, dst_type, rounding_mode)
        return self.cast_impl(src, dst_type)

    return create_fp_to_fp


@repairs("InterpreterBuilder.get_bf16")
def _bf16_constant(original):
    """Triton 3.6 has no bf16 constants: tl.full(..., dtype=tl.bfloat16) failed."""

    def get_bf16(self, value):
        import triton.language as tl

        return _handle(floats.encode(np.array([value], np.float32), "bf16"), tl.bfloat16)

    return get_bf16


# ---- arithmetic ------------------------------------------------------------------------------------------


@repairs("InterpreterBuilder.binary_op")
def _binary(original):
    """Arithmetic and comparisons of bf16 worked on the bits: 1 + 1 gave 2^126 or so."""

    def binary_op(self, lhs, rhs, op):
        if not (_is_soft(lhs) or _is_soft(rhs)):
            return original(self, lhs, rhs, op)
        return _with_values(op(_values(lhs), _values(rhs)), lhs.dtype)

    return binary_op


@repairs("InterpreterBuilder.unary_op")
def _unary(original):
    """As binary_op."""

    def unary_op(self, arg, op):
        return _with_values(op(_values(arg)), arg.dtype) if _is_soft(arg) else original(self, arg, op)

    return unary_op


@repairs("InterpreterBuilder.ternary_op")
def _ternary(original):
    """As binary_op; a select only moves bits and stays as it is."""

    def ternary_op(self, lhs, rhs, other, op):
        if op is np.where or not _is_soft(other):
            return original(self, lhs, rhs, other, op)
        return _with_values(op(_values(lhs), _values(rhs), _values(other)), other.dtype)

    return ternary_op


@repairs("InterpreterBuilder.create_fma")
def _fma(original):
    """As binary_op."""

    def create_fma(self, x, y, z):
        if not _is_soft(z):
            return original(self, x, y, z)
        return _with_values(_values(x) * _values(y) + _values(z), z.dtype)

    return create_fma


@repairs("InterpreterBuilder.create_maxnumf")
def _maxnum(original):
    """tl.maximum drops NaN unless told otherwise (PTX max); Triton 3.6 passed it on."""
    return lambda self, lhs, rhs: self.binary_op(lhs, rhs, np.fmax)


@repairs("InterpreterBuilder.create_minnumf")
def _minnum(original):
    """As create_maxnumf."""
    return lambda self, lhs, rhs: self.binary_op(lhs, rhs, np.fmin)


@repairs("InterpreterBuilder.create_dot")
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


@repairs("InterpreterBuilder.create_histogram")
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


@repairs("ReduceOps.min_max")
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


@repairs("ReduceOps.sum")
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


@repairs("ReduceOps.generic_reduce")
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


@repairs("ScanOps.generic_scan")
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


@repairs("ScanOps.cumsum")
def _cumsum(original):
    """A running sum of bf16 added up bits."""

    def cumsum(self, input):
        if not _is_soft(input.handle):
            return original(self, input)
        total = np.cumsum(_values(input.handle), axis=self.axis)
        return [self.to_tensor(floats.encode(total, input.handle.dtype.scalar.name), input.dtype)]

    return cumsum
