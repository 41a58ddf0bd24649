"""Run an answer behind walls: the sandbox, the process that answers are forked from, the worker that waits."""
