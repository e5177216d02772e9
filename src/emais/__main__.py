"""`python -m emais` is the `emais` command."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
