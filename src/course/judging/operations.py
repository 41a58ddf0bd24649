"""What an answer may have the library do: arithmetic, comparison, indexing, views, reductions, products, and no more.

The worker records which functions of torch an answer called and which operators ran (:mod:`gradeworker.recorder`).
Judged is what ran, so it does not matter by which name or through which part of the library it was reached.
"""

from __future__ import annotations

import functools

from course.judging.gate import Finding
from course.specs.exercise import Exercise
from gradeworker.answer import Outcome
from gradeworker.recorder import MOST_NAMES

ARITHMETIC = """
    abs absolute acos acosh add addcdiv addcmul angle arccos arcsin arctan arctan2 asin asinh atan atan2 atanh ceil
    clamp clamp_max clamp_min clip complex conj conj_physical copysign cos cosh deg2rad div divide erf erfc erfinv
    exp exp2 expm1 float_power floor floor_divide fmax fmin fmod frac frexp gcd hypot lcm ldexp lerp lgamma log
    log10 log1p log2 maximum minimum mul multiply nan_to_num neg negative polar positive pow rad2deg reciprocal
    remainder round rsqrt rsub sgn sigmoid sign sin sinc sinh sqrt square sub subtract tan tanh true_divide trunc xlogy
    exponent
"""
COMPARISON = """
    allclose bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor bool eq equal ge
    gt greater greater_equal is_nonzero isclose isfinite isin isinf isnan isneginf isposinf isreal le less
    less_equal logical_and logical_not logical_or logical_xor lt ne not_equal signbit where
    lshift rshift
"""
REDUCTIONS = """
    all amax amin aminmax any argmax argmin argsort bincount bucketize cummax cummin cumprod cumsum count_nonzero
    diff histc kthvalue log_softmax logcumsumexp logsumexp max mean median min mode msort nanmean nanmedian nansum
    norm linalg_norm histogram linalg_vector_norm vector_norm matrix_norm linalg_matrix_norm prod quantile searchsorted
    softmax sort std std_mean sum topk trace unique unique_consecutive var var_mean
"""
PRODUCTS = """
    addbmm addmm addmv addr baddbmm bmm chain_matmul cross cdist dot einsum inner linear matmul matrix_power mm
    multi_dot mv outer rmatmul tensordot vdot cosine_similarity linalg_matmul bilinear conv1d kron
"""
VIEWS = """
    adjoint as_strided atleast_1d atleast_2d atleast_3d block_diag broadcast_tensors broadcast_to cat chunk clone
    column_stack concat concatenate constant_pad_nd contiguous copy detach diag diag_embed diagflat diagonal dsplit
    dstack embedding expand expand_as flatten flip fliplr flipud gather hsplit hstack imag index index_add
    index_copy index_fill index_put index_select is_contiguous masked_fill masked_scatter masked_select meshgrid
    moveaxis movedim narrow nonzero one_hot pad permute put ravel real repeat repeat_interleave reshape reshape_as
    resize resolve_conj resolve_neg roll rot90 row_stack scatter scatter_add scatter_reduce select split
    split_with_sizes squeeze stack swapaxes swapdims t take take_along_dim tensor_split tile transpose tril
    tril_indices triu triu_indices unbind unflatten unfold unsafe_chunk unsafe_split unsqueeze vander view view_as
    view_as_complex view_as_real vsplit vstack argwhere cartesian_prod combinations slice select_scatter
    slice_scatter diagonal_scatter fill zero set
"""
MAKING = """
    arange as_tensor asarray bernoulli broadcast_shapes can_cast cauchy empty empty_like empty_permuted
    empty_strided exponential eye frombuffer from_numpy full full_like geometric linspace log_normal logspace
    multinomial new_empty new_full new_ones new_tensor new_zeros normal ones ones_like promote_types rand rand_like
    randint randint_like randn randn_like random randperm range result_type scalar_tensor tensor uniform zeros
    zeros_like manual_seed seed constant kaiming_normal kaiming_uniform orthogonal trunc_normal xavier_normal
    xavier_uniform
"""
ASKING = """
    bfloat16 byte char cpu cuda data dense_dim device dim dim_order double dtype element_size float get_device grad
    half has_names int is_complex is_conj is_cpu is_cuda is_floating_point is_inference is_neg is_pinned
    is_same_size is_set_to is_shared is_signed is_sparse is_tensor item itemsize layout length long mT mH H T nbytes
    ndim ndimension nelement numel numpy real requires_grad requires_grad_ set_grad_enabled shape short size sparse_dim
    storage_offset stride sym_numel sym_size sym_stride sym_storage_offset to tolist type type_as unsafe_view
    view_dtype
"""
ACTIVATIONS = """
    celu dropout elu gelu glu hardsigmoid hardswish hardtanh leaky_relu logit logsigmoid log_sigmoid_forward mish
    prelu relu relu6 selu silu softplus softsign swish threshold
"""
# What the functions above are made of below: copies, scalars, what indexing and conversion dispatch.
BELOW = """
    alias alias_copy assert_async conj_copy copy_from detach_copy efficientzerotensor index_put_impl lift lift_fresh
    lift_fresh_copy local_scalar_dense neg_view reshape_alias reshape_copy select_copy to_copy unsafe_index
    unsafe_index_put is_all_true is_any_true native_dropout upsample pin_memory view_copy expand_copy permute_copy
    transpose_copy unsqueeze_copy squeeze_copy slice_copy t_copy as_strided_copy linalg_check_errors unique2
    unique_dim cdist_forward euclidean_dist trilinear fill_mem_eff convolution
"""
ALLOWED = frozenset(" ".join([ARITHMETIC, COMPARISON, REDUCTIONS, PRODUCTS, VIEWS, MAKING, ASKING, ACTIVATIONS, BELOW])
                    .split())
# The same work under the other names that a library has for it: parts of names.
SAME_WORK = {
    "softmax": ("softmax", "softmin", "logsumexp", "logcumsumexp", "logaddexp", "cross_entropy", "attention"),
    "scaled_dot_product_attention": ("attention", "transformerencoder", "transformerdecoder"),
    "rms_norm": ("rms_norm", "layer_norm", "group_norm", "batch_norm", "instance_norm", "local_response_norm"),
    "silu": ("silu", "hardswish", "swish"),
}


def findings(exercise: Exercise, outcomes: list[Outcome]) -> list[Finding]:
    """What the answer called that this exercise is done without, in order of line; empty when there is nothing."""
    first: dict[str, int] = {}
    for outcome in outcomes:
        for name, line in outcome.called.items():
            first.setdefault(name, line)
    found = {}
    if len(first) >= MOST_NAMES:  # the recorder notes no more
        text = f"it has torch do {MOST_NAMES} different things: write it with those that it needs"
        found[0, text] = Finding(0, text, "denied")
    for name, line in first.items():
        said = _judged(name, exercise.denied, exercise.allowed)
        if said:
            found.setdefault((line, said), Finding(line, said, "denied"))
    return sorted(found.values(), key=lambda item: item.line)


@functools.cache
def _judged(name: str, denied: tuple[str, ...], allowed: tuple[str, ...]) -> str:
    """What there is to say against a call; "" when nothing is."""
    bare = plain(name)
    squashed = bare.replace("_", "").lower()
    parts = [part.replace("_", "") for each in denied for part in SAME_WORK.get(each, ())]
    if squashed in {each.lower().replace("_", "") for each in denied} or any(part in squashed for part in parts):
        return f"{bare} does the work this exercise asks you to write"
    if name.startswith("__") or bare in ALLOWED or bare in allowed:
        return ""
    return (f"{bare} is no operation that answers are built from: write it with arithmetic, reductions, products and "
            "views")


def plain(name: str) -> str:
    """The name without what says where it stands: ``aten._softmax`` and ``softmax_`` are ``softmax``."""
    return name.removeprefix("aten.").strip("_")
