"""Random model families, the paper's splits, labels and stored sets."""
