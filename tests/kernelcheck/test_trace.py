"""The checked run itself: what a fault carries, what may be switched off, and that state comes back."""

import json
import pickle
import signal
import threading

import pytest
import torch
import triton
import triton.language as tl

import kernelcheck
from kernelcheck import KernelFault, faults, state

SHIPPED_TENSOR, SHIPPED_LANGUAGE = dict(vars(tl.tensor)), dict(vars(tl))


@triton.jit
def copy(X, Y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Y + i, tl.load(X + i), mask=i < n)


@triton.jit
def double(X, Y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    tl.store(Y + i, 2 * tl.load(X + i, mask=mask, other=0.0), mask=mask)


def _plain_run_is_right():
    assert state.active() is None
    x, y = torch.randn(100), torch.zeros(100)
    double[(2,)](x, y, 100, BLOCK=64)
    assert torch.equal(y, 2 * x)
    assert all(vars(tl.tensor)[name] is value for name, value in SHIPPED_TENSOR.items())
    assert all(vars(tl)[name] is value for name, value in SHIPPED_LANGUAGE.items())
    assert not {"__bool__", "__index__"} & set(vars(tl.tensor))


def test_a_fault_carries_its_facts():
    with pytest.raises(KernelFault) as caught, kernelcheck.checked():
        copy[(2, 1)](torch.randn(100), torch.zeros(100), 100, BLOCK=64)
    fault = caught.value
    assert fault.kind == faults.OUT_OF_BOUNDS_LOAD
    assert (fault.tensor, fault.shape, fault.kernel, fault.program_id) == ("X", (100,), "copy", (1, 0, 0))
    assert (fault.offset, fault.lanes, fault.active) == (100, 28, 64)
    assert fault.offsets.tolist() == list(range(100, 128))
    assert fault.file == __file__
    assert fault.source == "tl.store(Y + i, tl.load(X + i), mask=i < n)"
    assert str(fault) == (
        f"out-of-bounds load in copy, line {fault.line}, program (1, 0, 0): X, shape [100]: 28 of 64 active lanes "
        "outside; the first reads element 100 (valid: 0 to 99)\n    tl.store(Y + i, tl.load(X + i), mask=i < n)"
    )
    _plain_run_is_right()


def test_a_fault_travels_between_processes():
    with pytest.raises(KernelFault) as caught, kernelcheck.checked():
        copy[(2,)](torch.randn(100), torch.zeros(100), 100, BLOCK=64)
    twin = pickle.loads(pickle.dumps(caught.value))
    assert str(twin) == str(caught.value)
    assert twin.facts() == caught.value.facts()
    facts = json.loads(json.dumps(caught.value.facts()))
    assert (facts["kind"], facts["tensor"], facts["program_id"]) == ("out-of-bounds load", "X", [1, 0, 0])
    assert facts["offsets"] == list(range(100, 128))
    assert facts["message"] == str(caught.value)


def test_bounds_logged_drop_the_lanes_outside():
    x, y = torch.randn(100), torch.zeros(100)
    with kernelcheck.checked(bounds="log") as t:
        copy[(2,)](x, y, 100, BLOCK=64)
    assert torch.equal(x, y)
    assert [f.lanes for f in t.faults] == [28]
    assert t.tensor("X").loaded == 400


def test_an_error_in_a_kernel_leaves_everything_as_it_was():
    @triton.jit
    def broken(X, n):
        tl.store(X + tl.program_id(0), tl.load(X) + tl.arange(0, 4).no_such_method())

    with pytest.raises(Exception, match="no_such_method") as caught, kernelcheck.checked():
        broken[(2,)](torch.zeros(4), 4)
    assert "in broken, line" in caught.value.__notes__[0]
    _plain_run_is_right()


def test_ctrl_c_in_a_kernel_leaves_everything_as_it_was():
    ticks = 0

    @triton.jit
    def endless(X):
        while tl.load(X) == 0.0:
            tl.static_print(tick())

    def tick():
        nonlocal ticks
        ticks += 1
        if ticks == 3:
            signal.raise_signal(signal.SIGINT)
        return ""

    endless.fn.__globals__["tick"] = tick
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background may ignore it
    try:
        with pytest.raises(KeyboardInterrupt), kernelcheck.checked():
            endless[(1,)](torch.zeros(1))
    finally:
        signal.signal(signal.SIGINT, before)
        del endless.fn.__globals__["tick"]
    assert ticks == 3
    _plain_run_is_right()


def test_nested_blocks_each_see_their_own_launches():
    x, y = torch.randn(100), torch.zeros(100)
    with kernelcheck.checked() as outer:
        double[(2,)](x, y, 100, BLOCK=64)
        with pytest.raises(KernelFault), kernelcheck.checked() as inner:
            copy[(2,)](x, y, 100, BLOCK=64)
        assert state.active() is outer
        double[(2,)](x, y, 100, BLOCK=64)
    assert (outer.launches, inner.launches) == (["double", "double"], ["copy"])
    assert outer.traffic == 2 * 800
    _plain_run_is_right()


def test_threads_do_not_disturb_each_other():
    problems = []

    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        for _ in range(15):
            x, y = torch.randn(100, generator=generator), torch.zeros(100)
            double[(2,)](x, y, 100, BLOCK=64)
            if not torch.equal(y, 2 * x) or state.active() is not None:
                problems.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
    with kernelcheck.checked(shuffle=0) as t:
        for thread in threads:
            thread.start()
        for _ in range(15):
            x, y = torch.randn(100), torch.empty(100)
            double[(2,)](x, y, 100, BLOCK=64)
            assert torch.equal(y, 2 * x)
        for thread in threads:
            thread.join()
    assert not problems
    assert len(t.launches) == 15
    assert t.traffic == 15 * 800
    _plain_run_is_right()


def test_races_can_be_logged_or_ignored():
    @triton.jit
    def count(X):
        tl.store(X, tl.load(X) + 1)

    x = torch.zeros(1)
    with kernelcheck.checked(races="log") as t:
        count[(4,)](x)
    assert [f.kind for f in t.faults] == [faults.RACE_READ_WRITE, faults.RACE_WRITE_WRITE, faults.RACE_READ_WRITE] * 3
    assert (t.faults[0].program_id, t.faults[0].other_program) == ((1, 0, 0), (0, 0, 0))
    with kernelcheck.checked(races="ignore") as t:
        count[(4,)](x)
    assert t.faults == []
    with kernelcheck.checked() as t:  # one program after the other, in launches of their own: no race
        for _ in range(4):
            count[(1,)](x)
    assert x.item() == 12


def test_writing_what_is_there_already_is_no_race():
    @triton.jit
    def flag(X):
        tl.store(X, 1.0)

    with kernelcheck.checked():
        flag[(4,)](torch.zeros(1))


def test_order_is_shuffled_by_seed():
    @triton.jit
    def who(OUT):
        tl.atomic_xchg(OUT, tl.program_id(0) * 10 + tl.program_id(1))

    def order(**kwargs):
        with kernelcheck.checked(**kwargs) as t:
            who[(4, 3)](torch.zeros(1, dtype=torch.int32))
        return t.program_ids

    natural = [(x, y, 0) for x in range(4) for y in range(3)]
    assert order() == natural
    assert order(shuffle=1) == order(shuffle=1) != natural
    assert sorted(order(shuffle=1)) == natural
    assert order(shuffle=1) != order(shuffle=2)


def test_outputs_by_name_by_tensor_and_by_default():
    x, y = torch.randn(100), torch.zeros(100)
    with kernelcheck.checked():  # y was there before, so a part may be kept
        double[(1,)](x, y, 50, BLOCK=64)
    for outputs in (["Y"], [y]):
        with pytest.raises(KernelFault, match=r"Y, shape .100.: 50 of 100 elements were written by no program"), \
             kernelcheck.checked(outputs=outputs):  # fmt: skip
            double[(1,)](x, y, 50, BLOCK=64)
    with pytest.raises(KernelFault, match="unwritten output in double: Y"), kernelcheck.checked():
        double[(1,)](x, torch.empty(100), 50, BLOCK=64)
    with kernelcheck.checked(outputs=()):
        double[(1,)](x, torch.empty(100), 50, BLOCK=64)
    with kernelcheck.checked():  # torch fills the rest
        z = torch.empty(100)
        z.zero_()
        double[(1,)](x, z, 50, BLOCK=64)
    with pytest.raises(ValueError, match="outputs names OUT, which no kernel of this run was given; it saw: X, Y"), \
         kernelcheck.checked(outputs=["OUT"]):  # fmt: skip
        double[(2,)](x, y, 100, BLOCK=64)


def test_two_launches_may_fill_one_output():
    x = torch.randn(100)
    with kernelcheck.checked():
        y = torch.empty(100)
        double[(1,)](x[:50], y[:50], 50, BLOCK=64)
        double[(1,)](x[50:], y[50:], 50, BLOCK=64)
    assert torch.equal(y, 2 * x)


def test_two_views_of_one_tensor_share_its_history():
    x = torch.zeros(64)

    @triton.jit
    def both(A, B):
        i = tl.arange(0, 32)
        if tl.program_id(0) == 0:
            tl.store(A + i, 1.0)
        else:
            tl.store(B + i, 2.0)

    with pytest.raises(KernelFault, match="it writes element 0 of B, which program"), kernelcheck.checked():
        both[(2,)](x[:48], x[16:])


def test_the_same_tensor_under_two_names():
    @triton.jit
    def overshoot(A, B, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(B + i, tl.load(A + i % 8))

    x = torch.zeros(8)
    with pytest.raises(KernelFault) as caught, kernelcheck.checked():
        overshoot[(1,)](x, x, BLOCK=16)
    assert caught.value.tensor == "B"


def test_poison_off_gives_zeros():
    @triton.jit
    def no_other(X, Y, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(Y + i, tl.load(X + i, mask=i < 4) + 1)

    y = torch.zeros(8)
    with kernelcheck.checked(poison=False):
        no_other[(1,)](torch.ones(8), y, BLOCK=8)
    assert y.tolist() == [2] * 4 + [1] * 4
    for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.int8):
        with pytest.raises(KernelFault, match="poison stored") as caught, kernelcheck.checked():
            _keep[(1,)](torch.ones(8).to(dtype), torch.ones(8).to(dtype), BLOCK=8)
        assert (caught.value.lanes, caught.value.tensor) == (4, "Y"), dtype


@triton.jit
def _keep(X, Y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(Y + i, tl.load(X + i, mask=i < 4))


def test_nan_of_the_input_is_not_poison():
    x = torch.ones(8)
    x[1] = torch.nan
    y = torch.zeros(8)

    @triton.jit
    def careful(X, Y, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        x = tl.load(X + i, mask=i < 4)
        tl.store(Y + i, tl.exp(tl.where(i < 4, x, 0.0)))

    with kernelcheck.checked():
        careful[(1,)](x, y, BLOCK=8)
    assert y.isnan().tolist() == [False, True] + [False] * 6


@pytest.mark.parametrize("between", [0.0, float("inf"), float("nan")])
def test_what_lies_between_rows_does_not_hide_poison(between):
    """exp makes another NaN of poison; then it counts that all that was read is finite, and only that."""
    storage = torch.full((2, 8), between)
    x = storage[:, :4]
    x.fill_(1.0)

    @triton.jit
    def careless(X, Y, stride, BLOCK: tl.constexpr):
        row, i = tl.program_id(0), tl.arange(0, BLOCK)
        tl.store(Y + row * BLOCK + i, tl.exp(tl.load(X + row * stride + i, mask=i < 4)))

    with pytest.raises(KernelFault, match="poison stored"), kernelcheck.checked():
        careless[(2,)](x, torch.empty(2, 8), x.stride(0), BLOCK=8)


def test_tables_of_pointers_reach_named_tensors():
    from wrong.own import pointer_table

    weights = [torch.randn(16), torch.randn(16)]
    table = torch.tensor([w.data_ptr() for w in weights])
    out = torch.zeros(32)
    with kernelcheck.checked(names={"w0": weights[0], "w1": weights[1]}) as t:
        pointer_table[(2,)](table, out, BLOCK=16)
    assert torch.equal(out, torch.cat(weights))
    assert t.tensor("w1").loaded == 64


def test_descriptors_pad_and_are_counted():
    from right import matmul

    case = next(c for c in matmul.CASES if c.name == "matmul by descriptor")
    inputs = case.inputs(torch.float16)
    with kernelcheck.checked() as t:
        case.run(inputs)
    assert t.tensor("C").stored == 40 * 56 * 2
    assert t.tensor("A").loaded == 2 * 40 * 72 * 2  # once for each of the two columns of tiles


@pytest.mark.parametrize(
    ("kwargs", "says"),
    [
        ({"races": "warn"}, "races must be 'raise', 'log' or 'ignore'"),
        ({"bounds": "ignore"}, "bounds must be 'raise' or 'log'"),
        ({"outputs": "Y"}, "outputs must be a list"),
    ],
)
def test_bad_arguments_say_what_to_do(kwargs, says):
    with pytest.raises(ValueError, match=says), kernelcheck.checked(**kwargs):
        pass
    _plain_run_is_right()


def test_empty_tensors_and_empty_grids():
    with kernelcheck.checked() as t:
        double[(0,)](torch.zeros(0), torch.empty(0), 0, BLOCK=64)
        double[(1,)](torch.zeros(0), torch.empty(0), 0, BLOCK=64)
    assert t.traffic == 0
    with pytest.raises(KernelFault, match=r"X, shape \[0\]: 64 of 64 active lanes outside.*the tensor is empty"), \
         kernelcheck.checked():  # fmt: skip
        copy[(1,)](torch.zeros(0), torch.empty(0), 0, BLOCK=64)
