"""The least that a search can cost: the imports, one run of the reference with everything marked,
and a build and a run of each probe that a session asked. ``prepare`` cuts them out beforehand,
which is not counted; run as a script this file then does no more than that.

    python limit.py FOLDER
"""

import contextlib
import os
import sys
from pathlib import Path


def prepare(session: Path, folder: Path) -> tuple[int, int]:
    """Write what the probes of an ended session ran as models and arrays into ``folder``; how many
    of how many could be. One that nobody waited for, and one that asks no engine about a part, is
    none of them."""
    import numpy as np
    import onnx

    from narrowdown.engines.graph import load
    from narrowdown.engines.probe import Measure
    from narrowdown.engines.store import Store
    from narrowdown.engines.workers.part import Part, feeds_by_name
    from narrowdown.wizard.session import journal
    from narrowdown.wizard.session.events import ProbeStarted

    folder.mkdir()
    store = Store(session)
    asked = {
        e.key: e.probe
        for e in journal.read(session / journal.NAME)
        if isinstance(e, ProbeStarted) and not e.speculative
    }
    probes = [probe for probe in asked.values() if isinstance(probe, Measure)]
    done, whole = 0, None
    for number, probe in enumerate(probes):
        model = load.load(store, probe.model)
        for weight in (Path(model.weights_dir) / "weights").glob("*"):
            (folder / "weights").mkdir(exist_ok=True)
            with contextlib.suppress(FileExistsError):
                os.link(weight, folder / "weights" / weight.name)
        try:
            part = Part(
                store, model, probe.candidate, probe.inputs, probe.reference, lambda _: None
            )
            feeds = [part.feed(sample) for sample in probe.samples]
            made = part.cut(feeds[0].arrays, feeds[0].constants)
            onnx.save(made.model, folder / f"{number}.onnx")
            named = [feeds_by_name(made, feed.arrays) for feed in feeds]
        except (
            Exception
        ) as error:  # whatever cannot be cut is left out, and counted so: the limit is the lower
            print(f"probe {number} is left out: {error}", file=sys.stderr)
            continue
        for row, arrays in enumerate(named):
            np.savez(folder / f"{number}.{row}.npz", **arrays)
        done += 1
        if whole is None and probe.candidate.nodes == "all":
            whole = number
            marked = onnx.ModelProto()
            marked.CopyFrom(made.model)
            have = {o.name for o in marked.graph.output}
            marked.graph.output.extend(
                onnx.ValueInfoProto(name=n)
                for node in marked.graph.node
                for n in node.output
                if n and n not in have
            )
            onnx.save(marked, folder / "reference.onnx")
            np.savez(folder / "reference.0.npz", **named[0])
    return done, len(probes)


def main(folder: Path) -> None:
    import numpy as np
    import onnx  # noqa: F401  it is part of what any such tool loads
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    for path in sorted(folder.glob("*.onnx")):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        if path.stem == "reference":
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        try:
            session = onnxruntime.InferenceSession(
                path, options, providers=["CPUExecutionProvider"]
            )
            for rows in sorted(folder.glob(f"{path.stem}.*.npz")):
                session.run(None, dict(np.load(rows)))
        except (
            Exception
        ) as error:  # an edited part may be none for this engine: the limit is the lower
            print(f"{path.name}: {error}", file=sys.stderr)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
