"""How a KVCache is put through a case, and what is to be seen on the way."""

from __future__ import annotations

import torch


def drive(KVCache, k, v, chunks, keep, spare):
    """Fill a cache chunk by chunk, look at it, cut it back to `keep` tokens, fill it again, and overfill it.

    k, v: [num_layers, tokens, num_kv_heads, head_dim]; capacity is tokens + spare.
    """
    num_layers, tokens, num_kv_heads, head_dim = k.shape
    cache = KVCache(num_layers, num_kv_heads, head_dim, tokens + spare, k.dtype)
    another = KVCache(num_layers, num_kv_heads, head_dim, tokens + spare, k.dtype)  # of another conversation

    def length():
        return "a method: put @property above it" if callable(cache.seq_len) else cache.seq_len

    seen = {"seq_len at first": length()}
    addresses: dict[int, set] = {}
    alive = []  # what was returned is kept, so that no other tensor can be made at its address

    def add(layer, start, end):
        new_k, new_v = k[layer, start:end].clone(), v[layer, start:end].clone()
        cache.append(layer, new_k, new_v)
        new_k.fill_(-9)  # a caller may use its tensors again
        new_v.fill_(-9)

    def look(when):
        held = [(cache.keys(layer), cache.values(layer)) for layer in range(num_layers)]
        alive.append(held)
        seen[f"seq_len {when}"] = length()
        for name, index in (("keys", 0), ("values", 1)):
            parts = [pair[index] for pair in held]
            seen[f"{name} {when}"] = [part.clone() if isinstance(part, torch.Tensor) else part for part in parts]
        for place, part in enumerate(part for pair in held for part in pair):
            if isinstance(part, torch.Tensor) and part.numel():
                addresses.setdefault(place, set()).add(part.data_ptr())

    start = 0
    for number, size in enumerate(chunks, start=1):
        inside, rows = [], []
        for layer in range(num_layers):
            add(layer, start, start + size)
            inside.append(length())
            rows.append([len(cache.keys(layer)), len(cache.values(layer))])
        seen[f"seq_len after each layer of pass {number}"] = inside
        seen[f"rows of keys(layer) and values(layer), after each layer of pass {number}"] = rows
        start += size
        look(f"after pass {number}")
    another.append(0, torch.full_like(k[0, :1], 7), torch.full_like(v[0, :1], 7))
    look("after an append to another KVCache")
    cache.truncate(keep)
    look("after truncate")
    inside = []
    for layer in reversed(range(num_layers)):
        add(layer, keep, tokens)
        inside.append(length())
    seen["seq_len after each layer, the last layer first"] = inside
    look("after truncate and append")
    seen["memory stays where it was"] = all(len(found) == 1 for found in addresses.values())
    too_many = torch.ones(spare + 1, num_kv_heads, head_dim, dtype=k.dtype)

    def overfill(when):
        try:
            cache.append(0, too_many, too_many)
            seen[when] = "was taken"
        except Exception as error:
            seen[when] = "ValueError" if isinstance(error, ValueError) else type(error).__name__

    overfill("one token too many")
    look("after one token too many")
    cache.truncate(keep)  # from here on layer 0 is ahead of the others
    add(0, keep, tokens)
    overfill("one token too many for layer 0, the others are behind")
    seen["rows of keys(0), layer 0 ahead"] = len(cache.keys(0))
    cache.truncate(keep)
    look("after truncate, layer 0 ahead")
    return seen


def reference(k, v, chunks, keep, spare):
    num_layers, tokens = k.shape[:2]
    seen: dict = {"seq_len at first": 0}

    def look(when, length):
        seen[f"seq_len {when}"] = length
        seen[f"keys {when}"] = [k[layer, :length].clone() for layer in range(num_layers)]
        seen[f"values {when}"] = [v[layer, :length].clone() for layer in range(num_layers)]

    start = 0
    for number, size in enumerate(chunks, start=1):
        seen[f"seq_len after each layer of pass {number}"] = [start] * (num_layers - 1) + [start + size]
        start += size
        rows = [[start, start] for _ in range(num_layers)]
        seen[f"rows of keys(layer) and values(layer), after each layer of pass {number}"] = rows
        look(f"after pass {number}", start)
    look("after an append to another KVCache", tokens)
    look("after truncate", keep)
    seen["seq_len after each layer, the last layer first"] = [keep] * (num_layers - 1) + [tokens]
    look("after truncate and append", tokens)
    seen["memory stays where it was"] = True
    seen["one token too many"] = "ValueError"
    look("after one token too many", tokens)
    seen["one token too many for layer 0, the others are behind"] = "ValueError"
    seen["rows of keys(0), layer 0 ahead"] = tokens
    look("after truncate, layer 0 ahead", keep)
    return seen
