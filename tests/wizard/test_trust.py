"""Scripts and commands run only where somebody on this machine agreed to them."""

import os
import sys
from pathlib import Path

import msgspec
import pytest

from narrowdown.engines import backends
from narrowdown.engines.data import held
from narrowdown.engines.findings import Case, Culprit, Findings
from narrowdown.engines.probe import Candidate, Check, LoadInputs, Measure, Requantize
from narrowdown.engines.store import Store
from narrowdown.wizard import Exit, trust
from narrowdown.wizard.cli import entry
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.session import folder as folders
from narrowdown.wizard.session.events import SessionOpened, StepFinished, StepStarted
from narrowdown.wizard.session.journal import NAME, Journal
from narrowdown.wizard.session.single import single_flow
from narrowdown.wizard.trust.gate import sentence, specs_found
from narrowdown.wizard.trust.reading import imported


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "loader.py"
    path.write_text("import numpy\n\x1b[31mdef load_data(): ...\n")
    return path


def strangers(problem: Problem, yes: list[str]) -> list[trust.Item]:
    """What the PROBLEM would run or load that nobody here agreed to."""
    found, known = trust.items(problem), trust.trusted()
    unknown = [item for item in found if item.key not in known]
    return [item for item in unknown if trust.ALL not in yes and item.digest not in {*yes} - {""}]


def test_what_would_run(script: Path) -> None:
    problem = Problem(
        model="m", inputs=(f"{script}:batches", "data.npz", str(script)), check="mycheck {model}"
    )
    found = trust.items(problem)
    assert [item.kind for item in found] == [
        "data loader script",
        "data loader script",
        "check command",
    ]
    assert found[0].digest == found[1].digest != ""
    assert found[0].first_lines[0] == "import numpy"


def test_nothing_is_trusted_until_it_was_typed_here(script: Path) -> None:
    problem = Problem(model="m", inputs=(str(script),), check="mycheck")
    assert len(strangers(problem, [])) == 2
    trust.remember(trust.items(problem))
    assert strangers(problem, []) == []
    assert trust.trust_file().stat().st_mode & 0o777 == 0o600
    script.write_text("something else")
    assert [item.path for item in strangers(problem, [])] == [str(script)]


def test_one_digest_or_all_may_be_named(script: Path) -> None:
    problem = Problem(model="m", inputs=(str(script),), check="mycheck")
    first = trust.items(problem)[0]
    assert [item.kind for item in strangers(problem, [first.digest])] == ["check command"]
    assert strangers(problem, ["all"]) == []


def test_the_sentence_shows_and_obeys_nothing(script: Path) -> None:
    text = sentence(trust.items(Problem(model="m", inputs=(str(script),))))
    assert "--yes-run-scripts" in text
    assert "import numpy" in text
    assert "\x1b" not in text


def test_a_trust_file_that_others_can_write_trusts_nothing(script: Path) -> None:
    problem = Problem(model="m", inputs=(str(script),))
    trust.remember(trust.items(problem))
    trust.trust_file().chmod(0o666)
    assert len(strangers(problem, [])) == 1


def test_what_others_wrote_into_a_trust_file_is_not_taken_over(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agreeing to one thing made a file that others could write the user's own again, and with it
    all that they had put there."""
    theirs, own = (
        Problem(model="m", inputs=(str(script),)),
        Problem(model="m", check="mine {model}"),
    )
    trust.remember(trust.items(theirs))
    for mode, owner in ((0o666, os.geteuid()), (0o600, os.geteuid() + 1)):
        trust.trust_file().chmod(mode)
        with monkeypatch.context() as other:
            other.setattr(os, "geteuid", lambda owner=owner: owner)
            assert len(strangers(theirs, [])) == 1, mode
            trust.remember(trust.items(own))
        assert strangers(own, []) == []
        assert len(strangers(theirs, [])) == 1, mode
        trust.trust_file().unlink()
        trust.remember(trust.items(theirs))
        assert strangers(theirs, []) == []


def test_a_broken_trust_file_trusts_nothing_and_is_written_anew(script: Path) -> None:
    problem = Problem(model="m", inputs=(str(script),))
    trust.trust_file().parent.mkdir(parents=True)
    trust.trust_file().write_text("{broken")
    trust.trust_file().chmod(0o600)
    assert len(strangers(problem, [])) == 1
    trust.remember(trust.items(problem))
    assert strangers(problem, []) == []


def test_what_is_not_there_is_a_stranger_without_a_digest(tmp_path: Path) -> None:
    gone = Problem(model="m", inputs=(str(tmp_path / "gone.py"),))
    assert [item.digest for item in strangers(gone, [""])] == [""]
    with pytest.raises(trust.Untrusted, match="it is not there"):
        trust.admit(gone)
    assert trust.admit(gone, ["all"]).files == {}, (
        "nothing can be run there, whatever comes to lie there"
    )


def test_ones_own_script_may_go_and_ones_own_check_may_not(script: Path) -> None:
    own = Problem(model="m", inputs=(str(script),))
    checked = Problem(model="m", check=f"python {script}", folder=str(script.parent))
    trust.agree(own)
    trust.agree(checked)
    script.unlink()
    assert trust.admit(own).files == {}
    with pytest.raises(trust.Untrusted):
        trust.admit(checked)


def test_libraries_that_an_engine_would_load_need_agreement_too(tmp_path: Path) -> None:
    ops, more, plugin = (tmp_path / name for name in ("ops.so", "more.so", "plugin.so"))
    for path in (ops, more, plugin):
        path.write_bytes(path.name.encode())
    problem = Problem(
        model="m",
        engine=f"tensorrt:plugins={plugin}",
        reference=f"onnxruntime:custom_ops={ops}+{more},threads=1",
    )
    found = strangers(problem, [])
    assert [(item.kind, item.path) for item in found] == [
        ("library of custom operators", str(more)),
        ("library of custom operators", str(ops)),
        ("library of plugins", str(plugin)),
    ]
    assert "plugin.so" in sentence(found)
    trust.remember(found)
    assert strangers(problem, []) == []
    ops.write_bytes(b"another content")
    assert [item.path for item in strangers(problem, [])] == [str(ops)]


def test_no_spelling_of_a_script_gets_past(tmp_path: Path, script: Path) -> None:
    other = tmp_path / "other.PY"
    other.write_text("load_data = list")
    for source in (f"x={script}", f"x={script}:batches", f"{script}:not an identifier", str(other)):
        assert len(strangers(Problem(model="m", inputs=(source,)), [])) == 1, source


def test_a_postprocess_script_is_asked_about_and_top_k_is_not(script: Path) -> None:
    problem = Problem(model="m", postprocess=(f"{script}:batches",))
    assert [(item.kind, item.path) for item in strangers(problem, [])] == [
        ("postprocess script", str(script))
    ]
    largest = Problem(model="m", postprocess=("y:top-5", "top-1,axis=0"))
    assert trust.items(largest) == []
    measure = Measure(
        model="d", inputs="i", samples=("real:0",), engine="onnxruntime", reference="onnxruntime"
    )
    named = msgspec.structs.replace(measure, postprocess=problem.postprocess)
    consent = trust.agree(problem)
    assert consent.strange(named) == ""
    assert consent.strange(measure) == ""
    assert "batches" in trust.agree(Problem(model="m")).strange(named)
    assert (
        trust.agree(Problem(model="m")).strange(
            msgspec.structs.replace(measure, postprocess=("top-5",))
        )
        == ""
    )


def test_a_score_script_is_asked_about_and_labels_are_not(tmp_path: Path, script: Path) -> None:
    problem = Problem(model="m", score=f"{script}:batches")
    assert [(item.kind, item.path) for item in strangers(problem, [])] == [
        ("score script", str(script))
    ]
    labels = tmp_path / "labels.npy"
    labels.write_bytes(b"")
    assert trust.items(Problem(model="m", score=str(labels))) == []
    measure = Measure(
        model="d", inputs="i", samples=("real:0",), engine="onnxruntime", reference="onnxruntime"
    )
    named = msgspec.structs.replace(measure, score=problem.score)
    assert trust.agree(problem).strange(named) == ""
    assert "batches" in trust.agree(Problem(model="m")).strange(named)
    assert (
        trust.agree(Problem(model="m")).strange(msgspec.structs.replace(measure, score=str(labels)))
        == ""
    )
    assert trust.agree(problem).of(named) == trust.agree(problem), (
        "what scores travels with its consent"
    )


def test_a_probe_runs_nothing_that_was_not_agreed_to(tmp_path: Path, script: Path) -> None:
    ops, other = tmp_path / "a.so", tmp_path / "b.so"
    for path in (ops, other):
        path.write_bytes(path.name.encode())
    problem = Problem(
        model="m",
        engine=f"onnxruntime:custom_ops={ops}",
        inputs=(str(script),),
        check="mine {model}",
        folder=str(tmp_path),
    )
    consent = trust.agree(problem)
    here = str(tmp_path)
    measure = Measure(
        model="d",
        inputs="i",
        samples=("real:0",),
        engine=f"onnxruntime:custom_ops={ops}",
        reference="onnxruntime",
    )
    assert consent.strange(measure) == ""
    assert consent.strange(LoadInputs(model="d", sources=(str(script),), folder=here)) == ""
    assert consent.strange(LoadInputs(model="d", sources=("x.npz",))) == ""
    assert consent.strange(Check(model="d", command="mine {model}", folder=here)) == ""
    anew = Requantize(
        model="d",
        inputs="i",
        samples=(),
        reference="onnxruntime:model=/float.onnx",
        trial="as it is",
    )
    assert "/float.onnx" in consent.strange(anew)
    both = msgspec.structs.replace(measure, engine=f"onnxruntime:custom_ops={ops}+{other}")
    assert "b.so" in consent.strange(both)
    assert "b.so" in consent.strange(
        msgspec.structs.replace(measure, engine=f"onnxruntime:custom_ops=+ {other}")
    )
    typed = trust.admit(problem, engine=f"onnxruntime:custom_ops={other}")
    assert typed.strange(both) == "", "typed in place of the recorded one"
    assert "yours" in consent.strange(Check(model="d", command="yours {model}", folder=here))
    assert "/elsewhere" in consent.strange(
        Check(model="d", command="mine {model}", folder="/elsewhere")
    )
    assert "evil.py" in consent.strange(LoadInputs(model="d", sources=("evil.py",), folder=here))
    assert "wipe" in consent.strange(
        LoadInputs(model="d", sources=(f"{script}:wipe",), folder=here)
    )
    assert consent.of(measure) == consent
    assert consent.of(msgspec.structs.replace(measure, engine="onnxruntime")).files == {}


@pytest.mark.parametrize(
    "text",
    [
        "loader.py",
        "./loader.py",
        "{0}/../{1}/loader.py",
        "{0}//{1}/loader.py",
        "/{0}/{1}/loader.py",
    ],
)
def test_a_path_that_may_mean_another_file_is_refused_whatever_was_agreed_to(
    script: Path, text: str
) -> None:
    parent = script.parent
    text = text.replace("{0}/..", f"{parent}/..").format(parent.parent, parent.name)
    for problem in (
        Problem(model="m", inputs=(text,)),
        Problem(model="m", postprocess=(text,)),
        Problem(model="m", score=text),
        Problem(model="m", reference=f"onnxruntime:custom_ops={text}"),
        Problem(model="m", check="mine", folder=text),
    ):
        with pytest.raises(
            trust.Untrusted, match=r"Nothing was run\. Begin a new session"
        ) as caught:
            trust.admit(problem, ["all"])
        assert caught.value.code == 3


def test_blanks_and_links_are_refused_too(script: Path) -> None:
    link = script.with_name("link.py")
    link.symlink_to(script)
    for text in (str(link), f" {script}"):
        with pytest.raises(trust.Untrusted):
            trust.admit(Problem(model="m", inputs=(text,)), ["all"])
    for spec in (
        f"custom_ops=+ {script}",
        f"custom_ops={script}+",
        f"custom_ops={script}+{script}",
        f"custom_ops= {script}",
    ):
        with pytest.raises(trust.Untrusted, match="not written plainly"):
            trust.admit(Problem(model="m", reference=f"onnxruntime:{spec}"), ["all"])


def test_consent_to_a_check_covers_its_folder_and_the_files_that_it_names_and_imports(
    tmp_path: Path,
) -> None:
    for name in ("mine", "theirs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "check.py").write_text("import part\n")
        (tmp_path / name / "part.py").write_text("")
    folder = tmp_path / "mine"
    for command in (
        "python -m check {model}",
        "python check.py",
        "sh -c 'python check.py {model}'",
        f"python {folder}/check.py",
    ):
        problem = Problem(model="m", check=command, folder=str(folder))
        consent = trust.agree(problem)
        assert set(consent.files) == {str(folder / "check.py"), str(folder / "part.py")}, command
        assert trust.admit(problem) == consent
        with pytest.raises(trust.Untrusted):
            trust.admit(msgspec.structs.replace(problem, folder=str(tmp_path / "theirs")))
        with pytest.raises(trust.Untrusted):
            trust.admit(msgspec.structs.replace(problem, folder=""))
        (folder / "part.py").write_text(f"# {command}")
        with pytest.raises(trust.Untrusted):
            trust.admit(problem)
        trust.agree(problem)
        (folder / "part.py").write_text("")


def test_a_typed_program_runs_where_the_user_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``replay FOREIGN --engine "command:run=python -m tool ..."`` ran the tool of the folder that
    the session names."""
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)  # with it the tool of no folder is found
    for name in ("own", "foreign"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tool.py").write_text(
            f"open({str(tmp_path / name)!r} + '.ran', 'w')\nprint({name!r})\n"
        )
    monkeypatch.chdir(tmp_path / "own")
    spec = f"command:run={sys.executable} -m tool {{inputs}} {{outputs}},version={sys.executable} -m tool"
    for folder in (str(tmp_path / "foreign"), ""):
        with held.under(trust.admit(Problem(model="m", folder=folder), engine=spec)):
            assert backends.make(spec).info.version == "own"
    assert not (tmp_path / "foreign.ran").exists()
    with pytest.raises(trust.Untrusted):
        trust.admit(
            Problem(model="m", reference=spec, folder=str(tmp_path / "foreign")), engine=spec
        )


def test_one_digest_that_was_named_is_remembered(script: Path) -> None:
    problem = Problem(model="m", inputs=(str(script),))
    trust.admit(problem, [trust.items(problem)[0].digest])
    assert strangers(problem, []) == []
    other = Problem(model="m", check="mine")
    trust.admit(other, ["all"])
    assert len(strangers(other, [])) == 1, "all is said once"


def test_what_a_script_imports_is_found_in_its_text(tmp_path: Path) -> None:
    (tmp_path / "pack" / "deep").mkdir(parents=True)
    for name in (
        "helper",
        "pack/__init__",
        "pack/deep/__init__",
        "pack/deep/leaf",
        "pack/side",
        "unused",
    ):
        (tmp_path / f"{name}.py").write_text("")
    (tmp_path / "pack/deep/leaf.py").write_text("from .. import side\nfrom . import nothing\n")
    (tmp_path / "main.py").write_text(
        "import numpy, helper\nif 1:\n    from pack.deep import leaf\n"
    )
    found = {str(path.relative_to(tmp_path)) for path in imported(tmp_path / "main.py")}
    assert found == {
        "helper.py",
        "pack/__init__.py",
        "pack/deep/__init__.py",
        "pack/deep/leaf.py",
        "pack/side.py",
    }
    more = {
        "helper.cpython-399-x86_64-linux-gnu.so",
        "helper.pyc",
        "ahead.abi3.so",
        "pack/side.so",
        "pack/fast.so",
    }
    for name in (*more, "helper.npz", "pack/deep/other.so"):
        (tmp_path / name).write_bytes(b"\0")
    (tmp_path / "unused.pyc").unlink(missing_ok=True)
    again = {str(path.relative_to(tmp_path)) for path in imported(tmp_path / "main.py")}
    assert again == found | more, (
        "which one a Python takes nobody knows, nor what a compiled one imports of those beside it"
    )
    (tmp_path / "main.py").write_text("def (:")
    assert imported(tmp_path / "main.py") == ()


@pytest.mark.parametrize("hidden", ["findings", "outcome", "table"])
def test_an_engine_that_only_stands_in_what_was_found_is_asked_about(
    tmp_path: Path, hidden: str
) -> None:
    """``ladder`` and ``export --weights random`` write and run the check of a culprit, which may
    name an engine of its own."""
    library = tmp_path / "evil.so"
    library.write_bytes(b"\x7fELF")
    spec = f"onnxruntime:custom_ops={library}"
    place = folders.create(
        Problem(model="m"), single_flow("compare", {}), folder=tmp_path / "session"
    )
    made = Journal(place / NAME)
    digest = Store(place).put(msgspec.json.encode([{"any": {spec: 1}}]))
    findings = Findings(culprits=(Culprit(Case(Candidate(), "real:0", engine=spec), "fusion"),))
    made.append(SessionOpened(folders.describe(place).id))
    made.append(StepStarted(1, "compare", 1, "compare", 1))
    outcome, taken = (
        {"any": [spec]} if hidden == "outcome" else {},
        findings if hidden == "findings" else Findings(),
    )
    outcome["message"] = f"golden:files={library} is no array"  # words, and no engine
    tables = {"any": digest} if hidden == "table" else {}
    made.append(StepFinished(1, "compare", outcome, msgspec.to_builtins(taken), tables))
    made.close()
    assert [
        item.path for item in trust.items(folders.describe(place).problem, *specs_found(place))
    ] == [str(library)]
    with pytest.raises(trust.Untrusted):
        trust.admit_session(place)
    assert str(library) in trust.admit_session(place, ["all"]).files
    output = str(tmp_path / "case")
    assert (
        entry.main(["export", str(place), "--weights", "random", "-o", output]) == Exit.NEEDS_PERSON
    )
    assert entry.main(["ladder", str(place), "--python", sys.prefix]) == Exit.NEEDS_PERSON


def test_what_an_edit_keeps_is_agreed_to_as_it_was_shown(script: Path) -> None:
    """It was digested anew between the question and the answer: what was swapped became one's
    own."""
    theirs = Problem("m.onnx", inputs=(str(script),))
    digest = trust.items(theirs)[0].digest
    trust.admit(theirs, [digest])
    script.write_text("swapped = 1\n", encoding="utf-8")
    mine = msgspec.structs.replace(theirs, seed=9)
    with pytest.raises(trust.Untrusted):
        trust.agree(mine, edited=theirs, yes=[digest])
    assert trust.items(mine)[0].key not in trust.trusted()
    assert trust.agree(mine).files, "what was typed is one's own"


def test_what_an_edit_keeps_is_not_swapped_behind_the_look_at_what_was(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, looked = Problem("m.onnx", inputs=(str(script),)), []

    def swapping(problem: Problem, *more: str) -> list[trust.Item]:
        if looked:
            script.write_text("swapped = 1\n", encoding="utf-8")
        looked.append(problem)
        return trust.items(problem)

    trust.remember(trust.items(theirs))
    monkeypatch.setattr("narrowdown.wizard.trust.gate.items", swapping)
    with pytest.raises(trust.Untrusted):
        trust.agree(msgspec.structs.replace(theirs, seed=9), edited=theirs)
    assert len(looked) == 2


def test_nothing_is_believed_that_lies_where_one_stands(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``XDG_STATE_HOME=.`` took the file of what was agreed to from a stranger's folder."""
    problem = Problem(model="m", inputs=(str(script),))
    monkeypatch.setenv("XDG_STATE_HOME", str(script.parent))
    trust.remember(trust.items(problem))
    assert strangers(problem, []) == []
    monkeypatch.setenv("HOME", str(script.parent / "person"))
    monkeypatch.chdir(script.parent)
    for name in ("", ".", "./", "../" + script.parent.name):
        monkeypatch.setenv("XDG_STATE_HOME", name)
        assert len(strangers(problem, [])) == 1, name
