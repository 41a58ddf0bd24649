"""What honest answers have torch do is let pass, however they write it; what does an exercise's work is not."""

import dataclasses

import pytest
import torch

from course.judging import operations
from course.specs import exercise
from gradeworker.answer import Job, Outcome, run
from gradeworker.recorder import MOST_NAMES

RMS = exercise("transformer_block.rms_norm")
PRELUDE = "import math\nimport torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
SIGNS = ["+", "-", "*", "/", "//", "%", "**", "<", "<=", ">", ">=", "==", "!="]
BITS = ["&", "|", "^", "<<", ">>"]
WRITTEN = [
    *[f"{left} {sign} {right}" for sign in SIGNS for left, right in (("x", "x"), ("2", "x"), ("x", "2.5"))],
    *[f"i {sign} {right}" for sign in BITS for right in ("i", "2")],
    "x @ x.mT", "-x", "abs(x)", "float(x[0, 0])", "len(x), list(x), sorted(x[0])",
    "x[x > 0]", "x[:, None]", "str(x.bfloat16())", "x.masked_fill(x > 0, -math.inf)", "torch.where(x > 0, x, 0)",
    "x.half() @ x.half().T", "torch.einsum('ij,kj->ik', x, x)", "x.triu(1)", "torch.multinomial(x, 1)",
    "nn.Linear(3, 3)(x)",
    "nn.Embedding(3, 3)(i)", "nn.Parameter(x) * 2", "F.one_hot(i, 3)", "F.pad(x, (1, 0))", "torch.polar(x, x)",
    "x.clone().copy_(x).add_(1)",
    "torch.set_grad_enabled(False)", "x.numpy().mean()", "torch.view_as_complex(x[:, :2].contiguous())",
]


def said(body: str) -> list[str]:
    source = "def f(x, i):\n" + (body if body.startswith("    ") else f"    return {body}")
    case = ((torch.linspace(0.5, 2, 9).view(3, 3), torch.tensor([0, 1, 2])), {})
    outcomes = list(run(Job("x.f", "f", source, PRELUDE, cases=[case])))
    assert outcomes[0].error is None, outcomes[0].error
    return [finding.message for finding in operations.findings(RMS, outcomes)]


@pytest.mark.parametrize("body", [*WRITTEN, "    with torch.no_grad():\n        return x + 1",
                                  "    with torch.inference_mode():\n        return x + 1"])
def test_what_answers_are_built_from_passes(body):
    assert said(body) == []


@pytest.mark.parametrize("body", ["F.normalize(x)", "F.local_response_norm(x[None], 2)", "torch.linalg.inv(x)",
                                  "F.layer_norm(x, (3,))", "nn.RMSNorm(3)(x)", "F.group_norm(x, 1)"])
def test_what_does_an_exercises_work_does_not(body):
    assert said(body)


def test_an_exercise_may_allow_more():
    more = dataclasses.replace(RMS, allowed=("linalg_inv", "linalg_inv_ex"))
    job = Job("x.f", "f", "def f(x):\n    return torch.linalg.inv(x)", PRELUDE, cases=[((torch.eye(3),), {})])
    assert operations.findings(more, list(run(job))) == []


def test_more_names_than_are_noted_are_too_many():
    outcome = Outcome(0, 1, called={f"mul{number}": 1 for number in range(MOST_NAMES)})
    more = dataclasses.replace(RMS, allowed=tuple(outcome.called))
    assert "different things" in operations.findings(more, [outcome])[0].message
