"""Calibration: features of a model, the group it belongs to, and the guarantee that follows."""
