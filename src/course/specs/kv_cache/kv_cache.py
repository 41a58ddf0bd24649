"""The memory of keys and values: filled layer by layer, cut back, filled again, overfilled."""

from __future__ import annotations

import torch

from course.specs.exercise import Case, Draw, Exercise, Tolerance
from course.specs.kv_cache.handling import drive, reference
from course.specs.kv_cache.shared import PAGE


def cases(draw: Draw) -> list[Case]:
    def case(label, layers, chunks, heads, width, keep, spare=0, dtype=torch.float32, strided=False):
        tokens = sum(chunks)
        made = draw.strided if strided else draw.randn
        k, v = (made(layers, tokens, heads, width, dtype=dtype) for _ in range(2))
        return Case((k, v, chunks, keep, spare), label=f"{label}; capacity {tokens + spare}, then truncate({keep})")

    many = draw.choice([5, 7])
    return [
        case(f"2 layers, a prompt of {many} and two steps", 2, [many, 1, 1], 3, 4, keep=draw.int(2, many - 1)),
        # So much room that one length for all layers fits in: only an answer that always raises raises here.
        case("3 layers, one token at a time, room to spare", 3, [1, 1, 1], 1, draw.choice([2, 6]), keep=1, spare=8),
        case("chunks of several tokens, fp16", 2, [2, 3, 2], 2, 5, keep=4, spare=1, dtype=torch.float16),
        case("bf16, keys and values not contiguous", 2, [3, 1], 5, 3, keep=2, dtype=torch.bfloat16, strided=True),
        case("cut back to nothing", 2, [4], 2, 3, keep=0),
        case("6 layers, more than tokens", 6, [1, 1], 2, 4, keep=1),
    ]


KV_CACHE = Exercise(
    id="kv_cache.KVCache",
    title="The cache itself",
    signature="class KVCache",
    reference=reference,
    cases=cases,
    drive=drive,
    argument_names=("k", "v", "chunks", "keep", "spare"),
    hints=(
        "Two things to keep: one tensor for all layers, made once with torch.zeros, and one length for each layer.",
        "append writes to storage[0, layer, start:end] with start = the layer's length; seq_len is min(lengths), since "
        "in the middle of a forward pass the first layers are ahead; truncate only sets lengths.",
        "self.storage = torch.zeros(2, num_layers, capacity, num_kv_heads, head_dim, dtype=dtype); "
        "self.lengths = [0] * num_layers; append: end = start + len(k); raise ValueError if end > capacity; "
        "self.storage[0, layer, start:end] = k; keys: self.storage[0, layer, :self.lengths[layer]]",
    ),
    section=f"{PAGE}#with-a-cache",
    points=3,
    core=True,
    difficulty=2,
    minutes=25,
    tolerance=Tolerance(c=0.0),  # a cache computes nothing: what comes out is what went in
    in_model=True,
)

KV_CACHE.near_miss(
    "seq_len moves before the last layer is done",
    {"min(self.lengths)": "self.lengths[0]"},
    says="A forward pass fills layer 0 first, then layer 1, and so on. Until the last layer has its keys, the pass "
    "is not over and the new tokens do not count: seq_len = min of the layers' lengths. An engine that counted "
    "at layer 0 rotated every upper layer one position too far.",
    section=f"{PAGE}#bugs-seen-in-real-engines",
)

KV_CACHE.near_miss(
    "one length serves all layers",
    {"self.lengths[layer] = end": "self.lengths = [end] * len(self.lengths)"},
    says="The first layer that appends moves the length, and the next layer writes its keys behind a gap. Each "
    "layer needs a length of its own.",
)

KV_CACHE.near_miss(
    "new tensors instead of views of one memory",
    {
        "self.storage[0, layer, : self.lengths[layer]]": "self.storage[0, layer, : self.lengths[layer]].clone()",
        "self.storage[1, layer, : self.lengths[layer]]": "self.storage[1, layer, : self.lengths[layer]].clone()",
    },
    says="torch.cat and clone make a new tensor and copy all that was there: n appends copy n * n / 2 rows. Take "
    "the memory once, capacity rows long, write each new row into its place, and return a slice of it.",
    section=f"{PAGE}#the-shape-of-a-cache",
)

KV_CACHE.near_miss(
    "keys() returns the whole memory",
    {
        "self.storage[0, layer, : self.lengths[layer]]": "self.storage[0, layer]",
        "self.storage[1, layer, : self.lengths[layer]]": "self.storage[1, layer]",
    },
    says="Rows beyond the length hold zeros or what an earlier text left. A key of zeros still gets a share of the "
    "softmax, so return the filled rows only: storage[0, layer, :length].",
)

KV_CACHE.near_miss(
    "every append starts at row 0",
    {
        "[0, layer, start:end] = k": "[0, layer, : len(k)] = k",
        "[1, layer, start:end] = v": "[1, layer, : len(k)] = v",
    },
    says="New keys go behind those that are there: start at the layer's length, not at 0.",
)

KV_CACHE.near_miss(
    "truncate empties the memory but keeps the length",
    {"self.lengths = [seq_len] * len(self.lengths)": "self.storage[:, :, seq_len:] = 0"},
    says="Zeroed rows still count as tokens. Forgetting means setting the lengths back; the rows beyond them may "
    "keep their old contents, the next append writes over them. A library's reset() made this very mistake.",
    section=f"{PAGE}#bugs-seen-in-real-engines",
)

KV_CACHE.near_miss(
    "truncate(0) forgets nothing",
    {"self.lengths = [seq_len] * len(self.lengths)": "if seq_len:\n    self.lengths = [seq_len] * len(self.lengths)"},
    says="0 is a length like any other, but `if seq_len:` takes it for a missing one. Set the lengths whatever it "
    "is. A library's crop(0) kept everything as well.",
    section=f"{PAGE}#bugs-seen-in-real-engines",
)

KV_CACHE.near_miss(
    "a full cache drops the oldest tokens",
    {
        'if end > capacity:\n    raise ValueError(f"the cache has room for {capacity} tokens, {end} came")':
            "over = max(0, end - capacity)\n"
            "self.storage[:, layer] = self.storage[:, layer].roll(-over, dims=1)\n"
            "start, end = start - over, end - over",
    },
    says="That is a sliding window, another model's behaviour: here every key is needed for ever. When the room "
    "does not suffice, raise ValueError and leave what is there as it was.",
    section=f"{PAGE}#the-shape-of-a-cache",
)


@KV_CACHE.near_miss(
    "it keeps the caller's tensors",
    says="The caller may write into k and v again for the next token. Copy the numbers into memory of your own.",
)
class KVCache:
    def __init__(self, num_layers, num_kv_heads, head_dim, capacity, dtype=torch.float32):
        self.capacity = capacity
        empty = torch.zeros(0, num_kv_heads, head_dim, dtype=dtype)
        self.k = [[empty] for _ in range(num_layers)]
        self.v = [[empty] for _ in range(num_layers)]

    def append(self, layer, k, v):
        if sum(map(len, self.k[layer])) + len(k) > self.capacity:
            raise ValueError("full")
        self.k[layer].append(k)
        self.v[layer].append(v)

    def keys(self, layer):
        return torch.cat(self.k[layer])

    def values(self, layer):
        return torch.cat(self.v[layer])

    @property
    def seq_len(self):
        return min(sum(map(len, parts)) for parts in self.k)

    def truncate(self, seq_len):
        self.k = [[torch.cat(parts)[:seq_len]] for parts in self.k]
        self.v = [[torch.cat(parts)[:seq_len]] for parts in self.v]


KV_CACHE.near_miss(
    "keys() waits for the other layers",
    {
        "self.storage[0, layer, : self.lengths[layer]]": "self.storage[0, layer, : self.seq_len]",
        "self.storage[1, layer, : self.lengths[layer]]": "self.storage[1, layer, : self.seq_len]",
    },
    says="A layer needs its own new keys at once, before the layers above have theirs: keys(layer) goes up to this "
    "layer's length. Only seq_len waits for all.",
)

KV_CACHE.near_miss(
    "seq_len is the last layer's length",
    {"min(self.lengths)": "self.lengths[-1]"},
    says="In a pass from below the last layer is the last to be filled, but nothing says that it must be: every "
    "layer counts, min(lengths).",
)

KV_CACHE.near_miss(
    "all caches share one memory",
    {
        "self.lengths = [0] * num_layers": "KVCache.lengths = [0] * num_layers",
        "self.lengths = [seq_len] * len(self.lengths)": "KVCache.lengths = [seq_len] * len(self.lengths)",
    },
    says="What stands in the class body belongs to all caches: a second conversation changes the first one. Make "
    "tensors and lengths in __init__, as attributes of self.",
)

KV_CACHE.near_miss(
    "a cache that would be exactly full is refused",
    {"end > capacity": "end >= capacity"},
    says="capacity tokens fit: raise only when the end lies beyond it, end > capacity.",
)

KV_CACHE.near_miss(
    "dtype is ignored",
    {", head_dim, dtype=dtype)": ", head_dim)"},
    says="A cache for a bf16 model holds bf16: pass dtype on to the memory, or it takes twice the room and gives "
    "back another dtype.",
)

KV_CACHE.near_miss(
    "the room is measured by seq_len",
    {"if end > capacity": "if self.seq_len + len(k) > capacity"},
    says="seq_len is the length of the layer that is furthest behind. A layer that is ahead may be full while others have "
    "room: compare the end of this layer's own rows with the capacity.",
    section=f"{PAGE}#the-shape-of-a-cache",
)

KV_CACHE.near_miss(
    "truncate takes as many rows from every layer",
    {
        "self.lengths = [seq_len] * len(self.lengths)":
            "self.lengths = [length - self.seq_len + seq_len for length in self.lengths]",
    },
    says="In the middle of a pass some layers hold more than seq_len tokens, and they too must come back to the first "
    "seq_len: set the length, do not subtract from it.",
)


@KV_CACHE.alternate("heads before tokens, as the chapter's own cache")
class KVCache:
    def __init__(self, num_layers, num_kv_heads, head_dim, capacity, dtype=torch.float32):
        self.storage = torch.empty(2, num_layers, num_kv_heads, capacity, head_dim, dtype=dtype)
        self.lengths = [0 for _ in range(num_layers)]

    def append(self, layer, k, v):
        start, end = self.lengths[layer], self.lengths[layer] + k.shape[0]
        if end > self.storage.shape[3]:
            raise ValueError(f"room for {self.storage.shape[3]} tokens, {end} came")
        self.storage[0, layer, :, start:end] = k.transpose(0, 1)
        self.storage[1, layer, :, start:end] = v.transpose(0, 1)
        self.lengths[layer] = end

    def keys(self, layer):
        return self.storage[0, layer, :, : self.lengths[layer]].transpose(0, 1)

    def values(self, layer):
        return self.storage[1, layer, :, : self.lengths[layer]].transpose(0, 1)

    @property
    def seq_len(self):
        return min(self.lengths)

    def truncate(self, seq_len):
        self.lengths = [min(length, seq_len) for length in self.lengths]


@KV_CACHE.alternate("two tensors a layer, lengths in a tensor")
class KVCache:
    def __init__(self, num_layers, num_kv_heads, head_dim, capacity, dtype=torch.float32):
        def memory():
            return [torch.zeros(capacity, num_kv_heads, head_dim, dtype=dtype) for _ in range(num_layers)]

        self.k, self.v = memory(), memory()
        self.used = torch.zeros(num_layers, dtype=torch.int64)

    def append(self, layer, k, v):
        start = int(self.used[layer])
        room = len(self.k[layer]) - start
        if k.shape[0] > room:
            raise ValueError(f"room for {room} more tokens, {k.shape[0]} came")
        self.k[layer].narrow(0, start, k.shape[0]).copy_(k)
        self.v[layer].narrow(0, start, k.shape[0]).copy_(v)
        self.used[layer] += k.shape[0]

    def keys(self, layer):
        return self.k[layer][: self.used[layer]]

    def values(self, layer):
        return self.v[layer][: self.used[layer]]

    @property
    def seq_len(self):
        return int(self.used.min())

    def truncate(self, seq_len):
        self.used.clamp_(max=seq_len)
