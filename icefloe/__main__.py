"""``python -m icefloe``: the same as the ``icefloe`` command."""

import sys

from icefloe.connector.cli import main

if __name__ == "__main__":
    sys.exit(main())
