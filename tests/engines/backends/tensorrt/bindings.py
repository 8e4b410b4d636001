"""The real bindings of NVIDIA's versions, without TensorRT: which of the names that the backend
uses each of them has.

    python tests/engines/backends/tensorrt/bindings.py

downloads the wheels of ``VERSIONS`` with pip, gives each the few C functions that it wants of
TensorRT's libraries (made by gcc, they do nothing), imports it in a process of its own and writes
``bindings.json``: name -> the first and last version that has it, and what it takes. In a minute,
on any Linux machine. ``load`` does that for one version: a real module, real enumerations, real
signatures, whose builder is nothing.
"""

import argparse
import ast
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import narrowdown.engines.backends.tensorrt

BACKEND = Path(
    narrowdown.engines.backends.tensorrt.__file__
).parent  # as installed: the tests also run beside a wheel
TABLE = Path(__file__).with_name("bindings.json")
VERSIONS = (
    "10.0.1",
    "10.6.0",
    "10.8.0.43",
    "10.12.0.36",
    "10.15.1.29",
    "11.0.0.114",
    "11.2.1.2",
    "11.4.0.106",
)

# What the backend's variables hold, as they are written there: TensorRT's class. ``trt`` is the
# module itself.
CLASSES = {
    "trt": "", "found.trt": "", "self._trt": "", "self._found.trt": "", "self.trt": "",
    "builder": "Builder", "self._builder": "Builder", "network": "INetworkDefinition", "parser": "OnnxParser",
    "config": "IBuilderConfig", "config.get_timing_cache()": "ITimingCache", "cache": "ITimingCache",
    "cache.query(key)": "TimingCacheValue", "now": "TimingCacheValue", "timings": "IHostMemory", "plan": "IHostMemory",
    "profile": "IOptimizationProfile", "engine": "ICudaEngine", "self._engine": "ICudaEngine",
    "engine.get_tensor_dtype(name)": "DataType", "info.dtype": "DataType", "self._runtime": "Runtime", "runtime": "Runtime",
    "self._context": "IExecutionContext", "inspector": "EngineInspector", "layer": "ILayer", "tensor": "ITensor",
    "output": "ITensor", "o": "ITensor", "algorithm": "IAlgorithm", "variant": "IAlgorithmVariant", "info": "IAlgorithmIOInfo",
    "e": "ParserError", "error": "ParserError", "flags": "BuilderFlag", "creation": "NetworkDefinitionCreationFlag",
    "mode": "TensorIOMode", "severity": "ILogger", "context": "IExecutionContext",
}  # fmt: skip
# In these modules such a name holds another class, or ("") nothing of TensorRT's.
OTHERWISE = {
    ("choices", "context"): "IAlgorithmContext", ("quantization", "error"): "", ("quantization", "algorithm"): "",
    ("layers", "layer"): "", ("layers", "o"): "", ("engine", "o"): "", ("engine", "error"): "",
    ("built_file", "error"): "", ("make", "info"): "",
}  # fmt: skip
OURS = {  # attributes of ours on a variable that bears the name of one of TensorRT's
    "network": {"Parsed", "expose_marks", "keep_higher", "name_nodes", "parse_network"},
    "output": {"type"},
    "o": {"type", "get"},
    "layer": {"formats", "nodes"},
}
# What is asked for by hasattr, overridden in a class of ours, or printed to be pasted, stands in no
# attribute: by hand, class -> names.
ASKED = {
    "": [
        "IDebugListener", "IProgressMonitor", "IAlgorithmSelector", "TimingCacheKey", "IInt8EntropyCalibrator2",
        "IOutputAllocator", "Logger",
    ],
    "OnnxParser": ["parse_from_file"],
    "BuilderFlag": [
        "FP16", "BF16", "INT8", "FP8", "TF32", "OBEY_PRECISION_CONSTRAINTS", "EDITABLE_TIMING_CACHE", "DISABLE_TIMING_CACHE",
    ],
    "NetworkDefinitionCreationFlag": ["STRONGLY_TYPED"],
    "ILayer": ["precision"],
    "IBuilderConfig": ["algorithm_selector", "progress_monitor", "int8_calibrator"],
    "INetworkDefinition": ["mark_debug", "mark_unfused_tensors_as_debug_tensors"],
    "IExecutionContext": ["unfused_tensors_debug_state"],
    "DataType": ["FLOAT", "HALF", "BF16", "INT8", "UINT8", "INT32", "INT64", "BOOL", "FP8"],
    "IDebugListener": ["process_debug_tensor"],
    "IProgressMonitor": ["phase_start", "step_complete", "phase_finish"],
    "IAlgorithmSelector": ["select_algorithms", "report_algorithms"],
    "IOutputAllocator": ["reallocate_output", "reallocate_output_async", "notify_shape"],
    "IInt8EntropyCalibrator2": ["get_batch_size", "get_batch", "read_calibration_cache", "write_calibration_cache"],
    "ParserError": ["node_name", "node_operator"],
    "TacticSource": ["CUBLAS", "CUDNN", "CUBLAS_LT", "EDGE_MASK_CONVOLUTIONS", "JIT_CONVOLUTIONS"],
    "ComputeCapability": [],
}  # fmt: skip


def used() -> dict[str, set[str]]:
    """Class ("" for the module itself) -> the names of it that the backend uses, read from its
    source."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for name, names in ASKED.items():
        found[name].update(names)
        if name:
            found[""].add(name.partition(".")[0])
    for module, holder, attribute in _attributes():
        if (
            OTHERWISE.get((module, holder)) == ""
            or attribute in OURS.get(holder, ())
            or attribute.startswith("__")
        ):
            continue
        if holder in CLASSES:
            found[OTHERWISE.get((module, holder), CLASSES[holder])].add(attribute)
        elif (outer := holder.rpartition("."))[0] in CLASSES and not CLASSES[outer[0]]:
            found[outer[2]].add(attribute)  # trt.BuilderFlag.FP16
    return found


def unclassified() -> set[str]:
    """Uses, as ``module: holder.attribute``, of a name that TensorRT's classes have on a variable
    that nothing is known of."""
    members = {name for names in used().values() for name in names if "_" in name}
    return {
        f"{module}: {holder}.{attribute}"
        for module, holder, attribute in _attributes()
        if attribute in members
        and holder not in CLASSES
        and not holder.startswith(("self", "trt.", "found.trt"))
    }


def _attributes() -> Iterator[tuple[str, str, str]]:
    """(module, what stands before the dot, the name behind it) of every attribute in the
    backend."""
    for path in sorted(BACKEND.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                yield path.stem, ast.unparse(node.value), node.attr


_DUMP = """
import importlib, inspect, json, sys
trt, wanted = importlib.import_module(sys.argv[1]), json.load(sys.stdin)
said = {"__version__": trt.__version__}
for name, attributes in wanted.items():
    owner = trt
    for part in filter(None, name.split(".")):
        owner = getattr(owner, part, None)
    for attribute in attributes:
        if owner is None or not hasattr(owner, attribute):
            continue
        value = getattr(owner, attribute)
        doc = (getattr(value, "__doc__", "") or "").strip().splitlines()
        line = doc[0] if callable(value) and not isinstance(value, type) and doc and "(" in doc[0] else ""
        said[(name + "." if name else "") + attribute] = line.replace("tensorrt_bindings.tensorrt.", "").replace("tensorrt.", "")
print(json.dumps(said))
"""


def dump(
    module: str, environment: dict[str, str] | None = None, folder: Path | None = None
) -> dict[str, str]:
    """The names of ``used`` that a module has -> the signature that it states, "" where it states
    none."""
    asked = json.dumps({name: sorted(names) for name, names in used().items()})
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _DUMP, module], input=asked, env=environment, cwd=folder, text=True,
        stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    found: dict[str, str] = json.loads(done.stdout)
    return found


def load(version: str, folder: Path) -> dict[str, str]:
    """Fetch the bindings of a version into ``folder``; the environment in which ``import
    tensorrt_bindings`` works."""
    wheel = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--no-deps",
        "--only-binary=:all:",
        "-d",
        str(folder),
    ]
    subprocess.run([*wheel, f"tensorrt-cu12-bindings=={version}"], check=True)
    (packed,) = folder.glob("*.whl")
    subprocess.run([sys.executable, "-m", "zipfile", "-e", str(packed), str(folder)], check=True)
    native = folder / "tensorrt_bindings" / "tensorrt.so"
    wanted = [
        line.split("[")[1].rstrip("]")
        for line in _said("readelf", "-d", str(native))
        if "NEEDED" in line
    ]
    missing = [line.split()[-1] for line in _said("nm", "-D", "--undefined-only", str(native))]
    ours = [
        name
        for name in missing
        if name.startswith(
            ("createInfer", "createNv", "getBuilder", "getPlugin", "getNv", "initLib")
        )
    ]
    source = folder / "nothing.c"
    source.write_text("\n".join(f"void *{name}(void) {{ return 0; }}" for name in ours))
    for library in (name for name in wanted if name.startswith("libnv")):
        made = [
            "gcc",
            "-shared",
            "-fPIC",
            "-o",
            str(folder / library),
            f"-Wl,-soname,{library}",
            str(source),
        ]
        subprocess.run(made, check=True)
    return {"LD_LIBRARY_PATH": str(folder), "PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin"}


def _said(*command: str) -> list[str]:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def takes(signature: str) -> list[str] | None:
    """Names of the parameters that a pybind11 signature states, without self; those that may be
    left out end with ``=``. None where it states none (an overloaded function, a property)."""
    if "(" not in signature or "*args" in signature:
        return None
    names, depth, word = [], 0, ""
    for character in signature[signature.index("(") + 1 : signature.index(") ->")] + ",":
        depth += {"[": 1, "<": 1, "(": 1, "]": -1, ">": -1, ")": -1}.get(character, 0)
        if character == "," and not depth:
            names.append(word.partition(":")[0].strip() + ("=" if "=" in word else ""))
            word = ""
        else:
            word += character
    return [name for name in names if name and name != "self"]


def record() -> dict[str, Any]:
    """Name -> ``first`` and ``last`` version that has it, and what it ``takes``. Raises
    ``AssertionError`` where a version between these two lacks it, or takes something else."""
    seen: defaultdict[str, dict[str, list[str] | None]] = defaultdict(dict)
    for version in VERSIONS:
        with tempfile.TemporaryDirectory(prefix="bindings-") as folder:
            environment = load(version, Path(folder))
            for name, signature in dump("tensorrt_bindings", environment, Path(folder)).items():
                if name != "__version__":
                    seen[name][version] = takes(signature)
    table: dict[str, Any] = {}
    for name, versions in sorted(seen.items()):
        first, last = min(map(VERSIONS.index, versions)), max(map(VERSIONS.index, versions))
        assert len(versions) == last - first + 1, f"{name} comes and goes: {list(versions)}"
        stated = [found for found in versions.values() if found is not None]
        assert all(found == stated[0] for found in stated), (
            f"{name} does not take the same everywhere: {versions}"
        )
        table[name] = {
            "first": VERSIONS[first],
            "last": VERSIONS[last],
            **({"takes": stated[0]} if stated else {}),
        }
    return table


if __name__ == "__main__":
    argparse.ArgumentParser(
        description="Record the names and signatures of TensorRT's bindings anew."
    ).parse_args()
    lines = [f"{json.dumps(name)}: {json.dumps(facts)}" for name, facts in record().items()]
    TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{len(lines)} names of {len(VERSIONS)} versions in {TABLE.name}")
