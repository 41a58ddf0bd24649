"""Is an answer right, and what is said about it? No notebook, no process, no points."""
