"""The `bertworks` command, and `python -m bertworks`, for torchrun and for places without the script."""

import signal
import sys


def main() -> None:
    """The `bertworks` command. What it imports takes a while, in which Ctrl-C is no reason for a traceback either."""
    try:
        from bertworks.cli.main import run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(128 + signal.SIGINT)


if __name__ == "__main__":
    main()
