"""The command `llm-internals`: generate text with the library, in a terminal.

    llm-internals generate "The capital of France is" --max-tokens 20 --stats

Text goes to stdout as it comes, everything else to stderr. Exit codes: 0, 1 when the model could not be loaded,
2 for a wrong argument, 130 after Ctrl-C, 141 when the reader of the output went away.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    options = _parser().parse_args(arguments)
    try:
        return _generate(options)
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # as in `| head -1`; what Python would still flush at its end goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _generate(options: argparse.Namespace) -> int:
    from .errors import CheckpointError  # torch takes seconds to import: --help and typing errors come first

    try:
        _stream(options)
    except ValueError as error:
        print(f"llm-internals: {error}", file=sys.stderr)
        return 2
    except CheckpointError as error:
        print(f"llm-internals: {error}", file=sys.stderr)
        return 1
    return 0


def _stream(options: argparse.Namespace) -> None:
    """Load the model, then print each piece of text as soon as its last byte is known."""
    from .checkpoint import load
    from .kv_cache import check_request, generate_cached, generate_naive
    from .stats import GenerationStats
    from .tokenization import StreamingDecoder

    model, tokenizer, config = load(options.model, options.device, options.dtype)
    if tokenizer is None:
        raise ValueError(f"{options.model} holds no tokenizer.json, so there is no way from text to ids")
    prompt = _standard_input() if options.prompt == "-" else options.prompt
    chat = [{"role": "user", "content": prompt}]
    token_ids = tokenizer.encode_chat(chat) if options.chat else tokenizer.encode(prompt)
    check_request(model, token_ids, options.max_tokens)
    stats = GenerationStats(len(token_ids))
    tokens = (generate_naive if options.no_cache else generate_cached)(
        model,
        token_ids,
        options.max_tokens,
        temperature=options.temperature,
        seed=options.seed,
        stop_token_ids=config.eos_token_ids,
    )
    decoder = StreamingDecoder(tokenizer, skip_special_tokens=True)
    try:
        for token_id in stats.watch(tokens):
            print(decoder.push(token_id), end="", flush=True)
        print(decoder.flush(), flush=True)
    finally:
        if options.stats:
            print(stats, file=sys.stderr)


def _standard_input() -> str:
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"standard input is not {error.encoding.upper()}: byte {error.object[error.start]:#04x} at place "
            f"{error.start} starts no character. Convert it first, as in: iconv -f latin1 -t utf-8"
        ) from None


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, not the whole usage."""
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="llm-internals", description="The inference library of the course LLM Internals.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="generate")
    generate = commands.add_parser(
        "generate",
        help="continue a text",
        description="Continue a text, greedily unless --temperature is given. Prints the new text only.",
    )
    generate.add_argument("prompt", help='the text to continue; "-" reads it from standard input')
    generate.add_argument("--chat", action="store_true", help="send the text as a user's message in a chat")
    generate.add_argument(
        "--max-tokens", type=_count, default=100, metavar="N", help="new tokens at most (default: 100)"
    )
    generate.add_argument(
        "--temperature", type=_temperature, default=0.0, metavar="T", help="0 is greedy (default), 1 the model's own"
    )
    generate.add_argument("--seed", type=_seed, metavar="N", help="equal seeds draw equal texts")
    generate.add_argument("--model", default="smollm2-135m", help="smollm2-135m (default) or a checkpoint folder")
    generate.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), help="default: as stored")
    generate.add_argument("--device", help="cpu or cuda (default: cuda where there is one)")
    generate.add_argument("--no-cache", action="store_true", help="recompute every token at each step")
    generate.add_argument("--stats", action="store_true", help="print TTFT, TPOT and tokens/s to stderr")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def _seed(text: str) -> int:
    try:
        value = int(text)
    except ValueError:  # also for more digits than Python reads
        value = 2**64
    if not -(2**63) <= value < 2**64:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number of 64 bits")
    return value


def _temperature(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 up")
    return value


if __name__ == "__main__":
    sys.exit(main())
