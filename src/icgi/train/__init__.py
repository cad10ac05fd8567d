"""Training: one configuration, one readable loop, labels made where they are needed."""
