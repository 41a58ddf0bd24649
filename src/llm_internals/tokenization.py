"""Byte-level byte-pair encoding: train it, encode with it, decode, and watch every merge.

A text becomes ids in four steps: special tokens are cut out, the rest is split into words, each word
becomes its UTF-8 bytes, and neighbouring pieces are merged, lowest rank first, until no merge applies. What
this module does not do: Unicode normalization, WordPiece, SentencePiece, byte fallback.
"""

import codecs
import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Literal

import regex

Pair = tuple[bytes, bytes]
Splitter = Callable[[str], list[str]]

# The split that GPT-2 published and most byte-level tokenizers still use: English contractions, letters,
# digits and other signs, each with at most one leading space, and runs of white space.
GPT2_SPLIT = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
SINGLE_DIGITS = r"\p{N}|\P{N}+"
LONG_WORD = 64  # bytes; from here on merge_long wins


def regex_splitter(*patterns: str) -> Splitter:
    """A function from text to its pieces, cut by each pattern in turn; text between matches stays."""
    compiled = [regex.compile(pattern) for pattern in patterns]

    def split(text: str) -> list[str]:
        pieces = [text] if text else []
        for pattern in compiled:
            pieces = [part for piece in pieces for part in _matches_and_gaps(pattern, piece)]
        return pieces

    return split


def _matches_and_gaps(pattern: regex.Pattern, text: str) -> Iterator[str]:
    end = 0
    for match in pattern.finditer(text):
        if end < match.start():
            yield text[end : match.start()]
        if match.group():
            yield match.group()
        end = match.end()
    if end < len(text):
        yield text[end:]


split_words = regex_splitter(SINGLE_DIGITS, GPT2_SPLIT)


# ----------------------------------------------------------------- merging


@dataclass(frozen=True)
class MergeStep:
    """The pieces of a word, and the merge that led here: which pair, its rank, the place of the new piece.

    In the first step, before any merge, those three are None.
    """

    pieces: tuple[bytes, ...]
    pair: Pair | None = None
    rank: int | None = None
    position: int | None = None


def merge_steps(pieces: Sequence[bytes], ranks: Mapping[Pair, int]) -> Iterator[MergeStep]:
    """Apply merges one at a time: of all neighbouring pairs the one of lowest rank, of equals the leftmost.

    `ranks` says in which order training made the merges. The time grows with the square of the word.
    """
    pieces = list(pieces)
    yield MergeStep(tuple(pieces))
    while True:
        candidates = [(ranks[pair], i) for i, pair in enumerate(pairwise(pieces)) if pair in ranks]
        if not candidates:
            return
        rank, i = min(candidates)
        pair = (pieces[i], pieces[i + 1])
        pieces[i : i + 2] = [pair[0] + pair[1]]
        yield MergeStep(tuple(pieces), pair, rank, i)


def merge(pieces: Sequence[bytes], ranks: Mapping[Pair, int]) -> list[bytes]:
    """The pieces that are left when no merge applies: the last of `merge_steps`."""
    pieces = list(pieces)
    while len(pieces) > 1:
        pairs = [ranks.get(pair) for pair in pairwise(pieces)]
        lowest = min((rank for rank in pairs if rank is not None), default=None)
        if lowest is None:
            break
        i = pairs.index(lowest)
        pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]
    return pieces


def merge_long(pieces: Sequence[bytes], ranks: Mapping[Pair, int]) -> list[bytes]:
    """The fast twin of `merge`: n log n for n pieces, so that a long run without a space cannot hang.

    Candidate merges wait in a heap by (rank, place). Pieces form a linked list; a candidate is stale, and is
    dropped, when one of its two pieces has been merged since.
    """
    pieces: list[bytes | None] = list(pieces)
    following = list(range(1, len(pieces) + 1))
    previous = list(range(-1, len(pieces) - 1))
    heap = [(ranks[pair], i, pair) for i, pair in enumerate(pairwise(pieces)) if pair in ranks]
    heapq.heapify(heap)

    def offer(left: int, right: int) -> None:
        if left >= 0 and right < len(pieces):
            pair = (pieces[left], pieces[right])
            if pair in ranks:
                heapq.heappush(heap, (ranks[pair], left, pair))

    while heap:
        _, left, pair = heapq.heappop(heap)
        right = following[left]
        if right >= len(pieces) or (pieces[left], pieces[right]) != pair:
            continue
        pieces[left], pieces[right] = pair[0] + pair[1], None
        following[left] = following[right]
        if following[right] < len(pieces):
            previous[following[right]] = left
        offer(previous[left], left)
        offer(left, following[left])
    return [piece for piece in pieces if piece is not None]


# ----------------------------------------------------------------- training


def train_bpe(text: str, vocab_size: int, split: Splitter = split_words, min_count: int = 2) -> list[Pair]:
    """Learn merges from a text: again and again, join the pair of neighbours that occurs most often.

    Returns the merges in the order they were learnt; their number is vocab_size - 256, or less when no pair
    occurs `min_count` times any more. Of equally frequent pairs the one whose pieces are older wins (bytes
    are oldest, in GPT-2's order). Counts are kept up to date: a merge revisits only the words that hold its
    pair.
    """
    if vocab_size < 256:
        raise ValueError(f"vocab_size must be at least 256, one token per byte; got {vocab_size}")
    age = {piece: i for i, piece in enumerate(BYTE_ORDER)}
    words = _WordCounts(text, split)
    heap = [(-count, age[a], age[b], (a, b)) for (a, b), count in words.pair_counts.items()]
    heapq.heapify(heap)
    merges: list[Pair] = []
    while heap and len(merges) < vocab_size - 256:
        negative_count, _, _, best = heapq.heappop(heap)
        if words.pair_counts[best] != -negative_count:
            continue  # an old entry: the count has changed since, and was offered again
        if words.pair_counts[best] < min_count:
            break
        merges.append(best)
        age[best[0] + best[1]] = len(age)
        for a, b in words.merge(best):
            heapq.heappush(heap, (-words.pair_counts[a, b], age[a], age[b], (a, b)))
    return merges


class _WordCounts:
    """The different words of a text as pieces, how often each pair of neighbours occurs, and where."""

    def __init__(self, text: str, split: Splitter):
        self.words = [(_as_bytes(word), count) for word, count in Counter(split(text)).items()]
        self.pair_counts: Counter[Pair] = Counter()
        self.holders: dict[Pair, set[int]] = defaultdict(set)  # pair -> the words that hold it, or did
        for index in range(len(self.words)):
            self._add(index, +1)

    def merge(self, pair: Pair) -> set[Pair]:
        """Join a pair wherever it occurs; returns the pairs whose counts have changed and are not 0."""
        changed: set[Pair] = set()
        for index in self.holders.pop(pair):
            changed |= self._add(index, -1)
            pieces, count = self.words[index]
            self.words[index] = (_merge_everywhere(pieces, pair), count)
            changed |= self._add(index, +1)
        return {other for other in changed if self.pair_counts[other] > 0}

    def _add(self, index: int, sign: int) -> set[Pair]:
        """Count a word's pairs in (+1) or out (-1)."""
        pieces, count = self.words[index]
        for pair in pairwise(pieces):
            self.pair_counts[pair] += sign * count
            if sign > 0:
                self.holders[pair].add(index)
        return set(pairwise(pieces))


def _merge_everywhere(pieces: Sequence[bytes], pair: Pair) -> list[bytes]:
    """Join every occurrence of one pair, left to right."""
    merged: list[bytes] = []
    i = 0
    while i < len(pieces):
        if tuple(pieces[i : i + 2]) == pair:
            merged.append(pair[0] + pair[1])
            i += 2
        else:
            merged.append(pieces[i])
            i += 1
    return merged


def _as_bytes(word: str) -> list[bytes]:
    """A word's UTF-8 bytes, each its own piece."""
    return [bytes([byte]) for byte in word.encode()]


# ----------------------------------------------------------------- printable bytes


def _printable_bytes() -> dict[int, str]:
    """GPT-2's way to write any byte as one visible character: printable Latin-1 as itself, the others, in
    order, from U+0100 on. So a space is written Ġ and a line feed Ċ.
    """
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {byte: chr(byte) for byte in visible} | {byte: chr(256 + i) for i, byte in enumerate(hidden)}


BYTE_TO_CHARACTER = _printable_bytes()
CHARACTER_TO_BYTE = {character: byte for byte, character in BYTE_TO_CHARACTER.items()}
BYTE_ORDER = [bytes([CHARACTER_TO_BYTE[character]]) for character in sorted(CHARACTER_TO_BYTE)]


def to_printable(piece: bytes) -> str:
    """b" the" -> "Ġthe": how vocabulary files and figures write a piece."""
    return "".join(BYTE_TO_CHARACTER[byte] for byte in piece)


def from_printable(written: str) -> bytes:
    """The inverse of `to_printable`; KeyError for a character that stands for no byte."""
    return bytes(CHARACTER_TO_BYTE[character] for character in written)


# ----------------------------------------------------------------- the tokenizer

DEFAULT_SYSTEM_PROMPT = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
Message = Mapping[str, str]


class Tokenizer:
    """Text to ids and back, with one vocabulary.

    Some vocabularies lack a token for a few byte values (SmolLM2's lacks 21, most of which no UTF-8 text
    contains); as in HF `tokenizers`, such a byte is left out. `missing_bytes` lists them.
    """

    def __init__(
        self,
        vocab: Mapping[bytes, int],
        merges: Sequence[Pair],
        special_tokens: Mapping[str, int] | None = None,
        split: Splitter = split_words,
        *,
        whole_words_first: bool = False,
        bos_token_id: int | None = None,
        eos_token_id: int | None = None,
        chat_template: str | None = None,
    ):
        """`whole_words_first`: a word that is a token needs no merges (HF's ignore_merges, as in Llama 3)."""
        self.vocab = dict(vocab)
        self.ranks = {pair: rank for rank, pair in enumerate(merges)}
        self.special_tokens = dict(special_tokens or {})
        self.split = split
        self.whole_words_first = whole_words_first
        self.bos_token_id = bos_token_id
        self.eos_token_id = eos_token_id
        self.chat_template = chat_template
        self.id_to_bytes = {token_id: piece for piece, token_id in self.vocab.items()}
        self.id_to_bytes |= {token_id: text.encode() for text, token_id in self.special_tokens.items()}
        self.missing_bytes = frozenset(b for b in range(256) if bytes([b]) not in self.vocab)
        for left, right in self.ranks:
            if left + right not in self.vocab:
                raise ValueError(f"the merge of {left!r} and {right!r} makes no token of the vocabulary")
        self._encode_short = lru_cache(maxsize=1 << 16)(self._encode_word)

    @classmethod
    def from_merges(cls, merges: Sequence[Pair], special_tokens: Sequence[str] = (), **options) -> "Tokenizer":
        """Number the tokens as HF does: special tokens, the 256 bytes in GPT-2's order, the merges."""
        pieces = [*BYTE_ORDER, *(left + right for left, right in merges)]
        vocab = {piece: len(special_tokens) + i for i, piece in enumerate(pieces)}
        return cls(vocab, merges, {text: i for i, text in enumerate(special_tokens)}, **options)

    @property
    def vocab_size(self) -> int:
        return max(self.id_to_bytes) + 1

    def encode(self, text: str, allowed_special: Literal["all"] | Collection[str] = "all") -> list[int]:
        """Text to ids. A special token's text gives its id if it is allowed, else it is text like any other.

        Pass `allowed_special=()` for text from a stranger: then no input can end a turn or forge one.
        """
        special = self.special_tokens if allowed_special == "all" else self._known_special(allowed_special)
        token_ids: list[int] = []
        for part in _split_at(text, special):
            if part in special:
                token_ids.append(self.special_tokens[part])
                continue
            for word in self.split(part):
                token_ids += self._encode_short(word) if len(word) < LONG_WORD else self._encode_word(word)
        return token_ids

    def _encode_word(self, word: str) -> tuple[int, ...]:
        piece = _utf8(word)
        if self.whole_words_first and piece in self.vocab:
            return (self.vocab[piece],)
        pieces = [piece for piece in _as_bytes(word) if piece in self.vocab]
        merged = (merge if len(pieces) < LONG_WORD else merge_long)(pieces, self.ranks)
        return tuple(self.vocab[piece] for piece in merged)

    def _known_special(self, allowed: Collection[str]) -> Collection[str]:
        unknown = [text for text in allowed if text not in self.special_tokens]
        if unknown or isinstance(allowed, str):
            raise ValueError(f"not special tokens of this tokenizer: {unknown or allowed}")
        return allowed

    def decode_bytes(self, token_ids: Iterable[int], skip_special_tokens: bool = False) -> bytes:
        """The bytes that the ids stand for. ValueError for an id outside the vocabulary."""
        special = set(self.special_tokens.values()) if skip_special_tokens else ()
        try:
            return b"".join(self.id_to_bytes[int(i)] for i in token_ids if int(i) not in special)
        except KeyError as unknown:
            raise ValueError(f"id {unknown} is not in the vocabulary of {self.vocab_size} tokens") from None

    def decode(self, token_ids: Iterable[int], skip_special_tokens: bool = False) -> str:
        """The text that the ids stand for; bytes that are not valid UTF-8 become U+FFFD."""
        return self.decode_bytes(token_ids, skip_special_tokens).decode("utf-8", errors="replace")

    def trace(self, word: str) -> list[MergeStep]:
        """Every step from a word's bytes to its tokens. ValueError if `word` splits into several."""
        if len(self.split(word)) != 1:
            raise ValueError(f"{word!r} is not one word but {self.split(word)}: trace them one by one")
        return list(merge_steps([piece for piece in _as_bytes(word) if piece in self.vocab], self.ranks))

    def chat(self, messages: Sequence[Message], add_generation_prompt: bool = True) -> str:
        """A conversation as the text that the model was trained on; see `chat_text`."""
        self._require_chatml()
        return chat_text(messages, add_generation_prompt)

    def encode_chat(self, messages: Sequence[Message], add_generation_prompt: bool = True) -> list[int]:
        """A conversation as ids. A special token written inside a message stays plain text.

        Equal to encode(chat(messages)) when no message contains one.
        """
        self._require_chatml()
        start, end = self.special_tokens[TURN_START], self.special_tokens[TURN_END]
        token_ids: list[int] = []
        for message in _with_system_prompt(messages):
            body = self.encode(f"{message['role']}\n{message['content']}", allowed_special=())
            token_ids += [start, *body, end, *self.encode("\n")]
        if add_generation_prompt:
            token_ids += [start, *self.encode("assistant\n")]
        return token_ids

    def _require_chatml(self) -> None:
        if TURN_START not in self.special_tokens or TURN_END not in self.special_tokens:
            raise ValueError("this tokenizer has no chat format known here (ChatML, as SmolLM2 uses)")


def _split_at(text: str, separators: Collection[str]) -> list[str]:
    """Cut out every separator, the longest where several fit; the parts joined give the text."""
    if not separators:
        return [text]
    by_length = sorted(separators, key=len, reverse=True)
    return regex.split("(" + "|".join(map(regex.escape, by_length)) + ")", text)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"the text holds half of a surrogate pair, which is no character: {error}") from None


class StreamingDecoder:
    """Turns ids into text as they come, and never shows part of a character.

    A character of several bytes may be spread over several tokens: its bytes wait until the last has come.
    All that `push` and `flush` return, joined, equals `tokenizer.decode` of all the ids.
    """

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool = False):
        self._tokenizer = tokenizer
        self._skip_special_tokens = skip_special_tokens
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_id: int) -> str:
        """The text that this id completes; empty while a character is unfinished."""
        return self._utf8.decode(self._tokenizer.decode_bytes([token_id], self._skip_special_tokens))

    def flush(self) -> str:
        """At the end: U+FFFD for a character that never got its last byte, else nothing."""
        return self._utf8.decode(b"", final=True)


# ----------------------------------------------------------------- chat

TURN_START, TURN_END = "<|im_start|>", "<|im_end|>"


def chat_text(messages: Sequence[Message], add_generation_prompt: bool = True) -> str:
    """Write a conversation in ChatML, SmolLM2's chat format.

    messages: [{"role": "user", "content": "..."}, ...]. Without a system message first, SmolLM2's own is put
    there. `add_generation_prompt` opens the assistant's turn, so that the model goes on with its answer.
    """
    turns = [f"{TURN_START}{m['role']}\n{m['content']}{TURN_END}\n" for m in _with_system_prompt(messages)]
    if add_generation_prompt:
        turns.append(f"{TURN_START}assistant\n")
    return "".join(turns)


def _with_system_prompt(messages: Sequence[Message]) -> list[Message]:
    if not messages:
        raise ValueError("a chat needs at least one message")
    for message in messages:
        if not isinstance(message, Mapping) or not {"role", "content"} <= message.keys():
            raise ValueError(f'a message is {{"role": ..., "content": ...}}, got {message!r}')
    if messages[0]["role"] == "system":
        return list(messages)
    return [{"role": "system", "content": DEFAULT_SYSTEM_PROMPT}, *messages]
