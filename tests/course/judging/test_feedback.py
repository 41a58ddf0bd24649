"""What a learner reads after each kind of mistake: asserted in words."""

import dataclasses

import pytest

import kernelcheck.faults
from course.check import CheckFailed, cells, check
from course.grade.batch import mark_of
from course.judging import feedback, judge, kernel_words
from course.specs import exercise, exercises

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
        (("def rms_norm(", "def rms_norm(("), ["not valid Python", "line 2", "it reads   def rms_norm((x"]),
        (("return (", "print(x.shape); ("), ["None where a torch.Tensor is right", "print only shows a value"]),
        (("return (", "return (lambda: x); ("), ["a function came", "brackets () missing"]),
        (("* weight", "@ weight[:3]"), ["it reads   return (wide", "so far     0 of"]),
        (("(x, weight, eps)", "(x, weight)"), ["it is called as rms_norm(x, weight, eps)", "keep the parameters"]),
        (("wide = x.float()", "wide = wide.float()"), ["wide has no value when this line is reached"]),
        (("wide = x.float()", "return rms_norm(x, weight, eps)"), ["RecursionError", "the one that ends it"]),
        (("wide = x.float()", "return {1, 2}"), ["type: set came, torch.Tensor is right"]),
        (("wide = x.float()", "import os"), ["this must change first"]),
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
    verdict = judge.practice(RMS, RIGHT.replace("x.float()", "helper(x)"))
    text = feedback.text(dataclasses.replace(verdict, note="elsewhere"))
    assert "defined in another cell" in text
    assert "move helper into this cell" in text


def test_the_rich_form_escapes_what_the_learner_wrote():
    verdict = judge.practice(RMS, RIGHT.replace("wide = x.float()", "raise ValueError('<script>alert(1)</script>')"))
    assert "<script>" not in feedback.rich(verdict)
    assert "&lt;script&gt;" in feedback.rich(verdict)


@pytest.mark.parametrize(
    ("change", "head"),
    [
        (("* weight", "* weight.sum()"), "not yet right: wrong values"),
        ((").to(x.dtype) * weight", ") * weight"), "not yet right: wrong dtype"),
        (("wide = x.float()", "wide = x.float().clone(); x[:] = 0"), "not yet right: x was changed by the call"),
        (("wide = x.float()", "wide = x.float() - x.float().mean(-1, keepdim=True)"),
         "not yet right: it subtracts the mean"),
        (("x.float()", "x.flot()"), "not yet right: AttributeError at line 3"),
        (("def rms_norm", "def rmsnorm"), "the cell must define rms_norm; keep the name as it was given"),
        (("wide = x.float()", "wide = F.rms_norm(x, x.shape)"),
         "not accepted: it leaves to a library what this exercise asks you to write"),
    ],
)
def test_the_first_line_says_what_is_wrong(change, head):
    assert read(RIGHT.replace(*change)).splitlines()[0] == f"transformer_block.rms_norm: {head}"


def test_a_missing_return_is_told_for_every_type_of_result():
    for name, wanted in (("tokenization.decode", "str"), ("kv_cache.is_cache_safe", "bool"), ("kv_cache.cost", "dict")):
        item = exercise(name)
        text = feedback.text(judge.practice(item, f"def {item.signature}:\n    pass\n"))
        assert f"the function returned None where a {wanted} is right: does every path end in a return?" in text
        assert "None None" not in text


def test_none_inside_a_result_is_no_missing_return():
    source = "def merge_pair(pieces, pair):\n    return [None] + _right(pieces, pair)[1:]\n"
    right = exercise("tokenization.merge_pair").alternates[0].source.replace("def merge_pair", "def _right")
    text = feedback.text(judge.practice(exercise("tokenization.merge_pair"), f"{right}\n{source}"))
    assert "None came in result[0] where a bytes is right" in text
    assert "the function returned" not in text


def test_what_a_driver_looked_at_is_told_in_its_own_words():
    item = exercise("kv_cache.generate_cached")
    by_token = next(miss for miss in item.near_misses if miss.name == "the prompt goes in token by token")
    text = feedback.text(judge.practice(item, by_token.source))
    assert "looked at  tokens given to each pass" in text
    wrong = feedback.text(judge.practice(item, item.alternates[0].source.replace("return out", "return out[1:] + [0]")))
    assert " in result[0]" in wrong
    assert "looked at" not in wrong
    assert "'returned'" not in text + wrong


def test_a_large_vocabulary_is_shown_by_its_first_and_last_entries():
    source = "def encode(text, ranks, bos=None):\n    return []\n"
    call = next(line for line in feedback.text(judge.practice(exercise("tokenization.encode"), source)).splitlines()
                if line.startswith("  call"))
    assert "b'\\x00': 0" in call
    assert "..., " in call
    assert "b'uvw': 262} (263 entries)" in call
    assert len(call) < 400


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (list(range(100)), "[0, 1, 2, "), (list(range(100)), "98, 99] (100 items)"), (["x" * 500], "...] (1 items)"),
        ({1: "y" * 500}, "...} (1 entries)"), (list(range(20)), "18, 19]"),
    ],
)
def test_long_values_are_cut_between_their_items(value, shown):
    assert shown in feedback.show(value)
    assert len(feedback.show(value)) < 300


def test_single_numbers_in_tensors_look_as_torch_shows_them():
    source = exercise("kv_cache.is_cache_safe").alternates[1].source.replace(".item()", "").replace("not (", "~(")
    text = feedback.text(judge.practice(exercise("kv_cache.is_cache_safe"), source))
    assert "came       tensor(True)" in text


def test_what_was_printed_is_indented_and_cut_visibly():
    text = read(RIGHT.replace("wide = x.float()", "print('a' * 300 + chr(10) + 'b' * 300); wide = x"))
    printed = text[text.index("  printed") :].splitlines()
    assert printed[1].startswith(" " * 13 + "b")
    assert printed[1].endswith(" ...")


CACHE = exercise("kv_cache.KVCache")


@pytest.mark.parametrize("line", ["rows, heads = k.shape", "raise ValueError('no room')"])
def test_an_answer_that_raises_in_every_call_is_not_told_a_mistake_it_did_not_make(line):
    head = "    def append(self, layer, k, v):\n"
    source = CACHE.alternates[0].source
    assert head in source
    verdict = judge.practice(CACHE, source.replace(head, f"{head}        {line}\n"))
    assert verdict.error["type"] == "ValueError"
    assert verdict.mistake is None


def test_the_same_error_with_other_numbers_is_another_mistake():
    item = exercise("kv_cache.generate_cached")
    full = "the cache has room for 13 tokens, holds 7, and 8 came"
    source = next(miss.source for miss in item.near_misses if miss.name.endswith("until the cache is full"))
    verdict = judge.practice(item, source)
    assert full in feedback.text(verdict)
    assert verdict.mistake.name == "it gives the whole sequence to every pass, until the cache is full"
    error = {"type": "ValueError", "message": full, "line": 0, "name": ""}
    assert judge._same_error(error, dict(error, line=7))
    assert not judge._same_error(error, dict(error, message=full.replace("13", "7")))
    assert judge._same_error(error, dict(error, message="no room")), "an answer may word its own errors"
    assert judge._same_error(dict(error, message=repr(b"\xd1\x91")), dict(error, message=repr(b"\xd1\x92")))


def test_every_fault_that_kernelcheck_knows_has_an_advice():
    kinds = {value for name, value in vars(kernelcheck.faults).items() if name.isupper() and isinstance(value, str)}
    assert kinds == set(kernel_words.FAULTS)


def test_a_fault_without_a_name_of_its_own_is_told_what_to_do():
    item = exercise("triton_primer.row_sum")
    verdict = judge.practice(item, item.alternates[0].source.replace("tl.program_id(0)", "tl.program_id(2)"))
    assert verdict.mistake is None
    text = feedback.text(verdict)
    assert text.startswith("triton_primer.row_sum: not yet right: unwritten output")
    assert f"to do      {kernel_words.FAULTS['unwritten output']}" in text


FIRST = "It shows first on: 5 rows of 13. 0 of 10 hidden cases are right."
GRADED = [  # an answer to rms_norm, and what a student reads after grading
    ("raise NotImplementedError()", "rms_norm is not written yet."),
    ("wide = x", "the statistics stay in half precision. Squares of large fp16 values overflow to infinity: compute "
     "the mean square in fp32. 8 of 10 hidden cases are right."),
    ("wide = x.float() + 0; x[:] = 0", f"x was changed by the call. {FIRST.replace('0 of', '1 of')}"),
    ("return x.tolist()", f"wrong type. {FIRST}"),
    ("raise ValueError(str(x))", f"it raised ValueError at line 3. {FIRST}"),
    ("raise type(str(eps), (Exception,), {})", f"it raised an error at line 3. {FIRST}"),
    ("raise NameError('x', name=str(eps))", f"it raised NameError at line 3. {FIRST}"),
    ("wide = x @", "line 3: this is not Python: invalid syntax"),
]


@pytest.mark.parametrize(("line", "says"), GRADED)
def test_after_grading_a_student_reads_what_is_wrong_and_no_input(line, says):
    verdict = judge.practice(RMS, RIGHT.replace("wide = x.float()", line))
    assert mark_of(verdict).says == says


def test_a_kernel_fault_after_grading_is_no_internal_name():
    item = exercise("triton_primer.row_sum")
    verdict = judge.practice(item, item.alternates[0].source.replace("tl.program_id(0)", "tl.program_id(2)"))
    says = mark_of(verdict).says
    assert says.startswith("unwritten output. Some elements are written by no program")
    assert "KernelFault" not in says


def test_a_fault_that_an_answer_invents_is_not_repeated():
    own = "class KernelFault(Exception):\n    kind, line, file = 'secret', 0, ''\n"
    verdict = judge.practice(RMS, own + RIGHT.replace("wide = x.float()", "raise KernelFault()"))
    assert verdict.error["name"] == "secret"
    assert "secret" not in mark_of(verdict).says + feedback.in_short(verdict)


@pytest.mark.parametrize("kind", ["killed", "memory", "timeout"])
def test_an_answer_that_was_ended_is_asked_what_may_have_done_it(kind):
    verdict = judge.Verdict(kind, RMS, note="Fatal Python error")
    assert feedback.text(verdict).splitlines()[0].endswith("?")
    assert mark_of(verdict).says.endswith("?"), "the log is for the teacher"
    assert "Fatal" in mark_of(verdict).details
    case = judge.public_cases(RMS.id)[0]
    assert mark_of(dataclasses.replace(verdict, case=case)).says.endswith("? It shows first on: 5 rows of 13.")


def test_a_check_that_the_learner_stops_says_where_it_was():
    cells._sources["transformer_block.rms_norm"] = RIGHT.replace("wide = x.float()", "raise KeyboardInterrupt")
    try:
        with pytest.raises(CheckFailed) as stop:
            check("transformer_block.rms_norm")
    finally:
        cells._sources.clear()
    assert "stopped by you at line 3 of your cell: raise KeyboardInterrupt" in str(stop.value)
    assert "is there a loop that does not end?" in str(stop.value).lower()


def test_the_texts_of_all_exercises_are_short_and_end_as_sentences():
    for item in exercises():
        assert len(set(item.hints)) == 3
        for miss in item.near_misses:
            told = f"{item.id}, {miss.name}: {miss.says}"
            assert len(miss.says) <= 400, told
            assert miss.says.endswith("."), told
            assert not miss.name.endswith("."), told
            assert "!" not in miss.says, told
            assert " ".join(miss.says.split()) == miss.says, told
