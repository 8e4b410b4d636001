"""Records the exports of ``tiny.py`` anew: ``python record.py PYTHON``, where PYTHON has torch. What
tells of the machine is taken out of the models."""

import re
import shutil
import sys
import tempfile
from pathlib import Path

import onnx

from narrowdown.engines.exporting import launch

HERE = Path(__file__).parent
RECORDED = HERE / "recorded"
FILES = ("inputs-0.npz", "golden-0.npz", "export.json")


def record(python: str, name: str, target: Path) -> None:
    """The export of ``tiny.py:name`` into a folder, which is made anew."""
    with tempfile.TemporaryDirectory() as made:
        launch.run_export(python, launch.Request(f"{HERE / 'tiny.py'}:{name}"), Path(made))
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for file in FILES:
            shutil.copy(Path(made) / file, target)
        shutil.copy(launch.find_model(Path(made)), target / "model.onnx")
    model = onnx.load(target / "model.onnx")
    for node in model.graph.node:
        for entry in node.metadata_props:
            if entry.key.endswith("stack_trace"):
                lines = re.findall(
                    rf'File "{re.escape(str(HERE))}/(tiny.py)", line (\d+)', entry.value
                )
                entry.value = "\n".join(
                    f'File "models/{file}", line {line}' for file, line in lines
                )
    model.doc_string = model.graph.doc_string = ""
    onnx.save(model, target / "model.onnx")
    told = (target / "export.json").read_text(encoding="utf-8")
    (target / "export.json").write_text(
        told.replace(HERE.name + "/", "models/") + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    for each in ("right", "planted"):
        record(sys.argv[1], each, RECORDED / each)
