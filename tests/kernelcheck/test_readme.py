"""The README's tour runs, and says what the README says it says."""

import os
import pathlib
import re
import subprocess
import sys

import kernelcheck

README = (pathlib.Path(kernelcheck.__file__).parent / "README.md").read_text()
TOUR, COMPILE, _ = re.findall(r"```python\n(.*?)```", README, re.S)
FAULT, POISON, REPORT = re.findall(r"```text\n(.*?)```", README, re.S)
MISTAKE = "i)          # no mask"


def run(code: str, folder: pathlib.Path) -> subprocess.CompletedProcess:
    assert code != TOUR or MISTAKE in code
    (folder / "tour.py").write_text(code)
    env = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"} | {"KERNELCHECK_CACHE": str(folder)}
    command = [sys.executable, "tour.py"]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300)


def test_minute_one(tmp_path):
    assert FAULT in run(TOUR, tmp_path).stderr
    done = run(TOUR.replace(MISTAKE, "i, mask=i < n)"), tmp_path)
    assert POISON.strip() in done.stderr


def test_minutes_two_and_three(tmp_path):
    done = run(TOUR.replace(MISTAKE, "i, mask=i < n, other=0.0)") + COMPILE, tmp_path)
    head, tail = REPORT.split("...\n")
    assert head in done.stdout
    assert tail in done.stdout
    assert "row_sum for sm_90:" in done.stdout
    assert "only 0 of 32 bytes are loaded 128 bits at a time (8 x LDG.E)" in done.stderr


def test_every_public_name_is_there_and_the_faults_are_all_told():
    for name in kernelcheck.__all__:
        assert getattr(kernelcheck, name) is not None
    kinds = {v for k, v in vars(kernelcheck.faults).items() if k.isupper()}
    told = README.lower()
    for kind in kinds:
        for word in kind.replace("data race: ", "").split(", "):
            assert word.split("out-of-bounds ")[-1] in told, kind
