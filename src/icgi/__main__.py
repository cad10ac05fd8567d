"""`python -m icgi`: the same as the `icgi` command."""

from icgi.cli import main

if __name__ == "__main__":
    main()
