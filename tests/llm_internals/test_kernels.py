"""The Triton kernels without a GPU: in the interpreter, through the compiler, and where Triton is missing.

Each in a process of its own, since Triton decides at its first import whether it interprets or compiles.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent

COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from llm_internals.kernels import rms_norm, rope, swiglu

aligned = [["tt.divisibility", 16]]
p, i, f = "*bf16", "i32", "fp32"
cases = [
    (rms_norm.rms_norm_kernel, [p, p, p, i, f], {"BLOCK": 4096}, [0, 1, 2, 3]),
    (rope.rope_kernel, [p, p, p, p, "*fp32", "*fp32", i, i, i, i, i, i, i],
     {"HEADS": 32, "KV_HEADS": 8, "HALF": 64}, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12]),
    (swiglu.swiglu_kernel, [p, p, p, i], {"BLOCK": 1024}, [0, 1, 2, 3]),
]
for arch in (80, 90):
    for kernel, types, constants, aligned_at in cases:
        names = kernel.arg_names
        signature = dict(zip(names, types)) | dict.fromkeys(constants, "constexpr")
        source = ASTSource(kernel, signature, {(names.index(n),): v for n, v in constants.items()},
                           {(at,): aligned for at in aligned_at})
        built = triton.compile(source, target=GPUTarget("cuda", arch, 32), options={"num_warps": 8})
        wide = built.asm["ptx"].count("ld.global.v4") + built.asm["ptx"].count("ld.global.v2")
        print("compiled", kernel.__name__, arch, len(built.asm["cubin"]), wide)
"""

WITHOUT_TRITON = """
import sys, importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "triton" else real(name, *rest)
sys.modules["triton"] = None
from llm_internals import kernels, model, ops
assert ops.backends()["rms_norm"] == ("torch",), ops.backends()
print(kernels.MISSING)
"""


def run(*arguments, **environment):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, cwd=HERE.parents[1], timeout=300
    )


def test_kernels_in_the_interpreter():
    check = str(HERE / "kernels" / "check_interpreted.py")
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", check, TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) >= 50
    assert "skipped" not in done.stdout


def test_kernels_compile_for_sm_80_and_sm_90(tmp_path):
    """Into machine code, with loads of 8 or 16 bytes a lane where rows are aligned."""
    done = run("-c", COMPILE, TRITON_CACHE_DIR=str(tmp_path), TRITON_INTERPRET="0", TRITON_DEFAULT_FP_FUSION="1")
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("compiled")]
    assert len(lines) == 6
    for _, name, arch, cubin_bytes, wide_loads in lines:
        assert int(cubin_bytes) > 1000, (name, arch)
        assert int(wide_loads) > 0, (name, arch)


def test_without_triton_everything_imports():
    done = run("-c", WITHOUT_TRITON)
    assert done.returncode == 0, done.stderr
    assert "Triton is not installed" in done.stdout
    assert "pip install 'triton>=3.6,<3.10'" in done.stdout
