"""``python -m gradprop`` is the command ``gradprop``."""

import sys

from gradprop.cli import main

if __name__ == "__main__":
    sys.exit(main())
