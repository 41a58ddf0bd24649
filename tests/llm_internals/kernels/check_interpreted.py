"""Each Triton kernel against its torch twin and an fp64 reference, in Triton's interpreter.

Run by `test_kernels.py` in a process of its own: TRITON_INTERPRET must be set before triton is imported, and
stays for the life of the process. By hand: TRITON_INTERPRET=1 pytest tests/llm_internals/kernels/check_interpreted.py
"""

import os

import pytest
import torch

from llm_internals import kernels, model, ops, transformer_block
from llm_internals.config import ModelConfig

assert os.environ.get("TRITON_INTERPRET") == "1", "set TRITON_INTERPRET=1, or run test_kernels.py"

# fp32 sums in another order; the interpreter cuts a bf16 off where a GPU rounds it, which costs up to an ulp
# at each of the two casts
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 3e-2}
DTYPES = list(TOLERANCE)


def tensor(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def close(got, expected, dtype):
    assert got.dtype == dtype
    assert got.shape == expected.shape
    torch.testing.assert_close(got.double(), expected.double(), atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


def test_all_three_are_registered():
    for name in ("rms_norm", "apply_rope", "swiglu"):
        assert ops.backends()[name] == ("torch", "triton")
        assert ops.implementation(name, "cuda") is not ops.implementation(name, "cpu")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (5, 576), (2, 3, 100), (64,), (4, 1025)])
def test_rms_norm(shape, dtype):
    x, weight = tensor(*shape, dtype=dtype) * 3, tensor(shape[-1], dtype=dtype, seed=1)
    before = x.clone()
    got = kernels.rms_norm.rms_norm(x, weight, 1e-5)
    close(got, transformer_block.rms_norm(x, weight, 1e-5), dtype)
    wide = x.double()
    close(got, wide / (wide.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double(), dtype)
    assert torch.equal(x, before)


def test_rms_norm_takes_the_mean_square_in_fp32():
    """300^2 is infinite in fp16."""
    x, weight = torch.full((1, 16), 300.0, dtype=torch.float16), torch.ones(16, dtype=torch.float16)
    close(kernels.rms_norm.rms_norm(x, weight, 1e-5), torch.ones_like(x), torch.float16)


def test_rms_norm_casts_back_before_the_weight():
    """The row (1, 0) becomes (sqrt 2, 0). Rounded to fp16 before the weight or after, the product can differ."""
    weights = torch.arange(1.0, 60.0, dtype=torch.float16)
    before, after = torch.tensor(2**0.5).half() * weights, (2**0.5 * weights.float()).half()
    assert (before != after).sum() >= 5
    x = torch.tensor([[1.0, 0.0]], dtype=torch.float16)
    for weight, expected in zip(weights, before):
        got = kernels.rms_norm.rms_norm(x, torch.stack([weight, weight]), 1e-12)
        assert got[0, 0] == expected


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("t", "hq", "hkv", "d"), [(1, 1, 1, 2), (5, 6, 2, 8), (3, 9, 3, 64), (7, 5, 1, 12)])
def test_apply_rope(t, hq, hkv, d, dtype):
    q, k = tensor(t, hq, d, dtype=dtype), tensor(t, hkv, d, dtype=dtype, seed=1)
    positions = torch.arange(t) * 3 + 100
    cos, sin = transformer_block.rope_cos_sin(positions, transformer_block.rope_frequencies(d, 10000.0))
    expected = transformer_block.apply_rope(q, k, cos, sin)
    before = q.clone(), k.clone()
    for got, want in zip(kernels.rope.apply_rope(q, k, cos, sin), expected):
        close(got, want, dtype)
        assert got.is_contiguous()
    assert torch.equal(q, before[0])
    assert torch.equal(k, before[1])


def test_apply_rope_of_strided_views():
    """Slices of one fused projection, and heads stored before tokens."""
    fused = tensor(4, 10, 16)
    q, k = fused[:, :6], fused[:, 6:8]
    cos, sin = transformer_block.rope_cos_sin(torch.arange(4), transformer_block.rope_frequencies(16, 10000.0))
    for a, b in zip(kernels.rope.apply_rope(q, k, cos, sin), transformer_block.apply_rope(q, k, cos, sin)):
        close(a, b, torch.float32)
    q, k = tensor(6, 4, 16).transpose(0, 1), tensor(4, 16, 2).transpose(1, 2)
    for a, b in zip(kernels.rope.apply_rope(q, k, cos, sin), transformer_block.apply_rope(q, k, cos, sin)):
        close(a, b, torch.float32)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1,), (3, 7), (2, 1536), (1024,), (5, 5, 41)])
def test_swiglu(shape, dtype):
    gate, up = tensor(*shape, dtype=dtype) * 4, tensor(*shape, dtype=dtype, seed=1)
    close(kernels.swiglu.swiglu(gate, up), transformer_block.swiglu(gate, up), dtype)


def test_swiglu_of_the_halves_of_one_projection():
    gate, up = tensor(3, 20).chunk(2, dim=-1)
    close(kernels.swiglu.swiglu(gate, up), transformer_block.swiglu(gate, up), torch.float32)


def test_nothing_in_nothing_out():
    empty = torch.empty(0, 8)
    assert kernels.rms_norm.rms_norm(empty, torch.ones(8), 1e-5).shape == (0, 8)
    assert kernels.swiglu.swiglu(empty, empty).shape == (0, 8)
    q, k = kernels.rope.apply_rope(torch.empty(0, 4, 8), torch.empty(0, 2, 8), torch.empty(0, 4), torch.empty(0, 4))
    assert (q.shape, k.shape) == ((0, 4, 8), (0, 2, 8))


def test_dtypes_are_checked():
    with pytest.raises(ValueError, match=r"one dtype, fp32, fp16 or bf16; got torch\.float64"):
        kernels.rms_norm.rms_norm(torch.ones(2, 4).double(), torch.ones(4).double(), 1e-5)
    with pytest.raises(ValueError, match=r"got torch\.float16, torch\.float32"):
        kernels.swiglu.swiglu(torch.ones(4), torch.ones(4).half())
    with pytest.raises(ValueError, match=r"one shape, got \[4\] and \[1\]"):
        kernels.swiglu.swiglu(torch.ones(4), torch.ones(1))


def test_a_whole_model_on_the_kernels():
    config = ModelConfig(50, 24, 40, 2, 3, 1, 8)
    weights = {
        name: tensor(*shape, seed=i) * 0.3 for i, (name, shape) in enumerate(model.weight_shapes(config).items())
    }
    llama = model.Llama(config, weights)
    ids = torch.arange(7)
    expected = llama(ids)
    registered = {name: ops.implementation(name, "cuda") for name in ("rms_norm", "apply_rope", "swiglu")}
    with ops.use(**registered):
        close(llama(ids), expected, torch.float32)
