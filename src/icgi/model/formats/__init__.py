"""File formats of models, one file each."""
