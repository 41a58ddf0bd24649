"""benchmarks/gpu.py on a machine without a card, and how it compares results."""

import importlib.util
import pathlib
import subprocess
import sys

import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("gpu_script", ROOT / "benchmarks" / "gpu.py")
gpu = importlib.util.module_from_spec(spec)
spec.loader.exec_module(gpu)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a card")
def test_without_a_card_it_says_so_and_writes_nothing(tmp_path):
    out = tmp_path / "gpu.json"
    script = [sys.executable, ROOT / "benchmarks" / "gpu.py", "--out", out]
    done = subprocess.run(script, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.strip(), out.exists()) == (0, gpu.NO_CARD, False)


def _job(name, special=False):
    _, case, dtype, special = next(j for j in gpu.jobs() if j[1].name == name and j[3] == special)
    return case, dtype, case.run(gpu.make_inputs(case, dtype, special))


def test_rounding_is_no_difference_and_more_is():
    case, dtype, found = _job("softmax")
    near = {n: v * (1 + torch.finfo(dtype).eps) for n, v in found.items()}
    assert gpu.differences(case, dtype, near, found) == []
    far = {n: v + 1e-3 for n, v in found.items()}
    assert gpu.differences(case, dtype, far, found)[0].startswith("out: error 0.001")


def test_nan_and_infinity_are_compared_element_by_element():
    case, dtype, found = _job("softmax", special=True)
    assert any(v.isnan().any() for v in found.values())
    assert gpu.differences(case, dtype, found, found) == []
    other = {n: v.nan_to_num(0.5) for n, v in found.items()}
    assert "card 0.5 and interpreter nan at (" in gpu.differences(case, dtype, other, found)[0]


def test_jobs_cover_the_course_and_every_right_kernel():
    from right import all_cases

    names = {case.name for _, case, _, _ in gpu.jobs()}
    assert names >= {case.name for case in all_cases()}
    assert {"course: rms_norm", "course: apply_rope", "course: swiglu"} <= names
    assert len({label for label, *_ in gpu.jobs()}) == len(gpu.jobs())
