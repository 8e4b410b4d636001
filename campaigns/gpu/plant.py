"""A checker for repeated builds: ``plant.py MODEL MEMORY`` builds with Polygraphy, leaves
``replay.json``, and fails where a kernel is met that it holds to be bad: of the first layer whose
choice wavers, any but the first. ``MEMORY`` carries that from run to run."""

import json
import subprocess
import sys
from pathlib import Path

model, memory = sys.argv[1], Path(sys.argv[2])
tool = [sys.executable, "-c", "import sys; from polygraphy.tools import main; sys.exit(main())"]
done = subprocess.run(
    [*tool, "run", model, "--trt", "--save-tactics", "replay.json"],
    capture_output=True,
    text=True,
    check=False,
)
if done.returncode:
    sys.exit(f"the build itself failed: {done.stderr[-300:]}")
chosen = {
    layer: json.dumps(found, sort_keys=True)
    for layer, found in json.loads(Path("replay.json").read_text())["replay"].items()
}
known = json.loads(memory.read_text()) if memory.exists() else {"first": chosen, "layer": ""}
wavering = [layer for layer, found in chosen.items() if known["first"].get(layer, found) != found]
known["layer"] = known["layer"] or (wavering[0] if wavering else "")
memory.write_text(json.dumps(known))
sys.exit(known["layer"] in wavering)
