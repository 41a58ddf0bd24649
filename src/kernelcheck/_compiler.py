"""The compiling process of compile.py: a job on standard input, the answer in FOLDER/answer.json.

Imports Triton without TRITON_INTERPRET, and no torch: half a second instead of three.
"""

import collections
import importlib.util
import json
import pathlib
import re
import subprocess
import sys
import time

from . import _triton

_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,5}\*/\s+(?:@!?U?P\w+ )?([A-Z][A-Z0-9_.]*)", re.M)
# mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32, wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16
_MMA = re.compile(
    r"(?:^|\s)(?:wg)?mma(?:_async|\.mma_async)?(?:\.sync)?(?:\.aligned)?\.m\d+n\d+k\d+(?:\.row\.col)?(?:\.satfinite)?"
    r"\.\w+\.(\w+)\.\w+"
)
_TCGEN = re.compile(r"tcgen05\.mma\.\S*kind::(\w+)")
_DTYPES = {
    "f16": "fp16",
    "bf16": "bf16",
    "tf32": "tf32",
    "s8": "int8",
    "u8": "uint8",
    "i8": "int8",
    "e4m3": "fp8e4nv",
    "e5m2": "fp8e5",
    "f64": "fp64",
    "f8f6f4": "fp8",
}


def main(folder: pathlib.Path) -> None:
    job = json.load(sys.stdin)
    try:
        answer = build(job, folder)
    except Exception as error:
        answer = {"error": f"{job['kernel']} for sm_{job['arch']}: {_message(error)}"}
    (folder / "answer.json").write_text(json.dumps(answer))


def _message(error: BaseException) -> str:
    """What the compiler says, from the innermost error: the outer ones repeat the calls that led there."""
    inner = error
    while inner.__cause__ is not None:
        inner = inner.__cause__
    text = str(inner).strip() or type(inner).__name__
    return text if inner is error or str(error).strip() in text else f"{str(error).strip()}\n{text}"


def build(job: dict, folder: pathlib.Path) -> dict:
    import triton
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    path = folder / "kernel.py"
    path.write_text(job["source"])
    spec = importlib.util.spec_from_file_location("kernel", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["kernel"] = module
    spec.loader.exec_module(module)
    kernel = getattr(module, job["kernel"])

    names = list(kernel.arg_names)
    values = {
        name: tl.dtype(value["dtype"]) if isinstance(value, dict) else value
        for name, value in job["constexprs"].items()
    }
    signature = {name: job["signature"].get(name, "constexpr") for name in names}
    source = ASTSource(
        fn=kernel,
        signature=signature,
        constexprs=values,
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in job["aligned"]},
    )
    start = time.perf_counter()
    compiled = triton.compile(
        source,
        target=GPUTarget("cuda", job["arch"], 32),
        options={"num_warps": job["num_warps"], "num_stages": job["num_stages"]},
    )
    seconds = time.perf_counter() - start
    cubin = folder / "kernel.cubin"
    cubin.write_bytes(compiled.asm["cubin"])
    sass = _dump(cubin, "--dump-sass")
    usage = re.search(r"REG:(\d+) STACK:(\d+)", _dump(cubin, "--dump-resource-usage"))
    ops = collections.Counter(_INSTRUCTION.findall(sass))
    ptx = compiled.asm["ptx"]
    mma = collections.Counter(_DTYPES.get(kind, kind) for kind in (*_MMA.findall(ptx), *_TCGEN.findall(ptx)))
    if set(re.findall(r"tt\.dot.*?x(bf16|f16)>", compiled.asm["ttir"])) == {"bf16"} and "fp16" in mma:
        mma["bf16"] += mma.pop("fp16")  # tcgen05 has one kind, f16, for both
    return {
        "kernel": job["kernel"],
        "arch": job["arch"],
        "num_warps": job["num_warps"],
        "num_stages": job["num_stages"],
        "registers": int(usage[1]),
        "spills": sum(n for op, n in ops.items() if op.startswith(("LDL", "STL"))),
        "stack": int(usage[2]),
        "shared": compiled.metadata.shared,
        "dots": len(re.findall(r"\btt\.dot(?:_scaled)?\b", compiled.asm["ttir"])),
        "bytes_per_thread": _largest_tile(compiled.asm["ttir"]) // (32 * job["num_warps"]),
        "mma": dict(mma),
        "loads": {op: n for op, n in ops.items() if op.startswith(("LDG.", "LDGSTS", "UTMALDG"))},
        "stores": {op: n for op, n in ops.items() if op.startswith(("STG", "UTMASTG"))},
        "ops": dict(ops),
        "ptx": ptx,
        "sass": sass,
        "seconds": seconds,
        "triton": triton.__version__,
    }


def _largest_tile(ttir: str) -> int:
    """Bytes of the largest tile that a load fills: `tt.load %p ... : tensor<64x64x!tt.ptr<f16>>`."""
    sizes = [0]
    for shape, bits in re.findall(r"tt\.(?:descriptor_)?load[^\n]*tensor<([\dx]+)x(?:!tt\.ptr<)?[a-z]+(\d+)", ttir):
        elements = 1
        for n in shape.split("x"):
            elements *= int(n)
        sizes.append(elements * max(int(bits), 8) // 8)
    return max(sizes)


def _dump(cubin: pathlib.Path, what: str) -> str:
    return subprocess.run([_triton.tool("cuobjdump"), what, cubin], capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
