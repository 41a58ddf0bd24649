"""Which masks a cache survives."""

from __future__ import annotations

import torch

from course.specs.exercise import Case, Draw, Exercise
from course.specs.kv_cache.shared import PAGE, WITH_MODELS


def reference(mask, num_prompt_tokens):
    num_tokens = len(mask)
    return not any(
        bool(mask[query, key])
        for query in range(num_tokens)
        for key in range(max(query + 1, num_prompt_tokens), num_tokens)
    )


def prefix_mask(num_tokens: int, prefix: int) -> torch.Tensor:
    mask = torch.ones(num_tokens, num_tokens, dtype=torch.bool).tril()
    mask[:prefix, :prefix] = True
    return mask


def cases(draw: Draw) -> list[Case]:
    n, prefix = 4, 2  # small enough to be shown whole
    causal = torch.ones(n, n, dtype=torch.bool).tril()
    hole = causal.clone()
    hole[n - 1, 1] = False
    peek = causal.clone()
    peek[n - 2, n - 1] = True
    early = causal.clone()
    early[0, prefix] = True
    blind = causal.clone()
    blind[n - 1, n - 1] = False
    late = causal.clone()
    late[0, prefix + 1] = True
    later = torch.ones(n + 1, n + 1, dtype=torch.bool).tril()
    later[prefix, prefix + 1] = True
    cases = [
        Case((causal, 1), label="causal"),
        Case((causal.triu(-1), prefix), label="causal, a window of two"),
        Case((hole, 2), label="causal, one early key left out"),
        Case((prefix_mask(n, prefix), prefix), label="the prompt looks both ways, what follows does not"),
        Case((prefix_mask(n, prefix), prefix + 1), label="part of the prompt looks both ways"),
        Case((prefix_mask(n, prefix), prefix - 1), label="the two-way part reaches one token beyond the prompt"),
        Case((prefix_mask(n, n), prefix), label="all tokens look both ways"),
        Case((prefix_mask(n, n), n), label="all tokens look both ways, all of them in the prompt"),
        Case((peek, prefix), label="the last token but one looks at the last"),
        Case((early, prefix), label="the first token looks at the first new one"),
        Case((late, prefix), label="the first token looks at the second new one"),
        Case((blind, n - 1), label="the only new token does not look at itself"),
        Case((later, prefix), label="a new token looks one ahead, but not at the last"),
        Case((torch.ones(1, 1, dtype=torch.bool), 1), label="one token"),
    ]
    for reaches_beyond in (False, True):
        n = draw.int(6, 11)
        prompt = draw.int(2, n - 2)
        prefix = draw.int(prompt + 1, n - 1) if reaches_beyond else draw.int(1, prompt)
        mask = prefix_mask(n, prefix).T.contiguous().T  # the same mask, its columns next to each other in memory
        cases.append(Case((mask, prompt), label=f"{n} tokens, the first {prefix} look both ways, {prompt} in the prompt"))
    return cases


IS_CACHE_SAFE = Exercise(
    id="kv_cache.is_cache_safe",
    title="When is caching right?",
    signature="is_cache_safe(mask, num_prompt_tokens)",
    reference=reference,
    cases=cases,
    hints=(
        "A key is final when it is written. Which squares of the mask would make it depend on a token that is not "
        "there yet?",
        "Prompt tokens are all there in the first pass, so they may look at each other. A token that comes later may "
        "be looked at only by itself and by those after it.",
        "Above the diagonal, in the columns of new tokens, nothing may be True: mask.triu(1)[:, num_prompt_tokens:]",
    ),
    section=f"{PAGE}#why-it-is-right",
    points=2,
    difficulty=3,
    minutes=15,
    given=("kv_cache",),
    prelude=WITH_MODELS,
)

IS_CACHE_SAFE.near_miss(
    "any two-way part is refused",
    {"looks_ahead[:, num_prompt_tokens:]": "looks_ahead"},
    says="Tokens of the prompt go through one pass together, so they may look at each other: their keys are final "
    "when that pass is over. Only columns from num_prompt_tokens on matter.",
)


@IS_CACHE_SAFE.near_miss(
    "only the full triangle passes",
    says="A token may see less than the causal mask allows, as with a sliding window: that adds no dependence on "
    "later tokens. Ask for what is forbidden, not for what is usual.",
)
def is_cache_safe(mask, num_prompt_tokens):
    allowed = torch.ones_like(mask).tril()
    allowed[:num_prompt_tokens, :num_prompt_tokens] = mask[:num_prompt_tokens, :num_prompt_tokens]
    return bool(torch.equal(mask, allowed))


IS_CACHE_SAFE.near_miss(
    "prompt tokens may look at anything",
    {"[:, num_prompt_tokens:]": "[num_prompt_tokens:]"},
    says="A prompt token that looks at a new token needs what does not exist in its pass. This lets a two-way "
    "prefix reach beyond the prompt: check the rows of the prompt too, in the columns of new tokens.",
)

IS_CACHE_SAFE.near_miss(
    "it looks at new tokens looking back",
    {"mask.triu(1)": "mask.tril(-1)", "[:, num_prompt_tokens:]": "[num_prompt_tokens:]"},
    says="mask[i, j] says whether query i looks at key j: rows look, columns are looked at. Looking back (j < i) is "
    "what the cache is for.",
)

IS_CACHE_SAFE.near_miss(
    "it checks only neighbours",
    {"mask.triu(1)": "mask.diagonal(1)", "[:, num_prompt_tokens:]": "[num_prompt_tokens - 1 :]"},
    says="A token may look further ahead than one step: take the whole triangle above the diagonal, triu(1).",
)

IS_CACHE_SAFE.near_miss(
    "a token that looks at itself is refused",
    {"triu(1)": "triu(0)"},
    says="A token's own key is made in its own pass: the diagonal is no look ahead. triu(1), not triu(0).",
)

IS_CACHE_SAFE.near_miss(
    "the first new column is left out",
    {"[:, num_prompt_tokens:]": "[:, num_prompt_tokens + 1 :]"},
    says="Columns count from 0, so the prompt ends with column num_prompt_tokens - 1 and the new ones begin with "
    "num_prompt_tokens: mask[:, num_prompt_tokens:].",
)

IS_CACHE_SAFE.near_miss(
    "the prompt's last column is taken for a new one",
    {"[:, num_prompt_tokens:]": "[:, num_prompt_tokens - 1 :]"},
    says="The prompt's tokens go through one pass together, its last one too: columns up to num_prompt_tokens - 1 "
    "may be looked at by all of them.",
)


@IS_CACHE_SAFE.alternate("by loops")
def is_cache_safe(mask, num_prompt_tokens):
    num_tokens = mask.shape[0]
    for key in range(num_prompt_tokens, num_tokens):
        for query in range(key):
            if mask[query, key]:
                return False
    return True


@IS_CACHE_SAFE.alternate("by comparing with the largest safe mask")
def is_cache_safe(mask, num_prompt_tokens):
    position = torch.arange(len(mask))
    known = (position[None, :] <= position[:, None]) | (position[None, :] < num_prompt_tokens)
    return not (mask & ~known).any().item()
