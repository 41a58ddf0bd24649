import pytest

from llm_internals.config import ModelConfig, RopeScaling

LLAMA = {
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "rope_theta": 500000.0,
    "eos_token_id": [128001, 128009],
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def test_reads_a_llama_config():
    config = ModelConfig.from_hf(LLAMA)
    assert (config.num_heads, config.num_kv_heads, config.group_size, config.head_dim) == (32, 8, 4, 128)
    assert config.rope_theta == 500000.0
    assert config.rope_scaling is None
    assert config.eos_token_ids == (128001, 128009)


def test_rope_scaling_is_found_under_either_name():
    expected = RopeScaling("llama3", 8.0, 1.0, 4.0, 8192)
    old = ModelConfig.from_hf({**LLAMA, "rope_scaling": LLAMA3_ROPE})
    new = dict(LLAMA)
    del new["rope_theta"]
    new = ModelConfig.from_hf({**new, "rope_parameters": {**LLAMA3_ROPE, "rope_theta": 500000.0}})
    assert old.rope_scaling == new.rope_scaling == expected
    assert old.rope_theta == new.rope_theta == 500000.0


def test_older_name_of_the_rope_kind():
    config = ModelConfig.from_hf({**LLAMA, "rope_scaling": {"type": "linear", "factor": 2.0}})
    assert config.rope_scaling == RopeScaling("linear", 2.0)


def test_heads_default_as_hugging_face_says():
    config = ModelConfig.from_hf({k: v for k, v in LLAMA.items() if k != "num_key_value_heads"})
    assert config.num_kv_heads == 32


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "qwen3"}, "model_type = 'llama' only"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"attention_bias": True}, "attention_bias"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"num_key_value_heads": 5}, "multiple of num_kv_heads"),
        ({"head_dim": 63}, "head_dim must be even"),
        ({"hidden_size": 0}, "hidden_size must be a positive integer"),
        ({"vocab_size": "many"}, "vocab_size must be a positive integer"),
        ({"rope_theta": -1.0}, "must be positive"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "'yarn' is not supported"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 0.5}}, "at least 1"),
        ({"rope_scaling": {**LLAMA3_ROPE, "low_freq_factor": 4.0}}, "low_freq_factor < high_freq_factor"),
        ({"rope_scaling": {"rope_type": "linear"}}, "no 'factor'"),
    ],
)
def test_refuses_what_it_would_compute_wrongly(change, message):
    with pytest.raises(ValueError, match=message):
        ModelConfig.from_hf({**LLAMA, **change})


def test_missing_key_is_named():
    with pytest.raises(ValueError, match="no 'intermediate_size'"):
        ModelConfig.from_hf({k: v for k, v in LLAMA.items() if k != "intermediate_size"})


# ----------------------------------------------------------------- transformers' word on RoPE

PLAIN = {"rope_theta": 30_000.0, "rope_type": "default"}
LINEAR = {"rope_type": "linear", "factor": 4.0}


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_parameters": PLAIN, "rope_scaling": LINEAR},
        {"rope_parameters": PLAIN, "rope_scaling": {**LINEAR, "rope_theta": 70_000.0}},
        {"rope_parameters": PLAIN, "rope_scaling": LLAMA3_ROPE, "rope_theta": 50_000.0},
        {"rope_parameters": {**LLAMA3_ROPE, "rope_theta": 500_000.0}, "rope_scaling": LINEAR},
        {"rope_parameters": PLAIN, "rope_scaling": None},
        {"rope_parameters": LINEAR, "rope_theta": 40_000.0},
        {"rope_parameters": PLAIN},
        {"rope_theta": 40_000.0, "rope_scaling": LINEAR},
        {},
    ],
)
def test_rope_is_read_as_transformers_reads_it(rope):
    import torch
    import transformers
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    from llm_internals.transformer_block import rope_frequencies

    hf = {key: value for key, value in LLAMA.items() if key != "rope_theta"} | {"max_position_embeddings": 4096} | rope
    ours = ModelConfig.from_hf(hf)
    expected = LlamaRotaryEmbedding(transformers.LlamaConfig.from_dict(dict(hf))).inv_freq
    got = rope_frequencies(ours.head_dim, ours.rope_theta, ours.rope_scaling)
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=0)


# ----------------------------------------------------------------- whatever stands in the file


@pytest.mark.parametrize("value", [[], None, 3, "llama", [LLAMA]])
def test_what_is_no_object_is_refused(value):
    with pytest.raises(ValueError, match=r"a model config is a JSON object"):
        ModelConfig.from_hf(value)


def test_a_base_that_is_null_is_refused():
    with pytest.raises(ValueError, match="rope_theta must be positive, got None"):
        ModelConfig.from_hf({**LLAMA, "rope_theta": None})


KEYS = ["vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "head_dim", "rope_theta", "rope_scaling", "rope_parameters", "rms_norm_eps",
        "max_position_embeddings", "tie_word_embeddings", "bos_token_id", "eos_token_id", "hidden_act",
        "attention_bias", "quantization_config", "model_type", "partial_rotary_factor"]  # fmt: skip
JUNK = [None, [], {}, "", "many", -1, 0, 1.5, True, float("nan"), float("inf"), 10**30, [[1]], ["x"], [None], {"a": 1},
        {"rope_type": None}, {"rope_type": []}, {"rope_type": "linear", "factor": None},
        {"rope_type": "linear", "factor": "8"}, {**LLAMA3_ROPE, "high_freq_factor": []},
        {**LLAMA3_ROPE, "original_max_position_embeddings": 0}]  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
def test_whatever_a_key_holds_the_answer_is_a_config_or_a_value_error(key):
    for value in JUNK:
        try:
            config = ModelConfig.from_hf({**LLAMA, key: value})
        except ValueError:
            continue
        assert config.rope_theta > 0
        assert all(isinstance(token_id, int) for token_id in config.eos_token_ids)
