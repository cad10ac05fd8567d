"""Calibration: what a model looks like, whom it resembles, and which promise that allows."""
