"""Given to exercises of chapter 01: the encoder of an earlier exercise, as anyone who has solved it wrote it."""


def encode(text: str, ranks: dict[bytes, int]) -> list[int]:
    """Byte-level BPE, no special tokens: join the pair of lowest rank, of equals the leftmost, until none is left."""
    pieces = [bytes([byte]) for byte in text.encode()]
    while True:
        found = [(ranks[a + b], i) for i, (a, b) in enumerate(zip(pieces, pieces[1:])) if a + b in ranks]
        if not found:
            return [ranks[piece] for piece in pieces]
        _, i = min(found)
        pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]
