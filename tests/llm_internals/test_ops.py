import threading

import pytest
import torch

from llm_internals import model, ops  # noqa: F401  (importing model registers the torch implementations)

X, W = torch.randn(3, 8), torch.randn(8)


def mine(x, weight, eps):
    return torch.full_like(x, 7.0)


def test_every_operation_has_a_torch_implementation():
    assert all("torch" in found for found in ops.backends().values())
    assert set(ops.backends()) >= {"rms_norm", "apply_rope", "swiglu", "linear", "attention", "sample"}


def test_cuda_tensors_take_triton_where_registered(monkeypatch):
    monkeypatch.setitem(ops._implementations["rms_norm"], "triton", mine)
    assert ops.implementation("rms_norm", "cuda:0") is mine
    assert ops.implementation("rms_norm", "cpu") is not mine
    assert ops.backends()["rms_norm"] == ("torch", "triton")
    assert ops.implementation("linear", "cuda") is ops.implementation("linear", "cpu")


def test_use_swaps_and_restores():
    before = ops.rms_norm(X, W, 1e-5)
    with ops.use(rms_norm=mine):
        assert (ops.rms_norm(X, W, 1e-5) == 7).all()
        assert (ops.rms_norm(x=X, weight=W, eps=1e-5) == 7).all()
    torch.testing.assert_close(ops.rms_norm(X, W, 1e-5), before)


def test_use_restores_after_an_exception():
    with pytest.raises(ZeroDivisionError), ops.use(rms_norm=lambda x, weight, eps: 1 / 0):
        ops.rms_norm(X, W, 1e-5)
    assert not (ops.rms_norm(X, W, 1e-5) == 7).all()


def test_an_exception_inside_a_nested_call_leaves_the_outer_override():
    def fails(x, weight, eps):
        raise KeyError

    with ops.use(rms_norm=mine):
        with pytest.raises(KeyError), ops.use(rms_norm=fails):
            ops.rms_norm(X, W, 1e-5)
        assert (ops.rms_norm(X, W, 1e-5) == 7).all()


def test_nested_use_means_the_innermost_and_its_body_the_next_one():
    def plus_one(x, weight, eps):
        return ops.rms_norm(x, weight, eps) + 1

    with ops.use(rms_norm=mine), ops.use(rms_norm=plus_one), ops.use(rms_norm=plus_one):
        assert (ops.rms_norm(X, W, 1e-5) == 9).all()


def test_a_body_still_sees_the_other_overrides():
    def attention(q, k, v, scale, window=None):
        return ops.linear(q, k)

    with ops.use(attention=attention, linear=lambda x, weight: x * 0 + 3):
        assert (ops.attention(X, X, X, 1.0) == 3).all()


def test_another_thread_is_not_touched():
    seen = []
    with ops.use(rms_norm=mine):
        thread = threading.Thread(target=lambda: seen.append(ops.rms_norm(X, W, 1e-5)))
        thread.start()
        thread.join()
    assert not (seen[0] == 7).all()


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ({"rmsnorm": mine}, "unknown operation 'rmsnorm'; the operations are rms_norm"),
        ({"rms_norm": lambda x, weight: x}, r"rms_norm must be callable as rms_norm\(x, weight, eps\)"),
        ({"rms_norm": lambda x, weight, eps, more: x}, "missing a required argument: 'more'"),
        ({"attention": lambda q, k, v, scale: q}, "window"),
        ({"swiglu": 3}, "must be a function, got int"),
    ],
)
def test_use_rejects(functions, message):
    with pytest.raises(ValueError, match=message), ops.use(**functions):
        pass


def test_use_rejects_before_it_changes_anything():
    with pytest.raises(ValueError), ops.use(rms_norm=mine, nonsense=mine):
        pass
    assert not (ops.rms_norm(X, W, 1e-5) == 7).all()


def test_a_function_without_a_python_signature_is_taken():
    with ops.use(linear=torch._C._nn.linear):
        assert ops.linear(X, torch.eye(8)).shape == X.shape


def test_register_rejects_an_unknown_backend_or_signature():
    with pytest.raises(ValueError, match="unknown backend 'jax'"):
        ops.register("rms_norm", "jax")
    with pytest.raises(ValueError, match="must be callable as"):
        ops.register("rms_norm", "torch")(lambda x: x)


def test_record_collects_arguments_and_results(small_llama):
    with ops.record("attention", "rms_norm") as calls:
        small_llama(torch.tensor([5, 6, 7]))
    layers = small_llama.config.num_layers
    assert [c.name for c in calls] == ["rms_norm", "attention", "rms_norm"] * layers + ["rms_norm"]
    call = calls[1]
    assert list(call.arguments) == ["q", "k", "v", "scale", "window"]
    assert call.arguments["q"].shape == (3, 6, 8)
    torch.testing.assert_close(call.result, ops.attention(**call.arguments))


def test_record_sees_what_an_outer_override_answers():
    with ops.use(rms_norm=mine), ops.record("rms_norm") as calls:
        ops.rms_norm(X, W, 1e-5)
    assert (calls[0].result == 7).all()


def test_the_learners_function_runs_in_the_model(small_llama):
    ids = torch.tensor([1, 2, 3, 4])
    expected = small_llama(ids)

    def learners(x, weight, eps):
        return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight

    with ops.use(rms_norm=learners):
        torch.testing.assert_close(small_llama(ids), expected, atol=1e-4, rtol=1e-4)
    with ops.use(rms_norm=lambda x, weight, eps: x):
        assert (small_llama(ids) - expected).abs().max() > 0.1
