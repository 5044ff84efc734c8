"""`python -m aiokafkawire` is the command line."""

import sys

from aiokafkawire.cli import main

if __name__ == "__main__":
    sys.exit(main())
