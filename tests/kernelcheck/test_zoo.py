"""Every wrong kernel is caught, by the layer that should catch it, with the words that it should use."""

import pytest
import torch
from right import attention, compare, wide
from wrong.illegal import REJECTED, UNFIT
from wrong.mutants import MUTANTS
from wrong.own import WRONG

import kernelcheck


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("KERNELCHECK_CACHE", str(tmp_path_factory.getbasetemp() / "kernelcheck-cache"))


def _by_layer(layer):
    return [pytest.param(m, id=m.name) for m in MUTANTS if m.layer == layer]


@pytest.mark.parametrize("mutant", _by_layer("fault"))
def test_fault_of_a_mutant(mutant):
    _, case = mutant.load()
    with pytest.raises(kernelcheck.KernelFault) as caught, kernelcheck.checked():
        case.run(case.inputs(torch.float32))
    assert (caught.value.kind, mutant.says in str(caught.value)) == (mutant.kind, True), str(caught.value)


@pytest.mark.parametrize("wrong", WRONG, ids=lambda w: w.name)
def test_fault_of_a_kernel_of_its_own(wrong):
    with pytest.raises(kernelcheck.KernelFault) as caught, kernelcheck.checked():
        wrong.run()
    assert (caught.value.kind, wrong.says in str(caught.value)) == (wrong.kind, True), str(caught.value)


@pytest.mark.parametrize("mutant", _by_layer("reference"))
def test_wrong_result(mutant):
    _, case = mutant.load()
    inputs = case.inputs(torch.float32)
    with kernelcheck.checked():
        found = case.run(inputs)
    problems = compare(case, torch.float32, found, case.reference(wide(inputs)))
    assert any(p.startswith(mutant.says) for p in problems), problems


@pytest.mark.parametrize("mutant", _by_layer("traffic"))
def test_too_much_traffic(mutant):
    module, case = mutant.load()
    if mutant.module == "attention":
        q = attention.qkv(torch.float32, q_len=256, kv_len=256)
        bound, run = attention.flash_bytes(256, 32, 64), lambda: module.run_flash(q)
    else:
        inputs = case.inputs(torch.float32)
        bound, run = 4 * (2 * 5 * 77 + 5 * 77 * ("w" in inputs)), lambda: case.run(inputs)
    with kernelcheck.checked() as t:
        run()
    with pytest.raises(AssertionError, match=rf"x the bound of {bound:,} B \(allowed: 1.05 x\)") as caught:
        kernelcheck.assert_traffic(t, bound)
    assert mutant.says in str(caught.value)


@pytest.mark.parametrize(
    ("kernel", "bug", "signature", "constexprs", "says"), REJECTED, ids=lambda v: getattr(v, "__name__", "")
)
def test_compiler_rejects(kernel, bug, signature, constexprs, says):
    with pytest.raises(kernelcheck.CompileError) as caught:
        kernelcheck.compile_report(kernel, signature, constexprs)
    assert says in str(caught.value)
    assert "kernelcheck" not in str(caught.value), "the message is the compiler's, not our traceback"


@pytest.mark.parametrize(
    ("kernel", "signature", "constexprs", "build", "asked", "says"), [u[2:] for u in UNFIT], ids=[u[0] for u in UNFIT]
)
def test_not_ready_for_the_card(kernel, signature, constexprs, build, asked, says):
    report = kernelcheck.compile_report(kernel, signature, constexprs, **build)
    with pytest.raises(AssertionError) as caught:
        kernelcheck.assert_gpu_ready(report, **asked)
    assert says in str(caught.value)


def test_the_zoo_is_large():
    bugs = [m.bug for m in (*MUTANTS, *WRONG)] + [r[1] for r in REJECTED] + [u[1] for u in UNFIT]
    assert len(bugs) >= 60
    assert len(set(bugs)) >= 30
    assert len({m.name for m in (*MUTANTS, *WRONG)}) == len(MUTANTS) + len(WRONG)
