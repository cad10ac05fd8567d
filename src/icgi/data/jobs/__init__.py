"""The resumable map that runs many jobs: what is finished is kept and not run again."""
