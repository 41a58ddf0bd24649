"""Chapter 03's figures, drawn from a small model with random weights; what would mislead is refused."""

import base64
import json
import re

import pytest
import torch

from course.book.drawings import transformer_block as drawings
from llm_internals import ops
from llm_internals.config import ModelConfig
from llm_internals.model import Llama, weight_shapes
from llm_internals.transformer_block import causal_mask

CONFIG = ModelConfig(vocab_size=41, hidden_size=36, intermediate_size=24, num_layers=3, num_heads=9, num_kv_heads=3,
                     head_dim=4, rope_theta=100.0)  # fmt: skip


class Letters:
    """A tokenizer of single letters."""

    def encode(self, text):
        return [ord(c) % 41 for c in text]

    def decode(self, ids):
        return chr(97 + ids[0] % 26)


@pytest.fixture(scope="module")
def model():
    draw = torch.Generator().manual_seed(3)
    weights = {name: torch.randn(shape, generator=draw) * 0.4 for name, shape in weight_shapes(CONFIG).items()}
    return Llama(CONFIG, weights)


@pytest.fixture(scope="module")
def run(model):
    return drawings.Run.record(model, Letters(), "abcdefghij")


def data_of(display):
    return json.loads(re.search(r'<script type="application/json">(.*?)</script>', display.html, re.S)[1])


def test_a_run_keeps_stream_and_maps(run):
    assert run.streams.shape == (7, 10, 36)
    assert run.maps.shape == (3, 9, 10, 10)
    assert torch.allclose(run.maps.sum(-1), torch.ones(3, 9, 10), atol=1e-5)


def test_the_dial_computes_the_scores_of_the_model(run, model):
    head = drawings.dial_head(run, model.rope_frequencies, "a head", 1, 4, 8, 5)
    assert len(head["k"]) == len(head["weight"]) == 9
    call = run.calls["attention"][1].arguments
    real = (call["q"][8, 4] @ call["k"][5, 1] * call["scale"]).item()
    assert head["by_distance"][3] == pytest.approx(real, abs=1e-4)
    parts = [drawings.parts_of(head, model.rope_frequencies.tolist(), pair)[5] for pair in range(2)]
    assert sum(parts) == pytest.approx(real, abs=1e-4)
    assert drawings.swing(head, model.rope_frequencies.tolist(), 0) >= 0


def test_the_dial_is_refused_when_its_first_head_does_not_look_back(run, model):
    head = drawings.dial_head(run, model.rope_frequencies, "a head", 1, 4, 8, 5)
    flat = {**head, "by_distance": [1.0] + [0.0] * 40}
    with pytest.raises(AssertionError, match="word before"):
        drawings.rope_dial(run, model.rope_frequencies.tolist(), [flat, head, head], "C.")
    good = {**head, "by_distance": [0.0, 9.0] + [0.0] * 39}
    calm = {**head, "by_distance": [0.1] * 41}
    shown = drawings.rope_dial(run, model.rope_frequencies.tolist(), [good, head, calm], "C.")
    assert len(data_of(shown)["heads"]) == 3
    assert "arrow" not in shown.caption
    assert shown.html.count("cf-svg") == 2


def test_the_wall_holds_every_weight_of_every_head(run):
    named = [("letters", 0, 0, "does something"), ("letters", 2, 8, "does another")]
    shown = drawings.wall({"letters": run}, named, "C.")
    data = data_of(shown)
    raw = base64.b64decode(data["sentences"][0]["maps"])
    assert len(raw) == 27 * 55
    at = (1 * 9 + 4) * 55 + 7 * 8 // 2 + 3  # layer 1, head 4, query 7, key 3
    assert raw[at] == round(run.maps[1, 4, 7, 3].item() * 255)
    assert [one["layer"] for one in data["named"]] == [0, 2]


def test_hiding_a_key_changes_the_last_row_only_through_that_layer(model):
    ids = torch.tensor([1, 2, 3, 4, 5])
    plain = model(ids)[-1]
    assert not torch.allclose(drawings.without_key(model, ids, 1, layer=1), plain, atol=1e-4)
    assert torch.allclose(drawings.without_key(model, ids, 1, layer=99), plain, atol=1e-5)


def test_every_way_to_group_nine_heads_is_ranked(run):
    _, place, count, _ = drawings.groupings(run.maps, 3)
    assert count == 280
    assert 1 <= place <= 280
    maps = torch.rand(1, 9, 6, 6).tril()
    maps[:, 3:6] = maps[:, 3:4] + torch.rand(1, 3, 6, 6) * 0.01
    maps[:, :3] = maps[:, :1] + torch.rand(1, 3, 6, 6) * 0.01
    maps[:, 6:] = maps[:, 6:7] + torch.rand(1, 3, 6, 6) * 0.01
    assert drawings.groupings(maps, 3)[1] == 1


def test_a_watched_place_takes_a_share(model):
    stream, shares = drawings.watch(model, torch.tensor([1, 2, 3, 4]), (0, 1))
    assert stream.shape == (7, 4, 36)
    assert all(0 < share < 1 for share in shares)


def test_heads_are_scored_by_what_they_look_at(run):
    previous = torch.zeros(1, 1, 10, 10)
    previous[0, 0, range(1, 10), range(9)] = 1
    back = drawings.Run(run.tokens, {}, run.streams, previous)
    assert drawings.previous_token_score(back, 0, 0) == 1
    induction = torch.zeros(1, 1, 10, 10)
    induction[0, 0, range(5, 10), range(1, 6)] = 1
    again = drawings.Run(run.tokens, {}, run.streams, induction)
    assert drawings.induction_score(again, 0, 0, period=5) == 1


def test_the_block_and_its_shapes(run, model):
    assert "[10, 9, 4]" in drawings.block(run, CONFIG, "C.").html
    rows = drawings.shapes(run.calls, run.calls, (41, 41))
    assert ("q", "10×9×4", "10×9×4") in rows
    assert rows[-1] == ("logits of the last position", "1×41", "1×41")


def test_an_odd_token_must_be_odd(run):
    with pytest.raises(AssertionError, match="stand out"):
        drawings.stream(run, odd=4, hump=range(0, 1), caption="C.")


def test_bars_that_would_mislead_are_refused():
    assert drawings.weights(["a", " b"], [0.2, 0.8], 1, "C.").name == "fig-weights"
    with pytest.raises(AssertionError):
        drawings.weights(["a", " b"], [0.8, 0.2], 1, "C.")
    assert drawings.hidden(["a", "b"], [3.0, 1.0], 1, "C.").name == "fig-hide"
    with pytest.raises(AssertionError):
        drawings.hidden(["a", "b"], [1.0, 3.0], 1, "C.")
    assert "first: 0.44" in drawings.sink([("first", 0.44, "blue")], "C.").html


def test_a_lens_needs_its_jump():
    before, after = torch.tensor([900, 900, 800, 700, 1]), torch.tensor([100, 100, 80, 60, 9])
    rank = {"Mary": before, "John": after}
    with pytest.raises(AssertionError):
        drawings.lens(rank, layer=1, vocab_size=41, caption="C.")
    ours = torch.tensor([900, 900, 900, 90, 1])
    theirs = torch.tensor([100, 100, 100, 80, 9])
    assert drawings.lens({"Mary": ours, "John": theirs}, layer=1, vocab_size=41, caption="C.").name == "fig-lens"


def test_the_largest_product_is_one_that_may_be_seen():
    q, k = torch.zeros(2, 1, 4), torch.zeros(2, 1, 4)
    q[0], k[1] = 1.0, 5.0  # query 0 may not see key 1
    q[1], k[0] = 1.0, 2.0
    with ops.record("attention") as calls:
        ops.attention(q, k, k, 0.5)
    assert drawings.largest_product(calls, 1) == 20


def test_counts_and_weights_of_a_norm():
    assert drawings.count_for(torch.tensor([10.0, 1, 1, 1])) == 1
    flat, few = drawings.only_two(torch.tensor([1.0, 1, 9, 1, -5]))
    assert sorted(few) == [2, 4]
    assert flat.tolist() == [1, 1, 9, 1, -5]


def test_a_mask_is_shown_only_where_it_matters(run):
    assert causal_mask(3, 3).sum() == 6
    shown = None
    for layer in range(3):
        for head in range(9):
            try:
                shown = drawings.mask(run, layer, head, 6, "C.")
            except AssertionError:
                continue
    assert shown is not None


def test_waves_and_groups_are_drawn(run):
    assert drawings.turns(torch.tensor([1.0]))[0] == pytest.approx(6.283, abs=1e-3)
    assert "8,192" in drawings.waves({"a": [6, 60], "b": [6, 90], "c": [6, 99]}, 8192, "C.").html
    assert "Q4 K1" in drawings.groups(run, 0, 3, "C.").html
