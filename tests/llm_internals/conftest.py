"""Shared by the tests of the library: the real model, and random Llamas that transformers wrote."""

import pytest
import torch

from llm_internals.checkpoint import load


@pytest.fixture(scope="session")
def smollm2():
    """The real model, prepared on first use. Never skipped: without it the library is untested."""
    return load("smollm2-135m", device="cpu")


SMALL = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
    "initializer_range": 0.15,
}


@pytest.fixture(scope="session")
def write_hf_llama(tmp_path_factory):
    """write_hf_llama(seed=0, max_shard_size="5GB", **config) -> folder, transformers model."""
    import transformers

    def write(seed=0, max_shard_size="5GB", dtype=torch.float32, **changes):
        torch.manual_seed(seed)
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**SMALL, **changes})).eval()
        with torch.no_grad():  # norm weights start at one, which would hide a norm that forgets them
            for name, parameter in model.named_parameters():
                if "norm" in name:
                    parameter.uniform_(0.5, 1.5)
        folder = tmp_path_factory.mktemp("llama")
        model.to(dtype).save_pretrained(folder, max_shard_size=max_shard_size)
        return folder, model

    return write


@pytest.fixture(scope="session")
def small_llama(write_hf_llama):
    """A random three-layer model of ours: fast enough for long generations."""
    return load(write_hf_llama()[0], device="cpu").model
