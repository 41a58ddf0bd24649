"""Compiling for cards that are not there."""

import os
import stat

import pytest
import torch
import triton
import triton.language as tl
from right import attention, elementwise, reduction
from right.matmul import matmul

import kernelcheck
from kernelcheck import CompileError, compile_report
from kernelcheck.compile import ARCHS, SHARED_LIMIT, kernel_source, wide_share

FLASH = {"Q": "*fp16", "K": "*fp16", "V": "*fp16", "O": "*fp16", "LSE": "*fp32", "q_len": "i32", "kv_len": "i32",
         "group": "i32", "scale": "fp32", "window": "i32"}  # fmt: skip
TILE = {"D": 64, "BM": 64, "BN": 64, "CAUSAL": True, "WINDOW": False}
ADD = {"X": "*fp32", "Y": "*fp32", "OUT": "*fp32", "n": "i32"}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELCHECK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize(
    ("arch", "instruction"),
    [
        (80, "HMMA"),
        (90, "HGMMA"),
        *[
            pytest.param(arch, op, marks=pytest.mark.slow)
            for arch, op in ((86, "HMMA"), (89, "HMMA"), (100, "UTC"), (120, "HMMA"))
        ],
    ],
)
def test_flash_attention_is_ready_for_every_card(arch, instruction):
    report = compile_report(attention.flash, FLASH, TILE, arch=arch)
    kernelcheck.assert_gpu_ready(report, tensor_cores="fp16")
    assert any(op.startswith(instruction) for op in report.ops), sorted(report.ops)
    assert report.dots == 2
    assert report.registers > 0
    assert 0 < report.shared <= SHARED_LIMIT[arch]
    assert report.stack == 0
    assert f".target sm_{arch}" in report.ptx
    assert "LDG" in report.sass
    assert report.triton == triton.__version__
    assert f"flash for sm_{arch}: {report.registers} registers, 0 spills" in str(report)


def test_bf16_and_tf32_dots_are_told_apart():
    signature = {"A": "*bf16", "B": "*bf16", "C": "*bf16", "M": "i32", "N": "i32", "K": "i32"}
    blocks = {"BM": 64, "BN": 64, "BK": 32}
    assert set(compile_report(matmul, signature, blocks).mma) == {"bf16"}
    report = compile_report(matmul, signature | {"A": "*fp32", "B": "*fp32"}, blocks, arch=80)
    assert set(report.mma) == {"tf32"}
    assert "cvt.rna.tf32" not in report.ptx, "floats.to_tf32 cuts because the compiled kernel does not round"


@pytest.mark.slow
def test_bf16_on_blackwell():
    signature = {"A": "*bf16", "B": "*bf16", "C": "*bf16", "M": "i32", "N": "i32", "K": "i32"}
    report = compile_report(matmul, signature, {"BM": 128, "BN": 64, "BK": 64}, arch=100, aligned=set("ABCMNK"))
    assert set(report.mma) == {"bf16"}


def test_wide_loads_need_to_know_the_row_length():
    signature = {"X": "*fp16", "W": "*fp16", "OUT": "*fp16", "n": "i32", "eps": "fp32"}
    narrow = compile_report(reduction.rms_norm, signature, {"BLOCK": 4096})
    with pytest.raises(AssertionError, match="only 0 of 128 bytes are loaded 128 bits at a time"):
        kernelcheck.assert_gpu_ready(narrow)
    wide = compile_report(reduction.rms_norm, signature, {"BLOCK": 4096}, aligned={"X", "W", "OUT", "n"})
    kernelcheck.assert_gpu_ready(wide)
    assert wide_share(wide.loads) == (128, 128)


def test_reports_are_kept_and_a_broken_or_unwritable_cache_only_costs_time(cache):
    first = compile_report(elementwise.add, ADD, {"BLOCK": 128})
    again = compile_report(elementwise.add, ADD, {"BLOCK": 128})
    assert (first.cached, again.cached) == (False, True)
    assert (first.registers, first.sass) == (again.registers, again.sass)
    assert not compile_report(elementwise.add, ADD, {"BLOCK": 256}).cached
    (file,) = [f for f in cache.iterdir() if "add-sm90" in f.name][:1]
    for f in cache.iterdir():
        f.write_text("{broken")
    assert not compile_report(elementwise.add, ADD, {"BLOCK": 128}).cached
    assert file.suffix == ".json"
    assert not list(cache.glob("*.tmp"))
    os.environ["KERNELCHECK_CACHE"] = str(file / "not-a-folder")
    assert compile_report(elementwise.add, ADD, {"BLOCK": 128}).registers == first.registers
    assert stat.S_ISREG(file.stat().st_mode)


def test_rejections_are_kept_too(cache):
    from wrong.illegal import VECTORS, uses_a_dict

    for _ in range(2):
        with pytest.raises(CompileError, match="uses_a_dict for sm_90"):
            compile_report(uses_a_dict, VECTORS, {"BLOCK": 64})
    assert len(list(cache.iterdir())) == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"arch": 75},
            r"arch must be one of 80, 86, 89, 90, 100, 120, got 75. Triton makes no tensor-core code for 75",
        ),
        (
            {"signature": {"X": "*fp32"}},
            r"add takes X, Y, OUT, n, BLOCK; missing from signature or constexprs: Y, OUT, n",
        ),
        ({"constexprs": {"BLOCK": 64, "SIZE": 1}}, r"not its parameters: SIZE"),
        ({"constexprs": {"BLOCK": 64, "n": 1}}, r"n: in signature and in constexprs"),
        ({"constexprs": {"BLOCK": [1]}}, r"constexpr BLOCK must be a number"),
        ({"aligned": {"Z"}}, r"aligned names Z, which add does not take"),
        ({"kernel": print}, r"is not a Triton kernel: decorate the function with @triton.jit"),
    ],
)
def test_bad_arguments_say_what_to_do(change, says):
    arguments = {"kernel": elementwise.add, "signature": ADD, "constexprs": {"BLOCK": 64}} | change
    with pytest.raises(ValueError, match=says):
        compile_report(**arguments)


def test_all_archs_have_a_limit():
    assert set(ARCHS) == set(SHARED_LIMIT)


SCALE = tl.constexpr(2.5)
KIND = tl.float16


@triton.jit
def _helper(x):
    return (x * SCALE).to(KIND)


@triton.jit
def refers_to_things(X, OUT, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(OUT + i, _helper(tl.load(X + i)) + tl.cdiv(BLOCK, 2))


def test_the_source_sent_to_the_compiler_stands_alone():
    source = kernel_source(refers_to_things)
    assert "SCALE = tl.constexpr(2.5)" in source
    assert "def _helper(x):" in source
    assert source.index("def _helper") < source.index("def refers_to_things")
    assert "import torch" not in source
    assert compile_report(refers_to_things, {"X": "*fp32", "OUT": "*fp16"}, {"BLOCK": 64}).registers > 0


def test_launch_signature_specialises_as_a_launch_does():
    x = torch.zeros(64, dtype=torch.float16)
    signature, constexprs, aligned = kernelcheck.launch_signature(reduction.rms_norm, x, x, x, 64, eps=1e-6, BLOCK=64)
    assert signature == {"X": "*fp16", "W": "*fp16", "OUT": "*fp16", "n": "i32", "eps": "fp32"}
    assert constexprs == {"BLOCK": 64}
    assert aligned == {"X", "W", "OUT", "n"}
    _, constexprs, aligned = kernelcheck.launch_signature(reduction.rms_norm, x[1:], x, x, 1, eps=1e-6, BLOCK=64)
    assert constexprs == {"BLOCK": 64, "n": 1}
    assert aligned == {"W", "OUT"}


def test_a_compiler_that_takes_too_long_is_stopped():
    with pytest.raises(CompileError, match=r"add was not compiled within 0.01 s"):
        compile_report(elementwise.add, ADD, {"BLOCK": 128}, timeout=0.01)
