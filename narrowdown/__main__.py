"""``python -m narrowdown``: the same as the console script."""

import sys

from narrowdown.wizard.cli import main

sys.exit(main())
