"""The one error that this library adds to Python's own."""


class CheckpointError(RuntimeError):
    """A checkpoint could not be fetched, prepared or read. The message says what mends it."""
