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
