"""``python -m autotune.cli`` is ``autotune``."""

from autotune.cli.app import main

if __name__ == "__main__":
    main()
