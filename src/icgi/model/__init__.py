"""What a model is: arrays, evidence, reductions, files, elimination orders."""
