"""One resumable map under everything that runs many jobs: what is done is never done again."""
