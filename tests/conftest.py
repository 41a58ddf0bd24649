"""Triton decides at its first import whether its own functions are interpreted: decide before any test imports it."""

import os

os.environ["TRITON_INTERPRET"] = "1"
