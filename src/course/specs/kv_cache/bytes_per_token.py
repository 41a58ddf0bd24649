"""What one token adds to the cache, in bytes."""

from __future__ import annotations

from course.specs.exercise import Case, Draw, Exercise
from course.specs.kv_cache.shared import PAGE, WITH_MODELS


def reference(num_layers, num_kv_heads, head_dim, itemsize):
    kept = 0
    for _layer in range(num_layers):
        for _key_or_value in range(2):
            kept += num_kv_heads * head_dim
    return kept * itemsize


def cases(draw: Draw) -> list[Case]:
    return [
        Case((3, 2, 5, 4), label="a small model in fp32"),
        Case((30, 3, 64, 4), label="SmolLM2 in fp32"),
        Case((32, 8, 128, 2), label="Llama-3 8B in 16 bits"),
        Case((draw.int(11, 40), 1, draw.choice((7, 13, 31)), 2), label="one KV head, in fp16"),
        Case((1, draw.int(3, 9), draw.choice((11, 17, 23)), 4), label="one layer"),
        Case((draw.int(3, 9), draw.int(11, 17), draw.choice((19, 29, 53)), 1), label="numbers of one byte, as in fp8"),
        Case((draw.int(3, 9), draw.int(11, 17), draw.choice((19, 29, 53)), 8), label="fp64"),
        Case((1, 1, 1, 1), label="one number of one byte: a key and a value of it"),
        Case((10**6 + 3, 10**5 + 3, draw.int(10**5, 10**6) | 1, 1), label="no real model: exact, not rounded"),
    ]


BYTES_PER_TOKEN = Exercise(
    id="kv_cache.bytes_per_token",
    title="What a token weighs",
    signature="bytes_per_token(num_layers, num_kv_heads, head_dim, itemsize)",
    reference=reference,
    cases=cases,
    hints=(
        "Count numbers first, bytes last. How many numbers is one key, in one KV head of one layer?",
        "A layer keeps a key and a value for each KV head: 2 * num_kv_heads * head_dim numbers. How many layers keep "
        "as many, and how many bytes is each number?",
        "It is the shape of the cache without its tokens, times the bytes of a number: "
        "2 * num_layers * num_kv_heads * head_dim * itemsize.",
    ),
    section=f"{PAGE}#the-shape-of-a-cache",
    points=1,
    difficulty=1,
    minutes=8,
    given=("kv_cache",),
    prelude=WITH_MODELS,
)

BYTES_PER_TOKEN.near_miss(
    "only the keys",
    {"2 * num_layers": "num_layers"},
    says="Each token leaves a key and a value of the same size: twice as many numbers.",
)

BYTES_PER_TOKEN.near_miss(
    "one layer only",
    {"num_layers * num_kv_heads": "num_kv_heads"},
    says="Every layer projects keys and values of its own and keeps them: multiply by num_layers.",
)

BYTES_PER_TOKEN.near_miss(
    "one head only",
    {"num_kv_heads * head_dim": "head_dim"},
    says="head_dim is the width of one head. Every KV head keeps a key and a value of that width: multiply by "
    "num_kv_heads.",
)

BYTES_PER_TOKEN.near_miss(
    "one number a head",
    {" * head_dim": ""},
    says="A key is a vector: head_dim numbers in every KV head, and a value as many.",
)

BYTES_PER_TOKEN.near_miss(
    "it counts numbers, not bytes",
    {" * itemsize": ""},
    says="That is how many numbers a token adds. Each takes itemsize bytes.",
)

BYTES_PER_TOKEN.near_miss(
    "four bytes a number, whatever the dtype",
    {"* itemsize": "* 4"},
    says="4 bytes is fp32. The same numbers take half of that in fp16 or bf16, and a quarter in fp8: multiply by "
    "itemsize.",
)

BYTES_PER_TOKEN.near_miss(
    "itemsize is taken for bits",
    {"head_dim * itemsize": "head_dim * itemsize // 8"},
    says="itemsize is in bytes already, 4 for the 32 bits of fp32: there is nothing to divide by 8.",
)

BYTES_PER_TOKEN.near_miss(
    "the answer in bits",
    {"head_dim * itemsize": "head_dim * itemsize * 8"},
    says="itemsize is in bytes, and so is the answer: there is nothing to multiply by 8.",
)


@BYTES_PER_TOKEN.near_miss(
    "keys and values are added, not counted twice in every layer",
    says="Every layer keeps a key and a value, so the factor 2 belongs to each layer: 2 * num_layers, not 2 + num_layers.",
)
def bytes_per_token(num_layers, num_kv_heads, head_dim, itemsize):
    return (2 + num_layers) * num_kv_heads * head_dim * itemsize


@BYTES_PER_TOKEN.alternate("summed layer by layer")
def bytes_per_token(num_layers, num_kv_heads, head_dim, itemsize):
    total = 0
    for _ in range(num_layers):
        keys = values = num_kv_heads * head_dim
        total += (keys + values) * itemsize
    return total


@BYTES_PER_TOKEN.alternate("the product of a shape")
def bytes_per_token(num_layers, num_kv_heads, head_dim, itemsize):
    shape = (2, num_layers, num_kv_heads, head_dim)
    return math.prod(shape) * itemsize
