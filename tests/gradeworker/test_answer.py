import torch

from gradeworker.answer import LOADING, Job, Outcome, run
from gradeworker.wire import Build


def outcomes(source, cases=(((1,), {}),), **fields):
    return list(run(Job("x.f", "f", source, cases=list(cases), **fields)))


def test_values_come_in_order():
    got = outcomes("def f(x):\n    return x + 1", [((1,), {}), ((2,), {})])
    assert [(o.index, o.value) for o in got] == [(0, 2), (1, 3)]


def test_one_buffer_handed_out_twice_is_seen():
    source = "import torch\nB = torch.zeros(2)\ndef f(x):\n    B.fill_(x)\n    return B"
    got = outcomes(source, [((1,), {}), ((2,), {})])
    assert got[0].value.tolist() == [2, 2]


def test_a_syntax_error_is_reported_with_its_line():
    (only,) = outcomes("def f(x):\n    return (")
    assert only.index == LOADING
    assert only.error["type"] == "SyntaxError"
    assert only.error["line"] == 2


def test_a_missing_entry_names_it():
    (only,) = outcomes("def g(x):\n    return x")
    assert only.error["type"] == "NameError"
    assert only.error["name"] == "f"


def test_a_name_that_only_the_prelude_gives_does_not_count_as_an_answer():
    (only,) = outcomes("y = 1", prelude="def f(x):\n    return x")
    assert only.error["name"] == "f"


def test_an_error_in_one_case_does_not_end_the_others():
    got = outcomes("def f(x):\n    return 1 // x", [((0,), {}), ((1,), {})])
    assert got[0].error["type"] == "ZeroDivisionError"
    assert got[0].error["line"] == 2
    assert got[1].value == 1


def test_system_exit_is_an_error_not_an_end():
    got = outcomes("def f(x):\n    raise SystemExit(0)")
    assert got[0].error["type"] == "SystemExit"


def test_inputs_come_back_as_the_answer_left_them():
    got = outcomes("def f(x):\n    x += 1\n    return x.sum().item()", [((torch.zeros(2),), {})])
    assert got[0].inputs_after[0][0].tolist() == [1, 1]


def test_generators_are_run_to_their_end_and_prints_are_kept():
    (only,) = outcomes("def f(x):\n    print('hi')\n    yield from range(3)")
    assert only.value == [0, 1, 2]
    assert only.printed == "hi\n"


def test_given_modules_and_built_arguments():
    given = "class Box:\n    def __init__(self, n):\n        self.n = n\n\ndef box(n):\n    return Box(n)\n"
    source = "from course.given.things import box\n\ndef f(x):\n    return x.n + box(1).n"
    got = outcomes(source, [((Build("course.given.things", "box", {"n": 41}),), {})],
                   modules={"course.given.things": given})
    assert got[0].value == 42
    import sys

    assert "course.given.things" not in sys.modules


def test_a_driver_puts_a_class_through_its_paces():
    source = "class f:\n    def __init__(self):\n        self.n = 0\n    def add(self, x):\n        self.n += x"
    driver = "def drive(answer, x):\n    a = answer()\n    a.add(x)\n    a.add(x)\n    return a.n"
    assert outcomes(source, [((3,), {})], driver=driver)[0].value == 6


def test_outcomes_survive_the_wire():
    outcome = Outcome(3, [torch.ones(2)], ((1,), {}), None, "out")
    back = Outcome.from_bytes(outcome.to_bytes())
    assert back.index == 3
    assert back.value[0].tolist() == [1, 1]
    assert back.printed == "out"
