"""Networks that estimate marginals, and the engine that runs the shipped ones."""
