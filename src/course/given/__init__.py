"""Modules that an answer may import: models and functions of earlier exercises, free of expected values.

Their source travels to the worker with the job, so they may import only torch, numpy and the standard library.
"""
