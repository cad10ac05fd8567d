"""Kernels are compiled in tests, never interpreted: the same numbers to the last bit every time."""

import os

os.environ.setdefault("ICGI_INTERPRET", "0")
