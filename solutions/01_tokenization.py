# %% [markdown] key="title"
# # Tokenization
#
# You write the tokenizer that stands between a text and a language model: learn merges, use them, undo them, and let
# the result stream. Work beside the page *01 Tokenization*. Each answer is checked on its own, in a fresh namespace.

# %% [markdown] key="guess-text"
# ## Before you begin
#
# Three words of Russian: `мама мыла раму`. In English they are *mom washed the frame*, four tokens. How many tokens
# does SmolLM2 need for the Russian? Put a number in; it is not graded.

# %% key="guess" role="given"
predict("tokens of 'мама мыла раму'", ...)

# %% key="guess-reveal" role="given"
from llm_internals.checkpoint import load

tokenizer = load("smollm2-135m").tokenizer
reveal("tokens of 'мама мыла раму'", len(tokenizer.encode("мама мыла раму")), "tokens")

# %% [markdown] key="tokenization.merge_pair-task" role="task"
# ## One merge
#
# Replace every occurrence of a pair of neighbouring pieces by the two joined, from left to right. A piece takes part
# in one merge at most. Return a new list: the one that comes in stays as it is.
#
# `merge_pair([b"a", b"a", b"a", b"b"], (b"a", b"a"))` gives `[b"aa", b"a", b"b"]`.

# %% key="tokenization.merge_pair" role="answer"
# answer: tokenization.merge_pair
def merge_pair(pieces, pair):
    """pieces: list of bytes, pair: two bytes objects -> a new list of bytes, every occurrence of the pair joined."""
    ### BEGIN SOLUTION
    merged, i = [], 0
    while i < len(pieces):
        if i + 1 < len(pieces) and (pieces[i], pieces[i + 1]) == tuple(pair):
            merged.append(pieces[i] + pieces[i + 1])
            i += 2
        else:
            merged.append(pieces[i])
            i += 1
    return merged
    ### END SOLUTION

# %% [markdown] key="tokenization.train-task" role="task"
# ## Learn the merges
#
# `words` tells how often each word occurs. Split every word into the bytes of its UTF-8. Then, `num_merges` times:
# count the pairs of neighbours over all words (a word that occurs 6 times counts 6 times), take the most frequent
# pair, of equally frequent ones the smaller as Python compares tuples, and join it everywhere. Stop early when no
# pair is left. Return the merges in order.
#
# `train({"low": 5, "lower": 2}, 2)` gives `[(b"l", b"o"), (b"lo", b"w")]`: both l o and o w occur 7 times, and l o is
# the smaller.

# %% key="tokenization.train" role="answer"
# answer: tokenization.train
def train(words, num_merges):
    """words: {word: count} -> list of (bytes, bytes), at most num_merges, in the order they were learnt."""
    ### BEGIN SOLUTION
    split = [([bytes([byte]) for byte in word.encode()], count) for word, count in words.items()]
    merges = []
    for _ in range(num_merges):
        counts = {}
        for pieces, count in split:
            for pair in zip(pieces, pieces[1:]):
                counts[pair] = counts.get(pair, 0) + count
        if not counts:
            break
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        merges.append(best)
        for pieces, _ in split:
            i = 0
            while i + 1 < len(pieces):
                if (pieces[i], pieces[i + 1]) == best:
                    pieces[i : i + 2] = [best[0] + best[1]]
                i += 1
    return merges
    ### END SOLUTION

# %% [markdown] key="tokenization.encode-task" role="task"
# ## Encode
#
# `ranks` maps each token's bytes to its id; the id is also its rank, since tokens are numbered in the order they were
# learnt. Start from single bytes. While some pair of neighbours joins to a token, join the one of lowest rank, of equal
# ranks the leftmost. Return the ids; when `bos` is given, put it in front.
#
# With `bc` of rank 256, `ab` 257 and `abc` 258, the text `abc` becomes first `a`, `bc`, then `abc`: `[258]`.

# %% key="tokenization.encode" role="answer"
# answer: tokenization.encode
def encode(text, ranks, bos=None):
    """text: str, ranks: {bytes: int} -> list of ids, bos first when it is not None."""
    ### BEGIN SOLUTION
    pieces = [bytes([byte]) for byte in text.encode()]
    while True:
        found = [(ranks[a + b], i) for i, (a, b) in enumerate(zip(pieces, pieces[1:])) if a + b in ranks]
        if not found:
            break
        _, i = min(found)
        pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]
    ids = [ranks[piece] for piece in pieces]
    return ids if bos is None else [bos, *ids]
    ### END SOLUTION

# %% [markdown] key="tokenization.decode-task" role="task"
# ## Decode
#
# Back to text. `vocab` is a dict from each id to its bytes, in any order. Bytes that are no UTF-8 show as U+FFFD, as
# many of them as `errors="replace"` gives.

# %% key="tokenization.decode" role="answer"
# answer: tokenization.decode
def decode(ids, vocab):
    """ids: list of int, vocab: {int: bytes} -> str."""
    ### BEGIN SOLUTION
    return b"".join(vocab[i] for i in ids).decode("utf-8", errors="replace")
    ### END SOLUTION

# %% [markdown] key="tokenization.stream-task" role="task"
# ## Stream without breaking a character
#
# A chat window shows text as tokens come. Return one string for each id, and one more for the end. Each holds what has
# become complete with that token; the bytes of an unfinished character wait. A byte that can never become part of a
# character shows as U+FFFD as soon as that is certain. The bytes of a character that is broken off show as one U+FFFD
# together: when a byte comes that does not continue it, or in the last string. `codecs` is there already and need not be
# imported.
#
# 🙂 is four bytes. If each comes as a token of its own: `["", "", "", "🙂", ""]`.

# %% key="tokenization.stream" role="answer"
# answer: tokenization.stream
def stream(ids, vocab):
    """ids: list of int, vocab: {int: bytes} -> list of len(ids) + 1 strings."""
    ### BEGIN SOLUTION
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    return [decoder.decode(vocab[i]) for i in ids] + [decoder.decode(b"", final=True)]
    ### END SOLUTION

# %% [markdown] key="tokenization.encode_special-task" role="task"
# ## Special tokens, and text that looks like them
#
# `special` maps strings such as `<|im_end|>` to ids of their own. Only those in `allowed` may become such an id; any
# other is text like all text, and merges may reach across its edges. Read from left to right; where several allowed
# ones begin at the same place, the longest counts. `encode` of the exercise above is given.
#
# With nothing allowed, `"<|im_end|>"` is simply ten characters: that is how a server treats what a stranger typed.

# %% key="tokenization.encode_special" role="answer"
# answer: tokenization.encode_special
def encode_special(text, ranks, special, allowed):
    """text: str, ranks: {bytes: int}, special: {str: int}, allowed: list of str -> list of ids."""
    ### BEGIN SOLUTION
    if not allowed:
        return encode(text, ranks)
    longest_first = sorted(allowed, key=len, reverse=True)
    pattern = "(" + "|".join(re.escape(name) for name in longest_first) + ")"
    ids = []
    for part in re.split(pattern, text):
        ids += [special[part]] if part in allowed else encode(part, ranks)
    return ids
    ### END SOLUTION
