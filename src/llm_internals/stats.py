"""How fast a generation was: time to the first token, time per token after it, tokens per second."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field


@dataclass
class GenerationStats:
    """When each token of one generation came, in seconds since it was asked for."""

    num_prompt_tokens: int
    arrivals: list[float] = field(default_factory=list)

    def watch(self, tokens: Iterator[int], clock: Callable[[], float] = time.perf_counter) -> Iterator[int]:
        """Pass tokens on and note when each came. The clock starts when the first is asked for."""
        start = clock()
        for token_id in tokens:
            self.arrivals.append(clock() - start)
            yield token_id

    @property
    def num_output_tokens(self) -> int:
        return len(self.arrivals)

    @property
    def ttft(self) -> float | None:
        """Time to first token, s: the prompt's forward pass and one choice. None before any token."""
        return self.arrivals[0] if self.arrivals else None

    @property
    def tpot(self) -> float | None:
        """Mean time per output token after the first, s. None with fewer than two tokens."""
        if len(self.arrivals) < 2:
            return None
        return (self.arrivals[-1] - self.arrivals[0]) / (len(self.arrivals) - 1)

    @property
    def tokens_per_second(self) -> float | None:
        """Output tokens over the whole time, the prompt's included."""
        return len(self.arrivals) / self.arrivals[-1] if self.arrivals else None

    def __str__(self) -> str:
        counts = f"{self.num_prompt_tokens} prompt tokens, {self.num_output_tokens} output tokens"
        if not self.arrivals:
            return counts
        parts = [counts, f"TTFT {self.ttft * 1000:.0f} ms"]
        if self.tpot is not None:
            parts.append(f"TPOT {self.tpot * 1000:.1f} ms")
        parts.append(f"{self.tokens_per_second:.1f} tokens/s ({self.arrivals[-1]:.2f} s in all)")
        return ", ".join(parts)
