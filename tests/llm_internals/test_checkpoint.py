"""Reading checkpoint folders: what transformers wrote, and what is damaged."""

import json
import sys
from pathlib import Path

import pytest
import torch

from llm_internals.checkpoint import load
from llm_internals.errors import CheckpointError
from llm_internals.preparation import prepare_smollm2


def test_loads_by_name_and_unpacks(smollm2):
    model, tokenizer, config = smollm2
    assert config is model.config
    assert model.dtype == torch.float32
    assert model.device.type == "cpu"
    assert (config.num_layers, config.num_heads, config.num_kv_heads, config.head_dim) == (30, 9, 3, 64)
    assert config.eos_token_ids == (2, 0)
    assert tokenizer.vocab_size == config.vocab_size


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_weights_are_views_of_the_mapped_file(smollm2):
    """A load reads nothing: every tensor lies where the file is mapped into memory."""
    mapped = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith(f"{prepare_smollm2().name}/model.safetensors"):
            mapped.append([int(end, 16) for end in line.split()[0].split("-")])
    tensors = [smollm2.model.embedding, *(layer.down_proj for layer in smollm2.model.layers)]
    assert all(any(start <= tensor.data_ptr() < end for start, end in mapped) for tensor in tensors)


def test_a_sharded_checkpoint(write_hf_llama):
    folder, reference = write_hf_llama(max_shard_size="40KB")
    assert len(list(folder.glob("*.safetensors"))) > 2
    ids = torch.arange(20)
    with torch.no_grad():
        expected = reference(ids[None]).logits[0]
    torch.testing.assert_close(load(folder, device="cpu").model(ids), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("dtype", ["bfloat16", torch.bfloat16])
def test_dtype(write_hf_llama, dtype):
    model = load(str(write_hf_llama()[0]), device="cpu", dtype=dtype).model
    assert model.dtype == model.layers[0].mlp_norm.dtype == torch.bfloat16


def test_a_folder_without_tokenizer(write_hf_llama):
    assert load(write_hf_llama()[0], device="cpu").tokenizer is None


def test_a_folder_with_tokenizer(write_hf_llama):
    folder, _ = write_hf_llama()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((prepare_smollm2() / name).read_bytes())
    tokenizer = load(folder, device="cpu").tokenizer
    assert tokenizer.encode("Hi<|im_end|>") == [*tokenizer.encode("Hi"), 2]


def drop_config(folder):
    (folder / "config.json").unlink()


def break_config(folder):
    (folder / "config.json").write_text("{")


def other_architecture(folder):
    edit(folder / "config.json", model_type="mamba")


def wrong_shape(folder):
    edit(folder / "config.json", intermediate_size=81)


def more_layers(folder):
    edit(folder / "config.json", num_hidden_layers=4)


def drop_weights(folder):
    (folder / "model.safetensors").unlink()


def half_the_weights(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty_weights(folder):
    (folder / "model.safetensors").write_bytes(b"")


def other_tokenizer(folder):
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"type": "Unigram"}}))


def half_a_tokenizer(folder):
    (folder / "tokenizer.json").write_text('{"model": {')


def edit(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (drop_config, "holds no config.json"),
        (break_config, r"config\.json: Expecting property name"),
        (other_architecture, r"config\.json: .*model_type = 'llama' only, got 'mamba'"),
        (wrong_shape, r"gate_proj.weight has shape \[80, 48\], the config asks for \[81, 48\]"),
        (more_layers, r"no tensor 'model.layers.3.input_layernorm.weight'"),
        (drop_weights, r"neither model.safetensors nor model.safetensors.index.json"),
        (half_the_weights, "damaged or half a file .*fetch it again"),
        (empty_weights, "damaged or half a file .*fetch it again"),
        (other_tokenizer, "model type 'Unigram' is not supported, only byte-level BPE"),
        (half_a_tokenizer, "Expecting property name"),
    ],
)
def test_damage_is_named(write_hf_llama, damage, message):
    folder, _ = write_hf_llama()
    damage(folder)
    with pytest.raises(CheckpointError, match=message):
        load(folder, device="cpu")


def test_a_missing_shard_is_named(write_hf_llama):
    folder, _ = write_hf_llama(max_shard_size="40KB")
    shard = sorted(folder.glob("*.safetensors"))[1]
    shard.unlink()
    with pytest.raises(CheckpointError, match=f"{shard.name} is damaged or half a file"):
        load(folder, device="cpu")


def test_a_broken_index_is_named(write_hf_llama):
    folder, _ = write_hf_llama(max_shard_size="40KB")
    (folder / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"index.json is damaged .*weight_map"):
        load(folder, device="cpu")


def test_wrong_arguments(tmp_path, write_hf_llama):
    with pytest.raises(ValueError, match="'gpt-5' is neither 'smollm2-135m' nor a folder"):
        load("gpt-5")
    with pytest.raises(ValueError, match="unknown dtype 'fp32'; use one of float32, bfloat16, float16"):
        load(write_hf_llama()[0], dtype="fp32")
    with pytest.raises(ValueError, match="unknown device 'gpu'"):
        load(write_hf_llama()[0], device="gpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA, so asking for it is no mistake")
def test_cuda_without_cuda():
    with pytest.raises(ValueError, match="no CUDA device"):
        load("smollm2-135m", device="cuda")


# ----------------------------------------------------------------- transformers' word on what a folder means


def ours_and_theirs(folder, ids):
    """Logits of this library, and those of the model that transformers reads from the same folder."""
    import transformers

    with torch.no_grad():
        expected = transformers.LlamaForCausalLM.from_pretrained(folder)(ids[None]).logits[0]
    return load(folder, device="cpu").model(ids), expected


@pytest.mark.parametrize(
    ("config_says", "generation_says"),
    [(61, [61, 62]), (61, 62), ([61, 62], [62]), (61, None), ([61, 62], "no file")],
)
def test_generation_stops_where_transformers_stops(write_hf_llama, config_says, generation_says):
    import transformers

    from llm_internals.kv_cache import generate_cached

    folder, reference = write_hf_llama(seed=3)
    prompt = [5, 9, 2]
    free = list(generate_cached(load(folder, device="cpu").model, prompt, 20))
    places = {61: free[12], 62: free[6]}  # stop tokens that this model really writes, the second one first
    assert free.index(free[6]) < free.index(free[12])

    def mapped(says):
        return [places[i] for i in says] if isinstance(says, list) else places.get(says)

    edit(folder / "config.json", eos_token_id=mapped(config_says))
    path = folder / "generation_config.json"
    if generation_says == "no file":
        path.unlink()
    elif generation_says is None:
        edit(path, eos_token_id=None)
    else:
        edit(path, eos_token_id=mapped(generation_says))
    model, _, config = load(folder, device="cpu")
    got = list(generate_cached(model, prompt, 20, stop_token_ids=config.eos_token_ids))
    if generation_says is None:  # transformers would stop nowhere; a config that names a stop is believed
        assert got == free[: free.index(free[12]) + 1]
        return
    reference = transformers.LlamaForCausalLM.from_pretrained(folder)
    expected = reference.generate(torch.tensor([prompt]), max_new_tokens=20, do_sample=False, pad_token_id=0)
    assert got == expected[0, len(prompt):].tolist()
    assert len(got) < 20


@pytest.mark.parametrize("content", ["[]", "{", '{"eos_token_id": "x"}', '{"eos_token_id": [1, null]}'])
def test_a_damaged_generation_config_is_named(write_hf_llama, content):
    folder, _ = write_hf_llama()
    (folder / "generation_config.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"generation_config\.json: "):
        load(folder, device="cpu")


@pytest.mark.parametrize("shards", ["5GB", "40KB"])
@pytest.mark.parametrize("biases", [{"attention_bias": True}, {"mlp_bias": True}])
def test_biases_that_the_config_forgets_are_not_dropped(write_hf_llama, biases, shards):
    folder, _ = write_hf_llama(max_shard_size=shards, **biases)
    with pytest.raises(CheckpointError, match="bias = False only, got True"):
        load(folder, device="cpu")
    config = json.loads((folder / "config.json").read_text())
    for key in biases:
        del config[key]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=r"no use for: model.layers.0.*bias.* and \d+ more"):
        load(folder, device="cpu")


def rewrite(folder, **changes):
    """Put other tensors into a folder's file, under names written with _ for a dot's place."""
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    tensors = load_file(path)
    tensors.update({name.replace("__", "."): tensor for name, tensor in changes.items()})
    save_file(tensors, path, metadata={"format": "pt"})


def test_a_table_of_old_checkpoints_is_no_weight(write_hf_llama):
    folder, _ = write_hf_llama()
    rewrite(folder, model__layers__0__self_attn__rotary_emb__inv_freq=torch.ones(4))
    got, expected = ours_and_theirs(folder, torch.arange(20))
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("own", ["another", "the same", "none"])
def test_a_head_of_its_own_outweighs_a_config_that_says_tied(write_hf_llama, own):
    folder, _ = write_hf_llama(tie_word_embeddings=True)
    if own != "none":
        embedding = load(folder, device="cpu").model.embedding.clone()
        rewrite(folder, lm_head__weight=embedding if own == "the same" else embedding.flip(0).contiguous())
    got, expected = ours_and_theirs(folder, torch.arange(20))
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=0)
    model, _, config = load(folder, device="cpu")
    assert config.tie_word_embeddings == model.config.tie_word_embeddings == (own != "another")
    assert (model.head is model.embedding) == (own != "another")


@pytest.mark.parametrize("rope", [{"rope_type": "linear", "factor": 4.0}, {"type": "linear", "factor": 2.0}])
def test_a_scaling_written_in_by_hand_is_used(write_hf_llama, rope):
    folder, _ = write_hf_llama()
    edit(folder / "config.json", rope_scaling=rope)
    assert "rope_parameters" in json.loads((folder / "config.json").read_text())
    got, expected = ours_and_theirs(folder, torch.arange(60))
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=0)


def test_ids_past_the_tokenizer_have_no_text(write_hf_llama):
    """A model's vocabulary is often padded to a round number; it may draw an id that no token has."""
    folder, _ = write_hf_llama(vocab_size=49_200)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((prepare_smollm2() / name).read_bytes())
    tokenizer = load(folder, device="cpu").tokenizer
    assert tokenizer.decode([49_151, 49_152, 49_199, *tokenizer.encode("Hi")]) == tokenizer.decode([49_151]) + "Hi"
    with pytest.raises(ValueError, match="id 49200 is not in the vocabulary of 49200 tokens"):
        tokenizer.decode([49_200])


@pytest.mark.parametrize("content", ["[]", "null", "3", '"llama"'])
def test_a_config_that_is_no_object(write_hf_llama, content):
    folder, _ = write_hf_llama()
    (folder / "config.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"config\.json: a model config is a JSON object"):
        load(folder, device="cpu")
