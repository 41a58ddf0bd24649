"""How the course is taught: authoring, specs, practice checks, grading, the book, and the command `course`."""

__version__ = "2026.1"
