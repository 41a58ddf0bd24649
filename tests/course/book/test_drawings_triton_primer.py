"""The primer's figures: every access in them has happened."""

import json
import re

import pytest
import torch

pytest.importorskip("triton")

import kernelcheck

kernelcheck.install()

from course.book.drawings import triton_primer as drawings  # noqa: E402 (Triton's interpreter must be mended first)


@pytest.fixture(scope="module")
def figure():
    torch.manual_seed(0)
    return drawings.missing_mask("C.")


def test_a_mask_decides_what_is_touched():
    good, none, wide, narrow = (drawings.record(kernel, 256) for kernel in drawings.MASKS.values())
    assert len(good.accesses) == 12
    assert good.right
    assert not any(access.beyond for access in good.accesses)
    assert max(access.beyond for access in none.accesses) == 24
    assert max(access.beyond for access in wide.accesses) == 1
    assert narrow.unwritten == 1
    assert not narrow.right


def test_the_figure_holds_twelve_runs_and_says_how_each_ends(figure):
    data = json.loads(re.search(r'<script type="application/json">(.*?)</script>', figure.html, re.S)[1])
    steps = [3 * -(-1000 // block) + 1 for block in drawings.BLOCKS]
    assert [len(labels) for labels in data["runs"]] == 4 * steps
    assert len(data["wide"]["s"]) == sum(map(len, data["runs"])) == len(data["narrow"]["s"])
    ends = [labels[-1] for labels in data["runs"]]
    assert all("the sum is right" in end for end in ends[:3])
    assert all("outside the tensors" in end for end in ends[3:9])
    assert all("1 element was never written" in end for end in ends[9:])
    assert all(labels[0].endswith("nothing touched yet.") for labels in data["runs"])


def test_strides_show_faults_only_where_they_are():
    rows = torch.randn(5, 16)[:, :12]
    who, faults = drawings.touched_by(drawings.row_mean_n, rows, 16)
    assert who.shape == (5, 16)
    assert faults > 0
    with pytest.raises(AssertionError):  # a right kernel that is not right
        drawings.strides(drawings.row_mean_n, rows, 16, "C.")


def test_tiles_and_softmax():
    assert drawings.tiles("C.").name == "fig-tiles"
    volumes = drawings.softmax_volumes()
    assert volumes["one load"] == 2 * 8 * 100 * 4
    assert volumes["three loads"] == 4 * 8 * 100 * 4
    assert "five steps" in drawings.softmax_bytes(volumes, "C.").html
