"""What `course proof` does not prove of chapter 04: the real model under the exercises' interfaces, and the anchors."""

import re
from types import SimpleNamespace

import pytest
import torch

from course import paths
from course.authoring.build import solution_sources
from course.check import trial
from course.check.model_pieces import AnswersCache, CachedLlama, Pieces
from course.given.kv_cache import GrowingCache, cached_llama, tiny_llama
from course.judging import judge
from course.specs import exercise, exercises
from course.specs.exercise import Draw
from course.specs.kv_cache.shared import SURE, continued
from llm_internals import kv_cache
from llm_internals.config import ModelConfig
from llm_internals.kv_cache import KVCache, generate_cached
from llm_internals.model import Llama, weight_shapes


@pytest.fixture(scope="module")
def model():
    """A random Llama of the library, with other head counts than the exercises' own."""
    config = ModelConfig(
        vocab_size=53, hidden_size=40, intermediate_size=56, num_layers=4, num_heads=4, num_kv_heads=2, head_dim=6
    )
    generator = torch.Generator().manual_seed(3)
    weights = {
        name: torch.randn(shape, generator=generator) * (0.3 if len(shape) > 1 else 1.0)
        for name, shape in weight_shapes(config).items()
    }
    return Llama(config, weights)


def near_misses(name):
    """Near-misses of an exercise, as classes or functions, by name."""
    item = exercise(f"kv_cache.{name}")
    found = {}
    for near_miss in item.near_misses:
        namespace = {"torch": torch}
        exec(near_miss.source, namespace)
        found[near_miss.name] = namespace[item.entry]
    return found


def answer(name):
    """The first alternate of an exercise: a right answer."""
    item = exercise(f"kv_cache.{name}")
    namespace = {"torch": torch}
    exec(item.alternates[0].source, namespace)
    return namespace[item.entry]


def test_pieces_put_together_are_the_model(model):
    ids = [5, 1, 44, 30, 2, 17]
    pieces, forward = Pieces(model), answer("cached_forward")
    cache = GrowingCache(pieces)
    parts = [forward(pieces, ids[:3], cache), forward(pieces, ids[3:5], cache), forward(pieces, ids[5:], cache)]
    torch.testing.assert_close(torch.cat(parts), model(torch.tensor(ids)), atol=1e-4, rtol=1e-4)


def test_a_mistake_shows_in_the_real_model(model):
    pieces, ids = Pieces(model), [5, 1, 44, 30, 2, 17]
    for name, forward in near_misses("cached_forward").items():
        if name.startswith("only the last row"):
            continue
        cache = KVCache.for_model(model, 8)
        try:
            last = [forward(pieces, part, cache) for part in (ids[:3], ids[3:5], ids[5:])][-1]
        except RuntimeError:  # shapes that do not fit show, too
            continue
        assert (last - model(torch.tensor(ids))[5:]).abs().max() > 1e-2, name


def test_an_answers_cache_serves_the_model(model):
    right = list(generate_cached(model, [4, 9, 2], 12))
    mine = AnswersCache(answer("KVCache"), model, 16)
    assert list(generate_cached(model, [4, 9, 2], 12, cache=mine)) == right
    assert mine.seq_len == 14


def test_the_models_cached_interface_counts_passes(model):
    served = CachedLlama(model)
    tokens = answer("generate_cached")(served, [4, 9, 2], 5)
    assert tokens == list(generate_cached(model, [4, 9, 2], 5))
    assert served.passes == [3, 1, 1, 1, 1]


def test_the_naive_generator_is_timed_beside_one_that_keeps_nothing_either(model, monkeypatch):
    """Beside the generator with a cache every right answer would look slow."""
    class Tokenizer:
        encode = staticmethod(lambda text: [4, 9, 2])
        decode = staticmethod(lambda ids: " ".join(map(str, ids)))

    passes = []
    monkeypatch.setattr(trial, "checkpoint", lambda: SimpleNamespace(model=model, tokenizer=Tokenizer()))
    for name in ("generate_naive", "generate_cached"):
        item = exercise(f"kv_cache.{name}")
        monkeypatch.setattr(kv_cache, name, noted(passes, name, getattr(kv_cache, name)))
        said = trial.run(item, item.alternates[0].source, "three tokens")
        assert "all 24 tokens are those of the course's own code" in said
        assert ("which keeps nothing either" in said) == (name == "generate_naive")
        assert passes == [name]
        passes.clear()


def noted(names, name, function):
    def call(*args, **kwargs):
        names.append(name)
        return function(*args, **kwargs)

    return call


def test_recomputing_answers_as_a_cache_does():
    """CachedLlama keeps ids; a pass with a real cache gives the same logits."""
    ids, whole, forward = [7, 3, 60, 21, 5], tiny_llama(11), answer("cached_forward")
    stored, given = GrowingCache(whole), cached_llama(11)
    cache = given.new_cache(5)
    for part in (ids[:3], ids[3:4], ids[4:]):
        torch.testing.assert_close(forward(whole, part, stored), given(part, cache), atol=1e-4, rtol=1e-4)
    with pytest.raises(ValueError, match="room for 5 tokens"):
        given([1], cache)


@pytest.mark.parametrize("seed", range(5))
def test_greedy_cases_leave_no_room_for_rounding(seed):
    for case in exercise("kv_cache.generate_naive").cases(Draw(f"sure/{seed}")):
        build, ids, new = case.args
        tokens, gap = continued(tiny_llama(build.kwargs["seed"]), ids, new)
        exact, _ = continued(tiny_llama(build.kwargs["seed"], "float64"), ids, new)
        assert tokens == exact
        assert gap > SURE / 2 or not new


def test_near_misses_of_one_name_keep_their_own_source():
    sources = [near_miss.source for near_miss in exercise("kv_cache.KVCache").near_misses]
    assert len(set(sources)) == len(sources)


def test_every_section_that_is_named_exists():
    page = (paths.root() / "book" / "04_kv_cache.md").read_text(encoding="utf-8")
    anchors = set(re.findall(r"^\(([\w-]+)\)=$", page, flags=re.MULTILINE))
    for item in exercises("kv_cache"):
        for section in [item.section, *(near_miss.section for near_miss in item.near_misses)]:
            file, _, anchor = section.partition("#")
            assert file == "04_kv_cache.html"
            assert anchor in anchors, section


def test_a_known_mistake_is_named():
    item = exercise("kv_cache.cached_forward")
    for near_miss in item.near_misses:
        verdict = judge.practice(item, near_miss.source)
        assert verdict.mistake is not None
        assert verdict.mistake.name == near_miss.name


FULL = "class Full(ValueError):\n    pass\n\n\n"
DATACLASS = """# answer: kv_cache.KVCache
from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Layer:
    k: torch.Tensor
    v: torch.Tensor
    length: int = 0


@dataclass
class KVCache:
    num_layers: int
    num_kv_heads: int
    head_dim: int
    capacity: int
    dtype: torch.dtype = torch.float32

    def __post_init__(self):
        shape = self.capacity, self.num_kv_heads, self.head_dim
        self.layers = [Layer(torch.zeros(shape, dtype=self.dtype), torch.zeros(shape, dtype=self.dtype))
                       for _ in range(self.num_layers)]

    def append(self, layer, k, v):
        held = self.layers[layer]
        end = held.length + len(k)
        if end > self.capacity:
            raise ValueError("full")
        held.k[held.length : end], held.v[held.length : end], held.length = k, v, end

    def keys(self, layer):
        return self.layers[layer].k[: self.layers[layer].length]

    def values(self, layer):
        return self.layers[layer].v[: self.layers[layer].length]

    @property
    def seq_len(self):
        return min(held.length for held in self.layers)

    def truncate(self, seq_len):
        for held in self.layers:
            held.length = seq_len
"""


@pytest.mark.parametrize(("base", "passes"), [("ValueError", True), ("IndexError", False), ("Exception", False)])
def test_an_error_of_ones_own_kind_is_what_it_is_a_kind_of(base, passes):
    item = exercise("kv_cache.KVCache")
    source = solution_sources()[item.id]
    assert "raise ValueError(" in source
    marker, rest = source.split("\n", 1)
    mine = f"{marker}\n{FULL.replace('ValueError', base)}{rest.replace('raise ValueError(', 'raise Full(')}"
    assert judge.practice(item, mine).passed == passes


def test_a_cache_may_be_an_annotated_dataclass():
    verdict = judge.practice(exercise("kv_cache.KVCache"), DATACLASS)
    assert verdict.passed, verdict.error
