"""``python -m wizard``: the same as the console script."""

import sys

from wizard.cli import main

sys.exit(main())
