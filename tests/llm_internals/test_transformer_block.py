"""Each operation against an fp64 reference written as loops, and against properties it must have."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_internals import transformer_block as tb
from llm_internals.config import RopeScaling

LAYOUTS = [
    (1, 1, 1, 1, 4),
    (5, 5, 3, 3, 8),
    (7, 7, 6, 2, 8),
    (1, 9, 6, 2, 8),
    (3, 11, 8, 1, 16),
    (13, 13, 9, 3, 6),
]


def tensors(*shapes, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]


def attention_by_loops(q, k, v, scale, window=None):
    """One query, one head at a time, in fp64."""
    q, k, v = q.double(), k.double(), v.double()
    offset, group = len(k) - len(q), q.shape[1] // k.shape[1]
    out = torch.empty_like(q)
    for i in range(len(q)):
        first = 0 if window is None else max(0, i + offset - window + 1)
        for h in range(q.shape[1]):
            keys, values = (t[first : i + offset + 1, h // group] for t in (k, v))
            weights = torch.softmax(keys @ q[i, h] * scale, dim=0)
            out[i, h] = weights @ values
    return out


@pytest.mark.parametrize("window", [None, 1, 3, 100])
@pytest.mark.parametrize(("tq", "tk", "hq", "hkv", "d"), LAYOUTS)
@pytest.mark.parametrize("attention", [tb.attention_from_scratch, tb.attention])
def test_attention_equals_loops(attention, tq, tk, hq, hkv, d, window):
    q, k, v = tensors((tq, hq, d), (tk, hkv, d), (tk, hkv, d))
    q = q * 4  # a peaked softmax
    got = attention(q, k, v, d**-0.5, window)
    assert got.shape == q.shape
    torch.testing.assert_close(got.double(), attention_by_loops(q, k, v, d**-0.5, window), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("attention", [tb.attention_from_scratch, tb.attention])
def test_attention_in_half_precision(attention, dtype):
    q, k, v = tensors((6, 6, 16), (10, 2, 16), (10, 2, 16), dtype=dtype)
    got = attention(q, k, v, 0.25)
    assert got.dtype == dtype
    error = (got.double() - attention_by_loops(q, k, v, 0.25)).abs().max()
    assert error < 8 * torch.finfo(dtype).eps


@pytest.mark.parametrize("attention", [tb.attention_from_scratch, tb.attention])
def test_large_scores_are_not_rounded_to_bf16(attention):
    """q k^T near 680, where bf16 numbers are 4 apart, and keys that differ by less."""
    direction, noise, v = tensors((1, 1, 8), (9, 1, 8), (9, 1, 8))
    q = (direction / direction.norm() * 26).expand(9, 1, 8).to(torch.bfloat16)
    k = (q + 0.1 * noise).to(torch.bfloat16)
    v = v.to(torch.bfloat16)
    error = (attention(q, k, v, 8**-0.5).double() - attention_by_loops(q, k, v, 8**-0.5)).abs().max()
    assert error < 8 * torch.finfo(torch.bfloat16).eps


def test_attention_of_strided_cache_views():
    """A cache hands out transposed views; neither twin may depend on contiguity."""
    q, k, v = tensors((2, 6, 8), (2, 20, 8), (2, 20, 8))
    k, v = (t.transpose(0, 1)[:11] for t in (k, v))
    for attention in (tb.attention_from_scratch, tb.attention):
        torch.testing.assert_close(
            attention(q, k, v, 0.3).double(), attention_by_loops(q, k, v, 0.3), atol=1e-5, rtol=1e-5
        )


@pytest.mark.parametrize("num_queries", [1, 64])
def test_grouped_attention_does_not_copy_the_cache(num_queries):
    """What it allocates stays below one copy of K, which a repeat for each query head would take 8 times."""
    q, k, v = tensors((num_queries, 16, 64), (2, 4096, 64), (2, 4096, 64))
    k, v = k.transpose(0, 1), v.transpose(0, 1)
    with torch.profiler.profile(profile_memory=True) as profile:
        tb.attention(q, k, v, 0.125)
    largest = max(event.cpu_memory_usage for event in profile.events())
    assert largest < k.numel() * k.element_size()


@pytest.mark.parametrize("attention", [tb.attention_from_scratch, tb.attention])
def test_attention_edges(attention):
    assert attention(*tensors((0, 4, 8), (3, 2, 8), (3, 2, 8)), 0.3).shape == (0, 4, 8)
    with pytest.raises(ValueError, match="3 queries but 2 keys"):
        attention(*tensors((3, 4, 8), (2, 2, 8), (2, 2, 8)), 0.3)
    with pytest.raises(ValueError, match="4 query heads cannot share 3 key/value heads"):
        attention(*tensors((2, 4, 8), (2, 3, 8), (2, 3, 8)), 0.3)
    for num_queries in (1, 2):
        with pytest.raises(ValueError, match="at least 1; got 0"):
            attention(*tensors((num_queries, 4, 8), (2, 2, 8), (2, 2, 8)), 0.3, 0)


def test_attention_weights_are_causal_and_sum_to_one():
    q, k = tensors((4, 6, 8), (9, 2, 8))
    weights = tb.attention_weights(q, k, 0.3)
    assert weights.shape == (6, 4, 9)
    torch.testing.assert_close(weights.sum(-1), torch.ones(6, 4))
    future = ~tb.causal_mask(4, 9)
    assert (weights[:, future] == 0).all()
    assert (weights[:, ~future] > 0).all()


def test_causal_mask_by_hand():
    assert tb.causal_mask(2, 4).int().tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert tb.causal_mask(3, 3, window=2).int().tolist() == [[1, 0, 0], [1, 1, 0], [0, 1, 1]]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_rms_norm(dtype):
    x, weight = tensors((5, 33), (33,), dtype=dtype)
    exact = x.double() / (x.double().pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double()
    got = tb.rms_norm(x, weight, 1e-5)
    assert got.dtype == dtype
    torch.testing.assert_close(got.double(), exact, atol=0, rtol=4 * torch.finfo(dtype).eps)


def test_rms_norm_takes_the_mean_square_in_fp32():
    """300^2 overflows fp16: a mean square in half precision would be infinite, and the row zero."""
    x = torch.full((1, 16), 300.0, dtype=torch.float16)
    torch.testing.assert_close(tb.rms_norm(x, torch.ones(16, dtype=torch.float16), 1e-5), torch.ones_like(x))


def test_rms_norm_keeps_eps_inside_the_root():
    x = torch.full((1, 4), 1e-3)
    torch.testing.assert_close(tb.rms_norm(x, torch.ones(4), 1e-5), x / math.sqrt(1.1e-5))


@given(shift=st.integers(0, 500), distance=st.integers(0, 50))
@settings(deadline=None, max_examples=25)
def test_rope_scores_depend_on_distance_only(shift, distance):
    q, k = tensors((1, 1, 16), (1, 1, 16), dtype=torch.float64)
    frequencies = tb.rope_frequencies(16, 10000.0).double()

    def score(m, n):
        q_m, _ = tb.apply_rope(q, k, *angles(m))
        _, k_n = tb.apply_rope(q, k, *angles(n))
        return (q_m * k_n).sum()

    def angles(position):
        angle = position * frequencies[None]
        return angle.cos(), angle.sin()

    torch.testing.assert_close(score(distance, 0), score(distance + shift, shift), atol=1e-9, rtol=1e-9)


def test_rope_rotates_half_split_pairs():
    """By hand: D = 4, the pairs are (0, 2) and (1, 3); each turns by its own angle."""
    x = torch.tensor([[[1.0, 2.0, 3.0, 4.0]]])
    a, b = torch.tensor(0.5), torch.tensor(0.25)
    got, _ = tb.apply_rope(x, x, torch.stack([a.cos(), b.cos()])[None], torch.stack([a.sin(), b.sin()])[None])
    expected = [
        a.cos() - 3 * a.sin(),
        2 * b.cos() - 4 * b.sin(),
        3 * a.cos() + a.sin(),
        4 * b.cos() + 2 * b.sin(),
    ]
    torch.testing.assert_close(got.flatten(), torch.stack(expected))


def test_rope_keeps_lengths_and_dtype():
    q, k = tensors((7, 6, 8), (7, 2, 8), dtype=torch.bfloat16)
    cos, sin = tb.rope_cos_sin(torch.arange(7) + 1000, tb.rope_frequencies(8, 10000.0))
    assert cos.shape == sin.shape == (7, 4)
    turned_q, turned_k = tb.apply_rope(q, k, cos, sin)
    assert (turned_q.dtype, turned_k.dtype, turned_k.shape) == (q.dtype, k.dtype, k.shape)
    torch.testing.assert_close(turned_q.float().norm(dim=-1), q.float().norm(dim=-1), atol=0, rtol=1e-2)


def test_linear_rope_scaling_divides_every_frequency():
    plain = tb.rope_frequencies(64, 10000.0)
    torch.testing.assert_close(tb.rope_frequencies(64, 10000.0, RopeScaling("linear", 4.0)), plain / 4)


def test_llama3_rope_scaling_by_the_published_rule():
    """Wavelengths below 8192/4 keep, above 8192/1 are divided by 8, between are blended."""
    plain = tb.rope_frequencies(128, 500000.0)
    scaled = tb.rope_frequencies(128, 500000.0, RopeScaling("llama3", 8.0, 1.0, 4.0, 8192))
    for f, got in zip(plain.double(), scaled.double()):
        wavelength = 2 * math.pi / f
        smooth = (8192 / wavelength - 1.0) / 3.0
        expected = f if wavelength < 2048 else f / 8 if wavelength > 8192 else (1 - smooth) * f / 8 + smooth * f
        assert got == pytest.approx(float(expected), rel=1e-5)
    assert (scaled == plain).any()
    assert torch.isclose(scaled, plain / 8).any()


def test_swiglu():
    gate, up = tensors((3, 5), (3, 5))
    exact = gate.double() / (1 + (-gate.double()).exp()) * up.double()
    torch.testing.assert_close(tb.swiglu(gate, up).double(), exact, atol=1e-6, rtol=1e-6)


def test_block_calls_attend_instead_of_attention(small_llama):
    x = torch.randn(4, small_llama.config.hidden_size)
    cos, sin = tb.rope_cos_sin(torch.arange(4), small_llama.rope_frequencies)
    seen = []

    def nothing(q, k, v, scale):
        seen.append((q.shape, k.shape, scale))
        return torch.zeros_like(q)

    got = tb.block(x, small_llama.layers[0], cos, sin, small_llama.config, nothing)
    assert seen == [((4, 6, 8), (4, 2, 8), 8**-0.5)]
    layer = small_llama.layers[0]
    torch.testing.assert_close(got, x + tb.mlp(tb.rms_norm(x, layer.mlp_norm, 1e-6), layer))
