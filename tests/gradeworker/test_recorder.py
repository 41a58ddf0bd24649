"""What an answer has torch do is seen, however it is spelt; what given code does is not the answer's."""

import subprocess
import sys

import pytest
import torch

from gradeworker.answer import Job, Outcome, run

PRELUDE = "import torch\nimport torch.nn.functional as F\n"
X = torch.linspace(-1, 1, 12).view(3, 4)


def called(source: str, cases=None, **fields) -> dict[str, int]:
    outcomes = list(run(Job("x.f", "f", source, PRELUDE, cases=cases or [((X,), {})], **fields)))
    assert all(outcome.error is None for outcome in outcomes), outcomes
    found: dict[str, int] = {}
    for outcome in outcomes:
        assert not set(found) & set(outcome.called), "each name is told once"
        found |= outcome.called
    return found


@pytest.mark.parametrize(
    "call",
    ["torch.softmax(x, -1)", "x.softmax(-1)", "F.softmax(x, -1)", "torch.nn.Softmax(-1)(x)", "getattr(x, 'softmax')(-1)",
     "torch.special.softmax(x, -1)", "torch.Tensor.softmax(x, -1)", "list(map(torch.Tensor.softmax, [x], [-1]))[0]"],
)
def test_softmax_is_softmax_by_whatever_name(call):
    found = called(f"def f(x):\n    return {call}")
    assert found["aten._softmax"] == 2


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("F.scaled_dot_product_attention(x[None], x[None], x[None])", "scaled_dot_product_attention"),
        ("F.rms_norm(x, (4,))", "rms_norm"),
        ("torch.nn.RMSNorm(4)(x)", "rms_norm"),
        ("F.local_response_norm(x[None], 2)", "local_response_norm"),
        ("F.multi_head_attention_forward(x, x, x, 4, 2, torch.ones(12, 4), None, None, None, False, 0.0, "
         "torch.ones(4, 4), None)[0]", "multi_head_attention_forward"),
        ("torch.nn.Transformer(4, 2, 1, 1, 8).encoder.layers[0].self_attn(x, x, x)[0]", "multi_head_attention_forward"),
        ("F.silu(x)", "silu"),
        ("torch.nn.SiLU()(x)", "silu"),
        ("F.cross_entropy(x, torch.zeros(3, dtype=torch.long))", "cross_entropy"),
    ],
)
def test_parts_of_the_library_are_seen_as_what_they_do(call, name):
    assert name in called(f"def f(x):\n    return {call}")


def test_the_line_is_that_of_the_answer():
    assert called("def g(x):\n    return x.exp()\n\ndef f(x):\n    y = x + 1\n    return g(y)")["exp"] == 2


def test_what_runs_while_the_cell_is_loaded_counts():
    assert "softmax" in called("TABLE = torch.softmax(torch.ones(4), -1)\ndef f(x):\n    return TABLE")


def test_what_a_given_module_calls_is_not_the_answers():
    modules = {"course.given.parts": "import torch\n\n\ndef attend(x):\n    return torch.softmax(x, -1)\n"}
    found = called("from course.given import parts\ndef f(x):\n    return parts.attend(x) * 2", modules=modules)
    assert "softmax" not in found
    assert "aten._softmax" not in found
    assert "mul" in found


def test_what_a_driver_calls_is_not_the_answers():
    found = called("def f(x):\n    return x + 1", driver="def drive(answer, x):\n    return torch.softmax(answer(x), -1)")
    assert "softmax" not in found
    assert "add" in found


def test_a_callback_of_the_answer_that_given_code_calls_is_the_answers():
    modules = {"course.given.parts": "def twice(g, x):\n    return g(g(x))\n"}
    source = "from course.given import parts\ndef f(x):\n    return parts.twice(lambda y: y.softmax(-1), x)"
    assert "softmax" in called(source, modules=modules)


def test_what_a_later_call_fills_in_is_seen():
    source = ("SEEN = []\n\ndef f(x):\n    if SEEN:\n        SEEN[0].copy_(x.softmax(-1))\n        return SEEN[0].clone()\n"
              "    SEEN.append(torch.empty(3, 4))\n    return SEEN[0]")
    assert "softmax" in called(source, [((X,), {})] * 2)


def test_recording_changes_no_value():
    source = "def f(x):\n    return F.linear(x, x).softmax(-1) @ x"
    (one,) = run(Job("x.f", "f", source, PRELUDE, cases=[((X,), {})]))
    (two,) = run(Job("x.f", "f", source, PRELUDE, cases=[((X,), {})], free=True))
    assert torch.equal(one.value, two.value)


def test_calls_survive_the_wire_and_nothing_else_does():
    outcome = Outcome(0, 1, called={"softmax": 3})
    assert Outcome.from_bytes(outcome.to_bytes()).called == {"softmax": 3}
    for wrong in ({"a": "b"}, {3: 4}, [1], {str(i): i for i in range(1_000)}):
        outcome.called = wrong
        with pytest.raises(ValueError, match="not an outcome"):
            Outcome.from_bytes(outcome.to_bytes())


def test_recording_imports_nothing():
    """Torch would bring its compiler along: seconds, and files that a sandbox does not show."""
    code = ("import torch, sys; from gradeworker.answer import Job, run; before = set(sys.modules); "
            "job = Job('x.f', 'f', 'def f(x):\\n    return x.square().mean(-1)', cases=[((torch.ones(2, 2),), {})]); "
            "list(run(job)); print(sorted(set(sys.modules) - before))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "dynamo" not in done.stdout
