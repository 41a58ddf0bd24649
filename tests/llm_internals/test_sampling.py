import pytest
import torch

from llm_internals import ops
from llm_internals.sampling import sample


def generators(*seeds):
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def test_greedy():
    logits = torch.tensor([[0.0, 3.0, 1.0], [5.0, 4.0, 5.5]])
    assert ops.sample(logits).tolist() == [1, 2]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_follow_the_softmax(temperature):
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, -torch.inf])
    p = torch.softmax(logits / temperature, dim=0)
    (generator,) = generators(0)
    n = 20_000
    draws = sample(logits.expand(n, -1), temperature, [generator] * n)
    counts = torch.bincount(draws, minlength=5)
    sigma = (n * p * (1 - p)).sqrt()
    assert ((counts - n * p).abs() <= 4.5 * sigma).all()
    assert counts[4] == 0


def test_a_rows_draw_does_not_depend_on_its_neighbours():
    logits = torch.randn(4, 50, generator=torch.Generator().manual_seed(0))
    together = sample(logits, 1.0, generators(1, 2, 3, 4))
    alone = [sample(logits[i : i + 1], 1.0, generators(i + 1))[0] for i in range(4)]
    assert together.tolist() == [int(token) for token in alone]


def test_bad_requests():
    with pytest.raises(ValueError, match=r"0 \(greedy\) or positive, got -1"):
        sample(torch.zeros(1, 3), -1)
    with pytest.raises(ValueError, match="Generator per row"):
        sample(torch.zeros(2, 3), 1.0, generators(1))
    with pytest.raises(ValueError, match="Generator per row"):
        sample(torch.zeros(2, 3), 1.0)


@pytest.mark.parametrize("temperature", [1e-300, 1e-46, 1e-40, 1e-38, 1e-20, 1e-6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_tiny_temperature_is_greedy(temperature, dtype):
    logits = (torch.randn(5, 400, generator=torch.Generator().manual_seed(1)) * 30).to(dtype)
    logits[0, :] = -torch.inf
    logits[0, 7] = -1.0
    logits[1:, 123] = 200.0
    assert sample(logits, temperature, generators(*range(5))).tolist() == logits.argmax(-1).tolist()


@pytest.mark.parametrize("temperature", [float("nan"), float("inf"), float("-inf")])
def test_a_temperature_that_is_no_number_is_refused(temperature):
    with pytest.raises(ValueError, match="temperature must be a finite number, got"):
        sample(torch.zeros(1, 3), temperature, generators(1))
