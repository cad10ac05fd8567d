"""Exact engines: enumeration (the oracle), junction tree, Pfaffian."""
