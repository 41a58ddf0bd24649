"""A class: who handed in what, when, and by which rules it counts."""
