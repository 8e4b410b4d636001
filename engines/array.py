"""An array of numbers, of whatever shape and type."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
