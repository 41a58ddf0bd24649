"""`kernelcheck.install`: the switch of interpreter.py, and the first launch behind it."""

from . import interpreter


def install(autotune=None) -> None:
    """Switch Triton to its interpreter, repair it, and launch a first small kernel (see warm.py).

    Idempotent; call it before the first `import triton`. autotune: which config an @triton.autotune kernel runs with,
    since nothing is timed here: an index into its configs (0 unless set), or a function `configs -> config`.
    Raises RuntimeError if triton was imported too early or is not a supported release, TritonChanged if a
    private name is not what it was.
    """
    known = interpreter.installed()
    interpreter.install(autotune)
    if not known:
        from . import warm  # imports Triton, which must come after the switch

        warm.run()
