"""Guarantees from calibration models: pure functions of arrays, one idea per file."""
