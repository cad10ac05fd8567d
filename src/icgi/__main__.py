"""`python -m icgi`, and the `icgi` command."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C while it loads ends it as quietly as later on."""
    try:
        from icgi.cli import main as run
    except KeyboardInterrupt:
        print("icgi: interrupted before there was an answer", file=sys.stderr)
        raise SystemExit(130) from None
    run()


if __name__ == "__main__":
    main()
