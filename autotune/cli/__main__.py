"""Runs ``autotune``, also by ``python -m autotune.cli``."""

import signal

from autotune.cli.stopping import on_interrupt


def main() -> None:
    """Runs the command line; Ctrl-C during the imports ends the process without a traceback."""
    on_interrupt(signal.SIG_DFL)
    from autotune.cli.app import main

    main()


if __name__ == "__main__":
    main()
