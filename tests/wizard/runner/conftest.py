"""Tests of the runner share one small world, ``house.py``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
