import pytest
import torch

from course.judging import compare
from course.specs import Case, Draw, Exercise, Tolerance, exercise
from gradeworker.wire import OnDevice, Opaque


def expected(value, exact=None, **tolerance):
    exact = compare.to_fp64(value) if exact is None else exact
    return compare.Expected(value, exact, Tolerance(**tolerance))


def test_equal_tensors_are_right():
    x = torch.randn(3, 5)
    assert compare.difference(x.clone(), expected(x)) is None


@pytest.mark.parametrize(
    ("got", "what"),
    [
        (torch.zeros(3, 5, dtype=torch.float64), "dtype"),
        (torch.zeros(3, 5, dtype=torch.float16), "dtype"),
        (torch.zeros(5, 3), "shape"),
        (torch.zeros(0), "shape"),
        (torch.zeros(()), "shape"),
        (torch.zeros(1, 3, 5), "shape"),
        (None, "type"),
        (0.0, "type"),
        ([0.0] * 15, "type"),
        (Opaque("numpy.ndarray"), "type"),
        (OnDevice(torch.zeros(3, 5), "cuda"), "device"),
        (torch.full((3, 5), float("nan")), "nan"),
        (torch.full((3, 5), float("inf")), "nan"),
        (torch.full((3, 5), 1e-3), "value"),
    ],
)
def test_each_way_to_be_wrong_has_its_name(got, what):
    found = compare.difference(got, expected(torch.zeros(3, 5), torch.full((3, 5), 1e-9, dtype=torch.float64)))
    assert found.what == what


def test_one_nan_among_thousands_never_passes():
    x = torch.randn(100, 100)
    got = x.clone()
    got[57, 3] = float("nan")
    found = compare.difference(got, expected(x))
    assert found.what == "nan"
    assert found.index == (57, 3)


def test_nan_and_infinity_must_be_where_the_reference_has_them():
    x = torch.tensor([float("nan"), float("inf"), 1.0])
    assert compare.difference(x.clone(), expected(x)) is None
    assert compare.difference(torch.tensor([0.0, float("inf"), 1.0]), expected(x)).what == "nan"
    assert compare.difference(torch.tensor([float("nan"), -float("inf"), 1.0]), expected(x)).what == "nan"


def test_the_bound_comes_from_the_dtype_and_the_length_of_the_sum():
    exact = torch.ones(4, dtype=torch.float64)
    for dtype, K in [(torch.float32, 1), (torch.float32, 64), (torch.bfloat16, 64)]:
        value = exact.to(dtype)
        allowed = compare.bound(value, exact, Tolerance(c=2, K=K))
        assert allowed == pytest.approx(2 * torch.finfo(dtype).eps * K**0.5)


def test_the_bound_grows_with_the_references_own_error():
    exact = torch.tensor([1.0], dtype=torch.float64)
    value = torch.tensor([1.01])
    assert compare.bound(value, exact, Tolerance()) == pytest.approx(0.04, rel=1e-3)


def test_zeros_do_not_pass_for_a_wide_softmax():
    logits = torch.randn(2, 50_000, generator=torch.Generator().manual_seed(0))
    value, exact = logits.softmax(-1), logits.double().softmax(-1)
    assert compare.difference(torch.zeros_like(value), compare.Expected(value, exact, Tolerance(K=50_000))) is not None


@pytest.mark.parametrize("value", [True, 3, "text", b"bytes", None, [1, 2], (1, 2), {"a": 1}])
def test_plain_values_must_be_equal_and_of_the_same_type(value):
    assert compare.difference(value, expected(value, value)) is None
    assert compare.difference(Opaque("x"), expected(value, value)) is not None


def test_true_is_not_one():
    assert compare.difference(1, expected(True, True)).what == "type"
    assert compare.difference(True, expected(1, 1)).what == "type"


def test_differences_inside_structures_say_where():
    value = [torch.zeros(2), {"k": torch.zeros(3)}]
    found = compare.difference([torch.zeros(2), {"k": torch.ones(3)}], expected(value))
    assert found.where == "[1]['k']"
    assert compare.difference([torch.zeros(2)], expected(value)).what == "length"
    assert compare.difference([torch.zeros(2), {"v": 1}], expected(value)).what == "keys"


def test_a_changed_input_is_named_unless_it_may_be():
    item = exercise("transformer_block.rms_norm")
    case = Case((torch.ones(2, 3), torch.ones(3), 1e-5))
    after = ((torch.zeros(2, 3), torch.ones(3), 1e-5), {})
    assert compare.mutated(item, case, after).where == "x"
    assert compare.mutated(item, case, (case.args, {})) is None
    may = Exercise(**{**vars(item), "mutates": frozenset({"x"})})
    assert compare.mutated(may, case, after) is None


def test_draws_repeat_and_do_not_depend_on_the_dtype():
    a, b = Draw("seed"), Draw("seed")
    assert torch.equal(a.randn(4), b.randn(4))
    assert torch.equal(Draw(1).randn(4, dtype=torch.float16), Draw(1).randn(4).half())
    assert not Draw(2).strided(4, 6).is_contiguous()
