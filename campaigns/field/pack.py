"""Packs the campaign for a machine without network: models, samples, wheels and a script, in parts
of one size at the most.

    python campaigns/field/pack.py --models FOLDER --to FOLDER [--part-mib 48] [--python 3.12]

``--models`` is what ``campaign.py`` was given; models and samples that are missing there are made.
In ``--to``: ``part-00`` and on, ``run.sh``, ``README.txt`` with the commands for the other machine,
which needs a Python of that version and nothing else.
"""

import argparse
import subprocess
import sys
import tarfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from campaigns.field import campaign, models

ROOT = Path(__file__).parents[2]
NEEDED = (
    "jinja2", "ml-dtypes", "msgspec", "numpy", "onnx", "onnx-graphsurgeon", "onnxruntime", "pyyaml", "textual", "openvino",
    "psutil", "pillow",
)  # fmt: skip
PLATFORMS = ("2_17", "2_27", "2_28", "2_31", "2_34")  # of manylinux

RUN = """#!/bin/sh
# run.sh SECONDS AT-ONCE UNTIL [OPTION...], in the root of a checkout: unpacks what lies beside it the first time, then runs the
# cases that have no line yet. SECONDS a case; none is started after UNTIL seconds. With $OUT set, results are copied there.
set -eu
pack=$(cd "$(dirname "$0")" && pwd)
root=${FIELD_ROOT:-$PWD}
work=${FIELD_WORK:-$pack/work}
seconds=${1:-150} at_once=${2:-$(nproc)} until=${3:-330}
if [ $# -ge 3 ]; then shift 3; else shift $#; fi
mkdir -p "$work/out"
if [ ! -e "$work/unpacked" ]; then
    cat "$pack"/part-* | tar -x -C "$work"
    touch "$work/unpacked"
fi
python="$work/venv/bin/python"
export PYTHONPATH="$root"
if [ ! -e "$work/ready" ]; then
    if python3 -m venv "$work/venv" && "$python" -m pip install --quiet --no-index "$work"/wheels/*.whl; then
        echo venv > "$work/ready"
    else # no venv or no pip: a wheel is a zip
        python3 -c "import sys, zipfile; [zipfile.ZipFile(w).extractall(sys.argv[1]) for w in sys.argv[2:]]" \\
            "$work/site" "$work"/wheels/*.whl
        echo site > "$work/ready"
    fi
fi
if [ "$(cat "$work/ready")" = site ]; then
    python=python3
    export PYTHONPATH="$root:$work/site"
fi
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
cd "$root"
keep() {
    [ -z "${OUT:-}" ] || cp "$work/out/results.jsonl" "$OUT/" 2>/dev/null || true
}
if [ -e "$pack/before.jsonl" ]; then set -- --first "$pack/before.jsonl" "$@"; fi
(while sleep 15; do keep; done) &
copier=$!
"$python" campaigns/field/campaign.py --out "$work/out" --models "$work/models" --seconds "$seconds" \\
    --at-once "$at_once" --until "$until" "$@" || true
kill $copier
keep
if [ -n "${OUT:-}" ]; then
    (cd "$work/out" && find . -name run.log -o -name report.json | tar -czf "$OUT/logs.tar.gz" -T -)
fi
"""
README = """The field campaign for a machine without network (python3 there is {python}).

1. In the checkout's root (main, with this pack's commit or later), make an ignored folder and put run.sh and the parts into it:
       mkdir -p build/field-pack && cp {to}/run.sh {to}/part-* build/field-pack/
2. Send run.sh and the parts, {count} calls, one part a call, in which nothing is done:
       command: ls -la build/field-pack     carry: [build/field-pack/part-00, build/field-pack/run.sh]
       ... and so on to part-{last:02}; what was sent stays there.
3. Run; the first call also unpacks and installs (about a minute). 150 s a case, as many at once as there are cores less two,
   none started after 330 s; results.jsonl is copied to $OUT every 15 s, so that a call that is cut off loses only what runs:
       command: sh build/field-pack/run.sh 150 $(( $(nproc) - 2 )) 330      timeout: 600
4. Again, until no case is left ("grades" is the last line); lines that are there are not run again:
       command: sh build/field-pack/run.sh 150 $(( $(nproc) - 2 )) 330
   Options of campaign.py go behind the three numbers: --only MODEL ..., --engine SPEC ...
5. results.jsonl and logs.tar.gz of the last call go to /tmp/field-results/, then: touch /tmp/field-results/done
"""


def wheels(folder: Path, python: str) -> None:
    """The wheels of what the campaign needs, at the tested versions. Raises
    ``CalledProcessError``."""
    folder.mkdir(parents=True, exist_ok=True)
    platforms = [word for p in PLATFORMS for word in ("--platform", f"manylinux_{p}_x86_64")]
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--dest",
        str(folder),
        "--only-binary",
        ":all:",
    ]
    more = [
        "--platform",
        "manylinux2014_x86_64",
        "--python-version",
        python,
        "-c",
        str(ROOT / "constraints.txt"),
    ]
    subprocess.run([*pip, *platforms, *more, *NEEDED], check=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--part-mib", type=int, default=48)
    parser.add_argument("--python", default="3.12")
    chosen = parser.parse_args()
    folder = chosen.models.resolve()
    models.fetch(folder)
    for model in models.MODELS:
        campaign.prepare(folder, model)
        if model.int8:
            campaign.quantized(folder, model)
    wheels(chosen.to / "wheels", chosen.python)
    whole = chosen.to / "whole.tar"
    with tarfile.open(whole, "w") as tar:
        for path in sorted((chosen.to / "wheels").glob("*.whl")):
            tar.add(path, f"wheels/{path.name}")
        for path in sorted(folder.rglob("*")):
            inside = path.relative_to(folder)
            if path.is_file() and inside.parts[0] != "wheels" and path.suffix in (".onnx", ".npz"):
                tar.add(path, f"models/{inside}")
    names = split(whole, chosen.part_mib << 20)
    whole.unlink()
    (chosen.to / "run.sh").write_text(RUN)
    (chosen.to / "README.txt").write_text(
        README.format(python=chosen.python, to=chosen.to, count=len(names), last=len(names) - 1)
    )
    print(f"{len(names)} parts and run.sh in {chosen.to}")
    return 0


def split(whole: Path, size: int) -> list[Path]:
    """``part-00``, ``part-01``, ... beside the file, of so many bytes each at the most."""
    names = []
    with whole.open("rb") as file:
        while piece := file.read(size):
            names.append(whole.with_name(f"part-{len(names):02}"))
            names[-1].write_bytes(piece)
    return names


if __name__ == "__main__":
    sys.exit(main())
