"""Answers of chapter 04 as SmolLM2's cache, its forward pass and its generators."""

from __future__ import annotations

import torch

from course.check.in_model import Trial
from course.check.model_pieces import AnswersCache, CachedLlama, Pieces
from llm_internals import kv_cache


def generate_naive(answer, checkpoint):
    counted = {}

    def continue_text(checkpoint, prompt, max_tokens):
        prompt_token_ids = checkpoint.tokenizer.encode(prompt)
        token_ids, counters = answer(lambda ids: checkpoint.model(torch.as_tensor(ids)), prompt_token_ids, max_tokens)
        counted.update(counters)
        return token_ids

    def own(checkpoint, prompt, max_tokens):
        return list(kv_cache.generate_naive(checkpoint.model, checkpoint.tokenizer.encode(prompt), max_tokens))

    return Trial(continue_text=continue_text, own=own, compared="with the course's own, which keeps nothing either",
                 note=lambda: ", ".join(f"{k}: {n:,}" for k, n in counted.items()))


def KVCache(answer, checkpoint):
    def continue_text(checkpoint, prompt, max_tokens):
        token_ids = checkpoint.tokenizer.encode(prompt)
        cache = AnswersCache(answer, checkpoint.model, len(token_ids) + max_tokens)
        return list(kv_cache.generate_cached(checkpoint.model, token_ids, max_tokens, cache=cache))

    return Trial(continue_text=continue_text)


def cached_forward(answer, checkpoint):
    pieces = Pieces(checkpoint.model)

    def continue_text(checkpoint, prompt, max_tokens):
        new_token_ids = checkpoint.tokenizer.encode(prompt)
        cache, tokens = kv_cache.KVCache.for_model(checkpoint.model, len(new_token_ids) + max_tokens), []
        for _ in range(max_tokens):
            tokens.append(int(answer(pieces, new_token_ids, cache)[-1].argmax()))
            new_token_ids = tokens[-1:]
        return tokens

    def logits(token_ids):
        return answer(pieces, token_ids.tolist(), kv_cache.KVCache.for_model(checkpoint.model, len(token_ids)))

    return Trial(continue_text=continue_text, logits=logits)


def generate_cached(answer, checkpoint):
    def continue_text(checkpoint, prompt, max_tokens):
        return list(answer(CachedLlama(checkpoint.model), checkpoint.tokenizer.encode(prompt), max_tokens))

    return Trial(continue_text=continue_text)
