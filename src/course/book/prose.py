"""Words and numbers of a run, as a page writes them: one spelling for all chapters."""

from __future__ import annotations

import platform

from IPython.display import Markdown


def say(text: str) -> Markdown:
    """Prose with numbers of this run in it, parsed as MyST: roles, maths and citations work."""
    return Markdown(text)


def shown(token: str) -> str:
    """A token as text in which a blank and a line break can be seen."""
    return token.replace(" ", "␣").replace("\n", "⏎")


def readable(piece: bytes) -> str:
    """A token's bytes as text, or in hexadecimal when they are no whole characters."""
    try:
        return shown(piece.decode())
    except UnicodeDecodeError:
        return piece.hex(" ")


def signed(value: float, digits: int = 2) -> str:
    """A number with a real minus sign; never minus zero."""
    text = f"{value:.{digits}f}"
    return text.lstrip("-") if float(text) == 0 else text.replace("-", "−")


def counted(number: int, noun: str) -> str:
    """``1 byte``, ``2 bytes``, ``1,024 bytes``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def machine() -> str:
    """The processor that built this page, since a time means nothing without it."""
    import torch

    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            name = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.processor() or platform.machine()
    return f"{name}, {counted(torch.get_num_threads(), 'thread')}"
