"""What a learner reads after each kind of mistake: asserted in words."""

import pytest

from course.check import feedback, judge
from course.specs import exercise

RMS = exercise("transformer_block.rms_norm")
RIGHT = """# answer: transformer_block.rms_norm
def rms_norm(x, weight, eps):
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).to(x.dtype) * weight
"""


def read(source):
    return feedback.text(judge.practice(RMS, source))


def test_success_is_one_constant_line():
    assert read(RIGHT) == "transformer_block.rms_norm: all checks pass"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("wide = x.float()", "wide = x.float() - x.float().mean(-1, keepdim=True)"),
         ["looks like", "it subtracts the mean", "03_transformer_block.html#"]),
        ((").to(x.dtype) * weight", ") * weight"), ["dtype", "torch.float32 came, torch.float16 is right"]),
        (("return (", "return ("[:0] + "return None; ("), ["the function returned None", "end in a return"]),
        (("* weight", "* weight.sum()"), ["largest error", "is rounding", "at index"]),
        (("* weight", "/ 0 * weight"), ["came at index"]),
        (("wide = x.float()", "wide = x.float().clone(); x[:] = 0"), ["x was changed by the call", "work on a copy"]),
        (("wide.square()", "wide.sqare()"), ["AttributeError at line 4 of your cell", "sqare"]),
        (("x.float()", "helper(x)"), ["helper is not defined in the answer cell", "stands alone"]),
        (("def rms_norm", "def rmsnorm"), ["must define rms_norm", "keep the name"]),
        (("wide = x.float()", "wide = F.rms_norm(x, x.shape)"), ["line 3", "asks you to write"]),
        (("wide = x.float()", "import os"), ["line 3", "may not import os"]),
        (("def rms_norm(", "def rms_norm(("), ["not valid Python", "line 2"]),
        (("wide = x.float()", "raise NotImplementedError()"), ["is not written yet"]),
        (("wide = x.float()", "print('shape', x.shape); wide = x"), ["printed", "shape torch.Size"]),
    ],
)
def test_each_mistake_is_met_in_words(change, words):
    assert change[0] in RIGHT
    text = read(RIGHT.replace(*change))
    for word in words:
        assert word in text, text


def test_a_name_that_lives_in_another_cell_is_asked_to_move():
    import dataclasses

    verdict = judge.practice(RMS, RIGHT.replace("x.float()", "helper(x)"))
    text = feedback.text(dataclasses.replace(verdict, note="elsewhere"))
    assert "defined in another cell" in text
    assert "move helper into this cell" in text


def test_the_rich_form_escapes_what_the_learner_wrote():
    verdict = judge.practice(RMS, RIGHT.replace("wide = x.float()", "raise ValueError('<script>alert(1)</script>')"))
    assert "<script>" not in feedback.rich(verdict)
    assert "&lt;script&gt;" in feedback.rich(verdict)
