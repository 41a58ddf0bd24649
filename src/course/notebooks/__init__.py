"""Read a notebook as data: its answers, its edition. Nothing of it is executed."""
