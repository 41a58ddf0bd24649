"""Special tokens, and text that looks like them."""

from __future__ import annotations

from course.given.tokenization import encode as given_encode
from course.specs.exercise import Case, Draw, Exercise
from course.specs.tokenization.shared import PAGE, random_ranks, renumbered


def reference(text, ranks, special, allowed):
    ids, plain, i = [], "", 0
    names = sorted(allowed, key=len, reverse=True)
    while i < len(text):
        name = next((name for name in names if text.startswith(name, i)), None)
        if name is None:
            plain += text[i]
            i += 1
            continue
        ids += [*given_encode(plain, ranks), special[name]]
        plain, i = "", i + len(name)
    return ids + given_encode(plain, ranks)


def cases(draw: Draw) -> list[Case]:
    ranks = renumbered(random_ranks(draw), draw)  # ids 0 to 2 are free, as in SmolLM2, where special tokens have them
    special = {"<|im_start|>": 1, "<|im_end|>": 2, "<|im|>": 0, "<|im|>x": 1004, "><|im_end|>!": 1005}
    every = sorted(special)
    ranks = ranks | {b">u": len(ranks) + 3, b"?<": len(ranks) + 4}  # merges that reach across a marker's edge
    chat = "<|im_start|>user\nмама?<|im_end|>\n<|im_start|>assistant\n"
    return [
        Case((chat, ranks, special, every), label="a conversation, all allowed"),
        Case((chat, ranks, special, []), label="a stranger's text, none allowed"),
        Case((chat, ranks, special, ["<|im_end|>"]), label="only one of them allowed"),
        Case(("a<|im|>xb<|im|>y", ranks, special, every), label="one special token begins with another"),
        Case(("a<|im|>xb", ranks, special, ["<|im_end|>", "<|im|>"]), label="the longer one is not allowed, the shorter is"),
        Case(("<|im_start|><|im_end|><|im|>", ranks, special, ["<|im_end|>"]), label="between two that are not allowed"),
        Case(("<|im|><|im_end|>!", ranks, special, every), label="two overlap: the one that begins earlier counts"),
        Case(("<|im_end|><|im_end|>", ranks, special, every), label="nothing between them"),
        Case(("<|im_en|> <|", ranks, special, every), label="almost a special token"),
        Case(("the " * draw.int(1, 3), ranks, special, every), label="none in the text"),
        Case(("", ranks, special, every), label="no text"),
    ]


ENCODE_SPECIAL = Exercise(
    id="tokenization.encode_special",
    title="Special tokens, and text that looks like them",
    signature="encode_special(text, ranks, special, allowed)",
    reference=reference,
    cases=cases,
    hints=(
        "Cut the text at the allowed special tokens; encode what lies between with the given encode.",
        "re.split with a capturing group keeps the separators. Escape them, and put the longest first.",
        "pattern = '(' + '|'.join(re.escape(s) for s in sorted(allowed, key=len, reverse=True)) + ')'; for part in "
        "re.split(pattern, text): special[part] if part in allowed else encode(part, ranks). Without allowed, no split.",
    ),
    section=f"{PAGE}#special-tokens",
    points=2,
    difficulty=2,
    minutes=20,
    prelude="import re\n\nfrom course.given.tokenization import encode\n",
    given=("tokenization",),
)

ENCODE_SPECIAL.near_miss(
    "it does not ask what is allowed",
    {"if not allowed:\n    return encode(text, ranks)": "allowed = list(special)"},
    says="A stranger who types <|im_end|> would end the turn: only the allowed strings may become special tokens.",
)

ENCODE_SPECIAL.near_miss(
    "it knows no special tokens",
    {"if not allowed:\n    return encode(text, ranks)": "return encode(text, ranks)"},
    says="An allowed special token has one id of its own; as text it would be several, which the model never saw in "
    "that place.",
)

ENCODE_SPECIAL.near_miss(
    "the shorter special token wins",
    {", reverse=True": ""},
    says="Where one special token begins with another, the longest that fits counts: sort by length before you join "
    "the pattern.",
)

ENCODE_SPECIAL.near_miss(
    "the special tokens themselves are lost",
    {'"(" + "|"': '"|"', ' + ")"': ""},
    says="str.split and re.split without a group throw the separators away: put the pattern into parentheses.",
)


@ENCODE_SPECIAL.near_miss(
    "the bars of <|im_end|> act as a pattern",
    says="| means 'or' in a regular expression: re.escape each special token first.",
)
def encode_special(text, ranks, special, allowed):
    if not allowed:
        return encode(text, ranks)
    pattern = "(" + "|".join(sorted(allowed, key=len, reverse=True)) + ")"
    ids = []
    for number, part in enumerate(re.split(pattern, text)):
        ids += [special[part]] if number % 2 else encode(part, ranks)
    return ids


@ENCODE_SPECIAL.near_miss(
    "a special token that is not allowed hides one that is",
    says="Only the allowed strings may cut the text: build the pattern from allowed, not from special, or a longer "
    "one that is not allowed swallows a shorter one that is.",
)
def encode_special(text, ranks, special, allowed):
    pattern = "(" + "|".join(re.escape(s) for s in sorted(special, key=len, reverse=True)) + ")"
    ids, plain = [], ""
    for part in re.split(pattern, text):
        if part in allowed:
            ids += encode(plain, ranks) + [special[part]]
            plain = ""
        else:
            plain += part
    return ids + encode(plain, ranks)


ENCODE_SPECIAL.near_miss(
    "a special token that is not allowed still cuts the text",
    {
        "if not allowed:\n    return encode(text, ranks)\nlongest_first = sorted(allowed,":
            "longest_first = sorted(special,",
    },
    says="What is not allowed is text like all text: merges may reach across its edges. Encode it in one piece with "
    "what stands around it.",
)

ENCODE_SPECIAL.near_miss(
    "it asks what is allowed only when it cuts",
    {"if part in allowed": "if part in special"},
    says="What lies between two allowed ones may be a special token that is not allowed: ask `part in allowed`, not "
    "`part in special`.",
)


@ENCODE_SPECIAL.near_miss(
    "it looks for the longest first, wherever it stands",
    says="Read from left to right: of two that overlap the one that begins earlier counts. Length decides only "
    "between those that begin at the same place.",
)
def encode_special(text, ranks, special, allowed):
    for name in sorted(allowed, key=len, reverse=True):
        if name in text:
            before, after = text.split(name, 1)
            return [
                *encode_special(before, ranks, special, allowed), special[name],
                *encode_special(after, ranks, special, allowed),
            ]
    return encode(text, ranks)


@ENCODE_SPECIAL.alternate("by hand, without a pattern")
def encode_special(text, ranks, special, allowed):
    ids, start, i = [], 0, 0
    while i < len(text):
        hits = [name for name in allowed if text[i : i + len(name)] == name]
        if hits:
            name = max(hits, key=len)
            ids += encode(text[start:i], ranks) + [special[name]]
            i = start = i + len(name)
        else:
            i += 1
    return ids + encode(text[start:], ranks)


@ENCODE_SPECIAL.alternate("by recursion at the earliest, then longest")
def encode_special(text, ranks, special, allowed):
    found = [(text.find(name), -len(name), name) for name in allowed if name in text]
    if not found:
        return encode(text, ranks)
    at, _, name = min(found)
    rest = encode_special(text[at + len(name) :], ranks, special, allowed)
    return [*encode(text[:at], ranks), special[name], *rest]
