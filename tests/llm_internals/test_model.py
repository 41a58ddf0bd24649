"""Logits against transformers: on SmolLM2 and on small random Llamas in many layouts."""

import pytest
import torch
from transformers import LlamaForCausalLM

from llm_internals.checkpoint import load
from llm_internals.model import Llama
from llm_internals.preparation import prepare_smollm2

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
TEXT = "The capital of France is Paris. It lies on the river Seine, and 2 million people live there.\n\nQ: Why?"


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie_word_embeddings": True},
        {"num_key_value_heads": 6},
        {"num_key_value_heads": 1},
        {"head_dim": 16},
        {"head_dim": 6, "num_attention_heads": 3, "num_key_value_heads": 3},
        {"hidden_size": 60, "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 12},
        {"rope_parameters": LLAMA3_ROPE},
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 5000.0, "factor": 3.0}},
        {"rms_norm_eps": 1e-2},
        {"num_hidden_layers": 1},
    ],
    ids=str,
)
def test_logits_equal_transformers_on_random_llamas(write_hf_llama, changes):
    folder, reference = write_hf_llama(seed=len(str(changes)), **changes)
    model = load(folder, device="cpu").model
    ids = torch.randint(0, 97, (150,), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = reference(ids[None]).logits[0]
    assert expected.std() > 0.1  # a model that says something
    torch.testing.assert_close(model(ids), expected, atol=1e-4, rtol=0)
    torch.testing.assert_close(model(ids, last_only=True), expected[-1:], atol=1e-4, rtol=0)
    assert model.num_parameters == reference.num_parameters()


def test_bf16_stays_near_fp32(write_hf_llama):
    folder, reference = write_hf_llama(dtype=torch.bfloat16)
    model = load(folder, device="cpu").model
    assert model.dtype == torch.bfloat16
    ids = torch.arange(40)
    with torch.no_grad():
        theirs = (reference(ids[None]).logits[0].float() - reference.float()(ids[None]).logits[0]).abs().max()
    ours = (model(ids).float() - load(folder, device="cpu", dtype="float32").model(ids)).abs().max()
    assert ours < 2 * theirs


@pytest.fixture(scope="module")
def hf_smollm2():
    return LlamaForCausalLM.from_pretrained(prepare_smollm2(), dtype=torch.float32).eval()


def test_logits_equal_transformers_on_smollm2(smollm2, hf_smollm2):
    ids = torch.tensor(smollm2.tokenizer.encode(TEXT))
    with torch.no_grad():
        expected = hf_smollm2(ids[None]).logits[0]
    torch.testing.assert_close(smollm2.model(ids), expected, atol=1e-3, rtol=0)
    assert smollm2.model.num_parameters == hf_smollm2.num_parameters() == 134_515_008


def test_the_answer_is_paris(smollm2):
    ids = smollm2.tokenizer.encode("The capital of France is")
    assert smollm2.tokenizer.decode(smollm2.model(torch.tensor(ids), last_only=True).argmax(-1)) == " Paris"


def test_explicit_positions_only_matter_by_distance(small_llama):
    ids = torch.arange(10)
    torch.testing.assert_close(small_llama(ids), small_llama(ids, positions=torch.arange(10) + 37), atol=1e-4, rtol=0)
    assert (small_llama(ids) - small_llama(ids, positions=torch.arange(10) * 3)).abs().max() > 1e-2


def test_later_tokens_never_change_earlier_logits(small_llama):
    a, b = torch.tensor([1, 2, 3, 4, 5]), torch.tensor([1, 2, 3, 90, 91])
    torch.testing.assert_close(small_llama(a)[:3], small_llama(b)[:3])


@pytest.mark.parametrize("bad", [torch.tensor([[1, 2]]), torch.tensor([]), torch.tensor([1.0]), torch.tensor(3)])
def test_input_ids_must_be_packed_integers(small_llama, bad):
    with pytest.raises(ValueError, match="non-empty 1-D integer tensor"):
        small_llama(bad)


def test_positions_must_match(small_llama):
    with pytest.raises(ValueError, match="shape of input_ids"):
        small_llama(torch.tensor([1, 2]), positions=torch.tensor([1]))


def test_wrong_or_missing_weights_are_named(small_llama):
    with pytest.raises(ValueError, match=r"no tensor 'model.embed_tokens.weight'"):
        Llama(small_llama.config, {})
    with pytest.raises(ValueError, match=r"embed_tokens.weight has shape \[2, 3\], the config asks for \[97, 48\]"):
        Llama(small_llama.config, {"model.embed_tokens.weight": torch.zeros(2, 3)})
