"""The fake engine of the tests: a plug-in, found by its entry point as a stranger's is."""

import os
import sys
from pathlib import Path

FOLDER = str(Path(__file__).parent / "plugins" / "fake")


def put_on_path() -> None:
    """This process finds the engine from here on, and so does all that it starts."""
    if FOLDER in sys.path:
        return
    sys.path.append(FOLDER)
    given = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = f"{given}{os.pathsep}{FOLDER}" if given else FOLDER
