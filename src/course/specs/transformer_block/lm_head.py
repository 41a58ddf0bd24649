"""The LM head; eps may differ from student to student."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from course.specs.exercise import Case, Draw, Exercise, Tolerance
from course.specs.transformer_block import rms_norm
from course.specs.transformer_block.shared import GIVEN, HALF, PAGE, WITH_PARTS

EPS = 1e-5  # stands at the top of the answer's cell, and may differ from student to student


def reference(x, norm_weight, head_weight, eps=None, *, EPS=EPS):
    return rms_norm.reference(x[-1], norm_weight, EPS if eps is None else eps) @ head_weight.T


def cases(draw: Draw) -> list[Case]:
    hidden, vocab = draw.choice([6, 11]), draw.choice([13, 17])

    def case(tokens, label, scale=1.0, eps=1e-5, dtype=torch.float32, tolerance=None):
        x = draw.randn(tokens, hidden, scale=scale, dtype=dtype)
        return Case((x, draw.randn(hidden, dtype=dtype), draw.randn(vocab, hidden, dtype=dtype), eps), label=label,
                    tolerance=tolerance)

    return [
        case(5, f"5 tokens, a vocabulary of {vocab}"),
        case(1, "a single token"),
        case(4, "a long residual stream", scale=200.0),
        case(3, "values so small that eps counts", scale=2e-3),
        case(3, "so small, with another eps", scale=2e-3, eps=2e-6),
        case(3, "fp16, squares beyond its range", scale=300.0, dtype=torch.float16, tolerance=HALF),
        case(2, "bf16", dtype=torch.bfloat16, tolerance=HALF),
        Case((draw.strided(4, hidden), draw.randn(hidden), draw.strided(vocab, hidden), 1e-5),
             label="not contiguous in memory"),
        Case((draw.randn(3, hidden, scale=2e-3), draw.randn(hidden), draw.randn(vocab, hidden)),
             label="without eps, which is then EPS"),
    ]


LM_HEAD = Exercise(
    id="transformer_block.lm_head",
    title="The LM head",
    signature="lm_head(x, norm_weight, head_weight, eps=EPS)",
    variants={"EPS": (EPS, 1e-6, 3e-6, 2e-5, 5e-5)},
    reference=reference,
    cases=cases,
    hints=(
        "One row of x decides the next token. Pick it before the product with the vocabulary, which is the expensive part.",
        "Last row, final RMSNorm, product with head_weight [vocab, hidden]: a vector of vocab numbers.",
        "return parts.rms_norm(x[-1], norm_weight, eps) @ head_weight.T",
    ),
    section=f"{PAGE}#the-lm-head",
    points=1,
    difficulty=1,
    minutes=10,
    tolerance=Tolerance(c=8.0, K=16),
    prelude=WITH_PARTS,
    given=(GIVEN,),
    in_model=True,
)

LM_HEAD.near_miss(
    "the final norm is missing",
    {"parts.rms_norm(x[-1], norm_weight, eps)": "x[-1]"},
    says="After the last block comes one more RMSNorm, with a weight of its own, before the product.",
    section=f"{PAGE}#the-norm-the-document-leaves-out",
)

LM_HEAD.near_miss(
    "the norm's weight is missing",
    {"norm_weight, eps)": "torch.ones_like(norm_weight), eps)"},
    says="Dividing by the root mean square scales all logits alike; the weight is what changes their order. "
    "Multiply by norm_weight.",
    section=f"{PAGE}#the-norm-the-document-leaves-out",
)

LM_HEAD.near_miss(
    "it scores every position",
    {"x[-1]": "x"},
    says="Only the last position says what comes next: [vocab] is wanted, not [T, vocab].",
)

LM_HEAD.near_miss(
    "it takes the first position",
    {"x[-1]": "x[0]"},
    says="x[0] has seen nothing but itself. The row that has seen the whole text is the last, x[-1].",
)

LM_HEAD.near_miss(
    "it returns probabilities",
    {
        "parts.rms_norm(x[-1], norm_weight, eps) @ head_weight.T":
            "(parts.rms_norm(x[-1], norm_weight, eps) @ head_weight.T).softmax(-1)",
    },
    says="Logits are wanted: what samples from them applies its own temperature and softmax.",
)

LM_HEAD.near_miss(
    "eps is a number of its own",
    {"norm_weight, eps)": "norm_weight, EPS)"},
    says="EPS is what counts when none is given; where one is given, use the argument eps.",
)

LM_HEAD.near_miss(
    "the statistics stay in half precision",
    {"parts.rms_norm(x[-1], norm_weight, eps)": "(x[-1] * torch.rsqrt(x[-1].square().mean() + eps) * norm_weight)"},
    says="Squares of large fp16 values overflow to infinity: the mean square is taken in fp32, as in your rms_norm. "
    "parts.rms_norm does so.",
)

LM_HEAD.near_miss(
    "one mean square serves all tokens",
    {
        "parts.rms_norm(x[-1], norm_weight, eps)":
            "((x[-1].float() * torch.rsqrt(x.float().square().mean() + eps)).to(x.dtype) * norm_weight)",
    },
    says="Each row has a scale of its own, and only the last one is wanted: take the mean over x[-1], not over x.",
)

LM_HEAD.near_miss(
    "it is the norm with a mean",
    {"x[-1]": "(x[-1].float() - x[-1].float().mean()).to(x.dtype)"},
    says="LayerNorm centres its input; the final norm is an RMSNorm too.",
)


@LM_HEAD.alternate("by hand, with F.linear")
def lm_head(x, norm_weight, head_weight, eps=EPS):
    last = x[-1:].float()
    last = last / torch.sqrt(last.pow(2).mean(-1, keepdim=True) + eps)
    return F.linear(last.to(x.dtype) * norm_weight, head_weight).squeeze(0)


@LM_HEAD.alternate("in fp32 to the end, as a sum of products")
def lm_head(x, norm_weight, head_weight, eps=EPS):
    last = x[-1].float()
    last = last / ((last @ last) / last.numel() + eps).sqrt() * norm_weight.float()
    return (head_weight.float() * last).sum(dim=1).to(x.dtype)
