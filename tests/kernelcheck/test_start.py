"""What `install` has done before the first kernel comes."""

import subprocess
import sys

FORK = """
import sys
import torch
import kernelcheck
kernelcheck.install()
import triton, triton.language as tl
before = set(sys.modules)
state = torch.get_rng_state()
@triton.jit
def double(X, OUT, n, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(OUT + i, 2 * tl.load(X + i, mask=i < n), mask=i < n)
x, out = torch.ones(5), torch.empty(5)
with kernelcheck.checked() as trace:
    double[(1,)](x, out, 5, N=8)
assert out.tolist() == [2.0] * 5
assert trace.launches == ["double"], trace.launches
assert torch.equal(torch.get_rng_state(), state)
print(sorted(set(sys.modules) - before))
"""


def test_the_first_kernel_imports_nothing_more(tmp_path):
    script = tmp_path / "first.py"
    script.write_text(FORK)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_tritons_language_is_as_it_was_after_each_launch():
    """The second launch puts the patches there from a list: what it takes away again is all of them."""
    import torch
    import triton.language as tl
    from right import elementwise

    import kernelcheck

    kernelcheck.install()

    def language():
        owners = (tl, tl.core, tl.math, tl.tensor, tl.dtype)
        return {(owner.__name__, name): value for owner in owners for name, value in vars(owner).items()}

    before = language()
    x, out = torch.ones(8), torch.empty(8)
    for _ in range(3):
        elementwise.add[(1,)](x, x, out, 8, BLOCK=8)
        assert out.tolist() == [2.0] * 8
        after = language()
        assert {key for key in after if after[key] is not before.get(key)} <= {
            ("tensor", "__index__"), ("tensor", "__bool__"), ("tensor", "__repr__"), ("tensor", "__str__"),
            ("tensor", "T"),
        }  # fmt: skip
