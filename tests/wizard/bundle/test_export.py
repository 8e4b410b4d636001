"""From a journalled session to report and bundle, with a session written by hand."""

import ast
import errno
import json
import re
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from narrowdown.engines import discovery
from narrowdown.engines.compare.judge import Criterion, Signature
from narrowdown.engines.declaration import TRACKER
from narrowdown.engines.findings import Case, Culprit, Findings, Lookalike, Workaround
from narrowdown.engines.known.entry import Construction, MadeNode, MadeTensor
from narrowdown.engines.known.generator import Program
from narrowdown.engines.probe import Candidate, Inspect, Measurement
from narrowdown.engines.store import Store
from narrowdown.wizard import BadUsage
from narrowdown.wizard.bundle.check_script import Asked, say_needs
from narrowdown.wizard.bundle.export import NothingToExport, export, hand_on, write_case
from narrowdown.wizard.bundle.issue import issue, readme
from narrowdown.wizard.bundle.models import (
    _write_files,
    find_model,
    find_sound,
    place_scripts,
    write_worked_around,
)
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.report.canonical import canonical
from narrowdown.wizard.report.cured import files_of
from narrowdown.wizard.report.document import to_json
from narrowdown.wizard.report.html import to_html
from narrowdown.wizard.report.markdown import to_markdown
from narrowdown.wizard.report.portable import handed_on, traces
from narrowdown.wizard.report.read import read
from narrowdown.wizard.report.summary import summary
from narrowdown.wizard.session import SessionProblem, folder as folders, of_system
from narrowdown.wizard.session.events import (
    Offered,
    ProbeFinished,
    ProbeStarted,
    QuestionAnswered,
    QuestionAsked,
    SessionClosed,
    SessionOpened,
    StepFinished,
    StepStarted,
)
from narrowdown.wizard.session.journal import Journal

from ...here import run_check

FLOW = """\
schema: 1
id: small
title: A small flow
start: reproduce
nodes:
  reproduce:
    title: Does the failure show here?
    explain: It runs the model.
    ask: Does it?
    answers: {"yes": {text: "Yes, it fails", goto: minimal-case}}
  minimal-case:
    title: You have a minimal case
    explain: It is confirmed.
    ask: What next?
    answers: {report: {text: Report it, goto: found}}
ends:
  found: {title: A minimal failing case was found, explain: "", verdict: minimal-case}
"""
OURS_DECLARED = discovery.ours()
ENGINE = "emulate:precision=fp16"


def model(path: Path, *, half: bool) -> Path:
    nodes = [helper.make_node("Mul", ["x", "x"], ["s" if half else "y"], name="Square")]
    if half:
        nodes.append(helper.make_node("Cast", ["s"], ["h"], to=TensorProto.FLOAT16))
        nodes.append(helper.make_node("Cast", ["h"], ["y"], to=TensorProto.FLOAT))
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "xy")
    made = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y]),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=10,
    )
    onnx.save(made, path)
    return path


def culprit(number: int) -> Culprit:
    signature = Signature(
        kind="accuracy", sample="real:0/3", outputs=("y",), errors={"y": 1e300}, nonfinite=True
    )
    case = Case(
        Candidate(str(number)),
        "real:0/3",
        nodes=(f"Square_{number}",),
        node_ids=str(number),
        ops=("Mul",),
        inputs=("x",),
        outputs=("y",),
        own=1e300,
        effect=0.9,
        verified="5/5",
        minimal=True,
        signature=signature,
        found_by="reduce",
    )
    where = "case" if number == 1 else f"case/culprit-{number}"
    return Culprit(case, "overflow", evidence="It reaches 90,000.", dir=where)


@pytest.fixture
def session(tmp_path: Path) -> Path:
    """A finished session with two culprits, the first with a passing neighbour."""
    problem = Problem(
        model=str(tmp_path / "m.onnx"), engine=ENGINE, inputs=(str(tmp_path / "in.npz"),)
    )
    root = folders.create(problem, FLOW, folder=tmp_path / "session")
    store = Store(root)

    def artifact(path: Path) -> str:
        return store.put(path.read_bytes())

    x = np.array([2, 300], np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    np.savez(tmp_path / "y.npz", y=x * x)
    files = {
        "model.onnx": artifact(model(tmp_path / "plain.onnx", half=False)),
        "engine.onnx": artifact(model(tmp_path / "half.onnx", half=True)),
        "inputs.npz": artifact(tmp_path / "x.npz"),
        "expected.npz": artifact(tmp_path / "y.npz"),
    }
    rows = [
        [{"role": "case", "files": files}, {"role": "good", "files": files}],
        [{"role": "case", "files": files}],
    ]
    tables = [store.put(msgspec.json.encode(r)) for r in rows]
    tensors = store.put(
        msgspec.json.encode(
            [{"name": "s", "op": "Mul", "error": 0.5}, {"name": "u", "op": "Add", "error": None}]
        )
    )
    findings = Findings(
        criterion=Criterion(tolerance=1e-2),
        culprits=(culprit(1), culprit(2)),
        notes=("one guess",),
        signature=Signature(kind="accuracy", sample="real:0/3", outputs=("y",), errors={"y": 0.94}),
        workaround=Workaround(
            kind="precision",
            engine=ENGINE,
            keep="1-2",
            keep_names=("Square_1", "Square_2"),
            samples_ok=8,
            samples_n=8,
            error=0.004,
            margin=2.5,
        ),
    )
    reproduced = {"message": "It fails.", "error": 0.94, "samples": 8, "samples_failing": 7}
    journal = Journal(root / "journal.jsonl")
    info = {"name": "emulate", "version": "1.31.1", "device": "CPU", "fingerprint": "f"}
    for event in [
        SessionOpened(id="k7f3", versions={"onnx": "1.23"}),
        ProbeStarted(key="i", run=1, probe=Inspect(engine=ENGINE)),
        ProbeFinished(key="i", run=1, measurement=Measurement(facts=info)),
        StepStarted(
            run=1,
            node="reproduce",
            visit=1,
            step="compare",
            step_version=1,
            engine=ENGINE,
            reference="onnxruntime",
        ),
        StepFinished(
            run=1,
            node="reproduce",
            outcome=reproduced,
            findings={},
            tables={"tensors": tensors},
            seconds=2.0,
            probes=3,
        ),
        QuestionAsked(
            node="reproduce",
            visit=1,
            ask="Does it?",
            answers=(Offered("yes", "Yes, it fails", "minimal-case", True),),
            recommended="yes",
        ),
        QuestionAnswered(node="reproduce", visit=1, answer="yes", by="recommended"),
        *confirmed(2, tables[0], findings, 1),
        *confirmed(3, tables[1], findings, 2),
        QuestionAsked(
            node="minimal-case",
            visit=2,
            ask="What next?",
            answers=(Offered("report", "Report it", "found", True),),
            recommended="report",
        ),
        QuestionAnswered(
            node="minimal-case",
            visit=2,
            answer="report",
            by="person",
            note=f"to the kernel team, see {root}/logs",
        ),
        SessionClosed(end="found"),
    ]:
        journal.append(event)
    journal.close()
    return root


def confirmed(run: int, table: str, findings: Findings, number: int) -> list:
    findings = msgspec.structs.replace(findings, case=culprit(number).case)
    outcome = {"nodes_before": 95, "nodes": 1, "confirmed": True}
    return [
        StepStarted(
            run=run,
            node="minimal-case",
            visit=run - 1,
            step="confirm",
            step_version=1,
            engine=ENGINE,
        ),
        StepFinished(
            run=run,
            node="minimal-case",
            outcome=outcome,
            findings=msgspec.to_builtins(findings),
            tables={"bundle": table},
            seconds=1.0,
            probes=10,
        ),
    ]


def check(case: Path) -> subprocess.CompletedProcess[str]:
    return run_check(case / "check.py")


def test_the_bundle(session: Path, tmp_path: Path) -> None:
    case = export(read(session), tmp_path / "case")
    assert {path.name for path in case.iterdir()} == {
        "model.onnx",
        "engine.onnx",
        "good.onnx",
        "inputs.npz",
        "expected.npz",
        "inputs.json",
        "expected.json",
        "check.py",
        "commands.sh",
        "README.txt",
        "issue.md",
        "report.md",
        "report.html",
        "report.json",
        "journal.jsonl",
        "environment.json",
        "keep_fp32.py",
        "workaround.md",
        "culprit-2",
    }
    assert not (case / "culprit-2/good.onnx").exists(), (
        "the second culprit had no passing neighbour"
    )
    assert check(case).returncode == 1
    assert check(case / "culprit-2").returncode == 1
    feeds = json.loads((case / "inputs.json").read_text())
    assert list(feeds[0]) == ["x"]
    assert "polygraphy run" in (case / "commands.sh").read_text()
    assert json.loads((case / "environment.json").read_text())["engine"]["version"] == "1.31.1"
    subprocess.run(["sh", "-n", case / "commands.sh"], check=True)
    for name in ("report.md", "report.html", "report.json"):
        text = (case / name).read_text()
        assert ("to the kernel team, see session/logs" in text) is (name != "report.md")
        assert str(session) not in text, "where the session lies is nobody else's business"


def test_what_two_culprits_folders_tell_alike_lies_on_the_disk_once(
    session: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = ("journal.jsonl", "report.md", "report.html", "report.json")
    case = export(read(session), tmp_path / "case")
    assert all((case / "culprit-2" / name).samefile(case / name) for name in shared)
    assert not (case / "culprit-2/model.onnx").samefile(case / "model.onnx")
    with zipfile.ZipFile(export(read(session), tmp_path / "k.zip")) as archive:
        for name in shared:
            assert archive.read(f"case/culprit-2/{name}") == (case / name).read_bytes()

    def refused(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(Path, "hardlink_to", refused)
    other = export(read(session), tmp_path / "other")
    assert all(
        (other / "culprit-2" / name).read_bytes() == (other / name).read_bytes() for name in shared
    )


def test_a_session_and_its_own_bundle_hold_one_report(session: Path) -> None:
    reading = read(session)
    assert hand_on(reading, handed_on(reading)) == str(session / "case")
    assert (session / "case/culprit-2/report.html").samefile(session / "report.html")
    assert (session / "case/report.html").samefile(session / "report.html")


def test_the_model_with_the_workaround_is_written_once(session: Path, tmp_path: Path) -> None:
    """In the session's folder; its bundle has the same file, as long as there is nothing in it that
    is not for others' eyes."""
    reading, written = read(session), model(session / "worked-around.onnx", half=True)
    (session / "worked-around.weights.bin").write_bytes(b"weights")
    assert hand_on(reading, handed_on(reading), str(written)) == str(session / "case")
    for name in ("worked-around.onnx", "worked-around.weights.bin"):
        assert (session / "case" / name).samefile(session / name)

    noted = onnx.load(written)
    noted.graph.doc_string = f"written in {tmp_path}"
    onnx.save(noted, written)
    hand_on(reading, handed_on(reading), str(written))
    assert onnx.load(session / "case/worked-around.onnx").graph.doc_string == ""
    assert onnx.load(written) == noted


def test_what_a_killed_command_left_of_the_model_goes(session: Path) -> None:
    left = [
        session / f".worked-around.{ending}.77-0a1b2c3d.tmp" for ending in ("onnx", "weights.bin")
    ]
    others = [session / ".progress.json.tmp", session / "worked-around.onnx"]
    for path in (*left, *others):
        path.write_bytes(b"half")
    write_worked_around(read(session))
    assert [path.exists() for path in (*left, *others)] == [False, False, True, True]


def test_a_bug_report_has_the_fields_of_the_trackers_template(
    session: Path, tmp_path: Path
) -> None:
    case = export(read(session), tmp_path / "case")
    for place in (case, case / "culprit-2"):
        text = (place / "issue.md").read_text()
        prose = re.sub(r"```sh.*?```", "", text, flags=re.DOTALL)
        headings = re.findall(r"^(?:#+ (.+)|\*\*(.+?)\*\*: .+)$", prose, re.MULTILINE)
        wanted = OURS_DECLARED[ENGINE.partition(":")[0]].tracker or TRACKER
        assert [a or b for a, b in headings][1:] == [
            heading.lstrip("# ") for heading, _ in wanted.fields
        ]
        assert wanted.url in text
        assert "python check.py" in text.partition("```sh")[2]
        assert str(session) not in text
        readme = (place / "README.txt").read_text()
        assert len(readme.splitlines()) == 11
        assert "python check.py" in readme
        assert "check.py needs: pip install numpy onnxruntime" in readme
        assert "# check.py needs: pip install numpy onnxruntime" in text.partition("```sh")[2]


@pytest.mark.parametrize(
    ("engine", "version", "check", "said"),
    [
        ("onnxruntime", "1.31.1", "", "check.py needs: pip install numpy onnxruntime==1.31.1"),
        ("openvino", "2026.4.1-22345", "", "check.py needs: pip install numpy openvino"),
        ("tensorrt", "10.6.0", "", "check.py needs: pip install numpy tensorrt cuda-bindings"),
        ("onnxruntime", "1.31.1", "./mine", "check.py needs numpy and the engine's own package"),
        ("command:run=./mine", "", "", "check.py needs numpy and the engine's own package"),
        ("somebodys", "1.0", "", "check.py needs numpy and the engine's own package"),
    ],
)
def test_a_case_says_how_to_install_what_its_check_needs(
    engine: str, version: str, check: str, said: str
) -> None:
    """Whoever gets it has the folder alone, and does not know what "the engine's own package" is
    called."""
    assert say_needs(Asked(engine, engine, Criterion(), check=check, version=version)) == said


def test_a_bug_report_begins_with_what_goes_wrong_and_with_what_is_known_of_it(
    session: Path,
) -> None:
    report = read(session).report()
    culprit = msgspec.structs.replace(report.culprits[0], ops=("Pad", "MaxPool"), cause="optimizer")
    asked = Asked("onnxruntime:optimization=all", "onnxruntime", Criterion(), version="1.31.1")

    def lines(cause: str, engine: str, *likes: Lookalike) -> list[str]:
        at_fault = msgspec.structs.replace(culprit, cause=cause)
        told = msgspec.structs.replace(report, lookalikes=likes)
        return issue(told, at_fault, msgspec.structs.replace(asked, engine=engine), "").splitlines()

    assert "# Pad + MaxPool gives wrong results with ONNX Runtime 1.31.1 (optimizer)" in lines(
        "optimizer", asked.engine
    )
    assert "# Pad + MaxPool is refused by ONNX Runtime 1.31.1 (build failure)" in lines(
        "build-failure", asked.engine
    )
    assert "# Pad + MaxPool gives wrong results in FP16 (overflow)" in lines(
        "overflow", "emulate:precision=fp16"
    )
    rounds = " (ONNX Runtime, with every value rounded to FP16). "
    assert rounds in "\n".join(lines("overflow", "emulate:precision=fp16"))
    assert "(ONNX Runtime with" not in "\n".join(lines("optimizer", asked.engine))
    known = Lookalike(
        "b", "who/what#18136", "Zeros are lost.", mended="1.32.0", nodes=culprit.nodes[:1]
    )
    other = Lookalike("c", "who/what#99", "Of another culprit.", nodes=("elsewhere",))
    text = "\n".join(lines("optimizer", asked.engine, known, other))
    assert "It looks like a known bug, who/what\\#18136: Zeros are lost." in text
    assert "#99" not in text


@pytest.mark.parametrize(
    "name", [name for name, declared in OURS_DECLARED.items() if declared.tracker]
)
def test_every_field_of_a_tracker_is_one_that_is_filled(session: Path, name: str) -> None:
    report = read(session).report()
    asked = Asked(engine=name, found_with=name, criterion=Criterion(), version="1.2")
    text = issue(report, report.culprits[0], asked, "#!/bin/sh\npython check.py\n")
    fenced = issue(report, report.culprits[0], asked, "python check.py '\n```\n# evil\n'\n")
    assert "````sh\n" in fenced, "no word of a command ends the block"
    assert text.count("(please fill in)") < 6
    assert "1.2" in text


def test_no_word_of_a_session_is_markup_in_a_bug_report(session: Path) -> None:
    report, evil = read(session).report(), "![x](http://x)"
    told = msgspec.structs.replace(
        report,
        environment={
            "engine": {"device": evil},
            "reference": {"name": evil, "version": evil},
            "machine": {"system": evil, "python": evil},
            "versions": {"onnx": evil, "cuda-bindings": evil},
        },
    )
    culprit = msgspec.structs.replace(report.culprits[0], ops=(evil,), verified=evil)
    asked = Asked(f"tensorrt:profiles={evil}", evil, Criterion(), version=evil)
    text = issue(told, culprit, asked, "")
    assert evil not in re.sub(r"`[^`]*`", "", text)


@pytest.mark.parametrize(
    ("metric", "tolerance", "allowed", "said"),
    [
        (
            "rel_l2",
            0.1,
            "rel_l2 0.1",
            "An output may be wrong by 10 %: the length of the error over",
        ),
        ("max_abs", 0.25, "max_abs 0.25", "No value of an output may be wrong by more than 0.25"),
        (
            "elementwise",
            1.0,
            "atol 0.001, rtol 1e-05",
            "atol + rtol times the expected value: atol 0.001, rtol 1e-05.",
        ),
        ("sqnr_db", 40.0, "sqnr_db 40 dB at least", "Allowed is sqnr_db 40 dB at least."),
    ],
)
def test_a_bug_report_says_in_words_what_is_allowed(
    session: Path, metric: str, tolerance: float, allowed: str, said: str
) -> None:
    judged = {"metric": metric, "tolerance": tolerance, "allowed": allowed}
    report = msgspec.structs.replace(read(session).report(), **judged)
    asked = Asked(engine=ENGINE, found_with=ENGINE, criterion=Criterion())
    assert said in issue(report, report.culprits[0], asked, "#!/bin/sh\npython check.py\n")


def test_a_bug_report_names_the_reference_that_stands_in(session: Path) -> None:
    """Recorded outputs compute nothing, so what a part of a model is expected to give is another
    engine's."""
    report = msgspec.structs.replace(
        read(session).report(),
        reference="golden:files=out.npz",
        reference_replaced={
            "from": "golden:files=out.npz",
            "to": "openvino:precision=f32",
            "why": "",
        },
    )
    asked = Asked(engine=ENGINE, found_with=ENGINE, criterion=Criterion())
    text = issue(report, report.culprits[0], asked, "#!/bin/sh\npython check.py\n")
    assert "as openvino gives them (`--reference openvino:precision=f32`)" in text
    assert "golden" not in text


def test_a_part_whose_inputs_were_rounded_is_not_said_to_be_right_elsewhere(session: Path) -> None:
    """From these the reference gives the same wrong values: whoever is sent the case would find no
    fault in the engine."""
    report = read(session).report()
    asked = Asked(engine=ENGINE, found_with=ENGINE, criterion=Criterion())
    rounded = msgspec.structs.replace(report.culprits[0], needs_higher_inputs=True)
    assert "from exact inputs" in issue(report, rounded, asked, "")
    assert "Nothing gives that from rounded ones" in readme(rounded, asked)
    assert len(readme(rounded, asked).splitlines()) == 12
    assert "exact inputs" not in issue(report, report.culprits[0], asked, "") + readme(
        report.culprits[0], asked
    )


def test_a_neighbour_too_heavy_to_be_kept_is_spoken_of(tmp_path: Path) -> None:
    """And the weights of a case that lie beside its model come along under the name that the model
    knows."""
    weights = tmp_path / "w"
    weights.write_bytes(b"weights")
    passing = msgspec.structs.replace(culprit(1).case, good=Candidate(nodes="0-151"))
    asked = Asked(engine=ENGINE, found_with=ENGINE, criterion=Criterion(tolerance=1e-2))
    write_case(
        tmp_path / "case",
        msgspec.structs.replace(culprit(1), case=passing),
        {"model.weights.bin": weights},
        asked,
    )
    assert (tmp_path / "case/model.weights.bin").read_bytes() == b"weights"
    assert "152 nodes: 0-151" in (tmp_path / "case/good.txt").read_text()


@pytest.mark.parametrize("weights", ["keep", "none"])
def test_a_case_whose_files_were_not_kept_says_so(
    weights, session: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("narrowdown.wizard.bundle.export.case_files", lambda *_: [{}, {}])
    case = export(read(session), tmp_path / "case", weights)
    for folder in (case, case / "culprit-2"):
        for name in ("report.md", "README.txt"):
            assert (
                "The model of this case could not be kept when it was found"
                in (folder / name).read_text()
            ), name
        assert "model.onnx is the failing part" not in (folder / "README.txt").read_text()
        told = check(folder)
        assert (told.returncode, told.stdout.startswith("cannot tell")) == (2, True)


@pytest.mark.parametrize("left", [None, b""])
def test_a_case_whose_list_of_files_is_gone_is_no_bundle(
    session: Path, tmp_path: Path, left: bytes | None
) -> None:
    """A session that came without some of its artifacts: the bundle had neither model nor inputs,
    and nothing was said."""
    digest = next(v.tables["bundle"] for v in read(session).state.route if "bundle" in v.tables)
    path = Store(session).path(digest)
    path.unlink()
    if left is not None:
        path.write_bytes(left)
    with pytest.raises(SessionProblem, match=r"the list of what a case holds.* is (gone|damaged)"):
        export(read(session), tmp_path / "case")
    assert not (tmp_path / "case").exists()


def test_export_replaces_a_bundle_and_nothing_else(session: Path, tmp_path: Path) -> None:
    case = export(read(session), tmp_path / "case")
    (case / "mine.txt").write_text("x")
    export(read(session), case)
    assert not (case / "mine.txt").exists()
    other = tmp_path / "other"
    other.mkdir()
    (other / "precious").write_text("x")
    with pytest.raises(BadUsage, match="holds no bundle"):
        export(read(session), other)
    assert (other / "precious").read_text() == "x"
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")], (
        "no scratch folder is left"
    )


def test_export_to_a_zip(session: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(export(read(session), tmp_path / "k.zip")) as archive:
        assert {"case/check.py", "case/culprit-2/model.onnx"} <= set(archive.namelist())
        assert archive.testzip() is None


@pytest.mark.parametrize("name", ["case", "case.zip"])
def test_a_full_disk_is_the_targets(
    session: Path, small_disk: Callable[[int], Path], name: str
) -> None:
    target = small_disk(16) / name
    with pytest.raises(OSError, match="No space left") as refused:
        export(read(session), target)
    assert of_system(refused.value).startswith(f"The disk of '{target}' is full. ")
    assert list(target.parent.iterdir()) == [], "nothing is left of it"
    small_disk(4000)
    export(read(session), target)


def test_a_gone_artifact_is_one_sentence(session: Path, tmp_path: Path) -> None:
    for path in Store(session).artifacts.rglob("*"):
        if path.is_file() and path.read_bytes().startswith(b"\x08"):
            path.unlink()
    with pytest.raises(SessionProblem, match="is gone"):
        export(read(session), tmp_path / "case")
    assert not (tmp_path / "case").exists()


def test_a_damaged_artifact_is_one_sentence(session: Path, tmp_path: Path) -> None:
    path = next(
        p
        for p in Store(session).artifacts.rglob("*")
        if p.is_file() and p.read_bytes().startswith(b"\x08")
    )
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(
        SessionProblem, match=rf"model.onnx, '{path}', is damaged|engine.onnx, '{path}', is damaged"
    ):
        export(read(session), tmp_path / "case")
    assert not (tmp_path / "case").exists()


def test_nothing_to_export(tmp_path: Path) -> None:
    root = folders.create(Problem(model="m"), FLOW, folder=tmp_path / "s")
    Journal(root / "journal.jsonl").close()
    with pytest.raises(NothingToExport, match="nothing to export"):
        export(read(root), tmp_path / "case")


def test_the_report(session: Path) -> None:
    report = read(session).report()
    found = json.loads(to_json(report))
    assert found["verdict"] == "minimal-case"
    assert found["end"] == "found"
    assert found["cause"] == "overflow"
    assert found["nodes"] == ["Square_1"]
    assert found["nodes_before"] == 95
    assert found["nodes_after"] == 1
    assert [c["dir"] for c in found["culprits"]] == ["case", "case/culprit-2"]
    assert [stop["node"] for stop in found["route"]] == ["reproduce", "minimal-case"]
    assert found["route"][1]["by"] == "person"
    assert found["error"] == 0.94
    assert found["samples_failing"] == 7
    assert found["environment"]["engine"]["fingerprint"] == "f"
    assert [d["name"] for d in found["depth"]] == ["s"]
    assert "2 of 95 nodes fail: " in report.headline, "two culprits, alike"
    for text in (to_markdown(report), to_html(report)):
        assert "overflow" in text
        assert "one guess" in text
    assert "to the kernel team" in to_html(report)
    assert any("keep" in line or "workaround" in line for line in summary(report))


def test_canonical_knows_no_clock(session: Path) -> None:
    reading = read(session)
    text = canonical(reading.state, reading.flow)
    later = msgspec.structs.replace(
        reading.state,
        route=tuple(
            msgspec.structs.replace(v, seconds=99.0, started=5.0, run=v.run + 7, builds=44)
            for v in reading.state.route
        ),
        id="other",
    )
    assert canonical(later, reading.flow) == text
    other = msgspec.structs.replace(reading.state, route=reading.state.route[:1])
    assert canonical(other, reading.flow) != text
    assert "culprit 2: overflow" in text
    assert "end: found (minimal-case)" in text


def test_canonical_prints_no_more_of_a_giant_answer_than_tells_it_from_others(
    session: Path,
) -> None:
    """An answer of a megabyte whose characters become escapes was eight megabytes."""
    reading = read(session)

    def told(answer: str) -> str:
        first = msgspec.structs.replace(reading.state.route[0], answer=answer)
        return canonical(
            msgspec.structs.replace(reading.state, route=(first, *reading.state.route[1:])),
            reading.flow,
        )

    giant = "a" + "\x1b" * 1_000_000 + "b"
    assert len(told(giant)) < len(told("a")) + 10_000
    assert told(giant) != told(giant[:500_000] + "c" + giant[500_001:])
    assert len(told("\x1b" * 7_000)) < len(told("a")) + 10_000, "short enough before it is escaped"


def test_a_user_who_is_called_like_a_word_of_ours_takes_it_from_no_report(
    session: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """'node' is the user of a common container image: every field of that name became 'someone',
    and export and report ended with a failure of the program's own."""
    monkeypatch.setenv("USER", "node")
    monkeypatch.setenv("HOSTNAME", "nobody")
    monkeypatch.setenv("LOGNAME", "jovyan")
    reading = read(session)
    assert {"node", "nobody", "jovyan"} & set(traces(reading).names) == {"jovyan"}
    bundle = export(reading, tmp_path / "bundle")
    assert json.loads((bundle / "report.json").read_text())["route"][0]["node"] == "reproduce"
    assert not (bundle / "traces.txt").exists()
    assert not any(b"someone" in path.read_bytes() for path in bundle.rglob("*") if path.is_file())


class Killed(BaseException):
    """The program was killed here."""


def test_who_is_killed_while_a_bundle_takes_its_place_leaves_a_whole_one_or_none(
    session: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The earlier one was removed file by file, and what was left of it stayed under the bundle's
    name."""
    target = export(read(session), tmp_path / "bundle")
    before = {path.relative_to(target) for path in target.rglob("*")}

    rename, left = Path.rename, 0

    def dies(path: Path, *_: object, **__: object) -> None:
        for each in [each for each in path.rglob("*") if each.is_file()][:1]:
            each.unlink()
        raise Killed

    def renames(path: Path, new: Path) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Killed
        rename(path, new)

    monkeypatch.setattr(shutil, "rmtree", dies)
    monkeypatch.setattr(Path, "rename", renames)
    for many in range(3):
        left = many
        with pytest.raises(Killed):  # at the latest as what is left of the earlier one goes
            export(read(session), target)
        assert (
            not target.exists()
            or {path.relative_to(target) for path in target.rglob("*")} == before
        )


@pytest.mark.parametrize("named", ["../../elsewhere", "a" * 63, ""])
def test_a_strangers_table_names_no_model_outside_of_its_session(
    session: Path, tmp_path: Path, named: str
) -> None:
    (tmp_path / "elsewhere.onnx").write_bytes(b"mine")
    with pytest.raises(
        SessionProblem, match=r"is no digest of a file. Somebody has changed this session"
    ):
        find_model(Store(session), named)
    with pytest.raises(
        SessionProblem, match=r"is no digest of a file. Somebody has changed this session"
    ):
        find_sound(Store(session), {"model.onnx": named})


def test_a_model_that_is_gone_or_damaged_is_named(session: Path) -> None:
    store = Store(session)
    store.models.mkdir(exist_ok=True)
    with pytest.raises(
        SessionProblem, match="for the model is gone; copy the whole session folder"
    ):
        find_model(store, "a" * 64)
    store.model_path("a" * 64).write_bytes(b"other bytes")
    with pytest.raises(
        SessionProblem, match="is damaged: its bytes are not those that were written"
    ):
        find_model(store, "a" * 64)


@pytest.mark.parametrize(
    "files", [None, [], "x", 3, {"model.onnx": 3, "engine.onnx": None, "inputs.npz": ["x"]}]
)
def test_what_a_stranger_wrote_in_place_of_a_tables_files_is_none(files: object) -> None:
    """An export or an end ended with a failure of the program's own."""
    assert files_of({"role": "case", "files": files}) == {}
    assert (
        files_of({"role": "case", "files": {"good.onnx": "ab", "model.onnx": files}}).get(
            "good.onnx"
        )
        == "ab"
    )


def test_a_workaround_whose_files_a_stranger_has_named_otherwise_is_one_sentence(
    session: Path, tmp_path: Path
) -> None:
    reading = read(session)
    for digest in ("\u202ex", "../../x", "a" * 64):
        with pytest.raises(
            SessionProblem, match=r"worked-around.onnx is gone|is no digest of a file. Somebody"
        ):
            _write_files(
                reading, tmp_path / "worked-around.onnx", {"engine.onnx": digest}, "engine", {}
            )
    assert not (tmp_path / "worked-around.onnx").exists()


def forged_program(text: str) -> Program:
    """A construction with this text wherever a stranger may write one."""
    tensor = MadeTensor("float32", (2,))
    made = Construction(
        opset=17,
        inputs={text: tensor},
        nodes=(MadeNode(text, (text,), (text,), {text: text}, text),),
        outputs={text: "float32"},
        weights={f"w{text}": MadeTensor(text, (1,), values=[1])},
    )
    return Program(made, text, text)


@pytest.mark.parametrize(
    "ran",
    ["ran()", "'+ran()+'", '"""+ran()+"""', "\nran()\n", '\\"""\nran()', "\rran()", "{ran()}"],
)
def test_the_program_of_a_bundle_is_never_the_text_of_a_session(tmp_path: Path, ran: str) -> None:
    def place(*rows: object) -> str:
        state = SimpleNamespace(route=[SimpleNamespace(tables={"generator": "digest"})])
        reading = SimpleNamespace(state=state, table=lambda _: msgspec.to_builtins(rows))
        place_scripts(reading, tmp_path)
        path = tmp_path / "make_case.py"
        return path.read_text() if path.exists() else ""

    assert place({"name": "make_case.py", "text": ran}) == ""
    assert place({"name": "make_case.py", "text": ran, "program": {"made": ran}}) == ""
    text = place({"name": "make_case.py", "text": ran, "program": forged_program(ran)})
    calls = (node.func for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    assert "def make(" in text
    assert "ran" not in {call.id for call in calls if isinstance(call, ast.Name)}
