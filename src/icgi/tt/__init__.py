"""Tensor trains: arrays and compiled operations, no models."""
