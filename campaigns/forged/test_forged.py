"""Forged sessions at every door: nothing of them runs. ``make forged`` tries NARROWDOWN_FORGED of
them (400 unless it says otherwise), seeded, on a session that can really be worked on, and prints a
table; the fast suite tries each command with each kind, and each option with some, once on a
released session.
"""

import contextlib
import os
import random
import re
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import msgspec
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from narrowdown import engines, wizard
from narrowdown.wizard import Exit, Refusal, trust
from narrowdown.wizard.cli import entry
from narrowdown.wizard.flow.load import load
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.runner.requests import Options
from narrowdown.wizard.tui.library import Sessions

from . import bundles, doors, forge, gate_mutants

MANY = int(os.environ.get("NARROWDOWN_FORGED", "400"))
SEED = int(os.environ.get("NARROWDOWN_SEED", "1"))


REFUSED = (2, 3)  # 2: what stands on the command line is no digest


class Found(NamedTuple):
    """What became of one forgery: ``refused`` (exit 3), ``shut`` (nothing is run at this door),
    ``ran``, ``wrote`` (outside of the session), ``let in`` (a door that must refuse it did not) or
    ``started`` (workers were)."""

    kind: str
    way: str
    door: str
    end: str
    code: int


@pytest.fixture
def victim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Somebody's machine: what was agreed to there, and where its sessions live."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("NARROWDOWN_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    (tmp_path / "person" / ".config").mkdir(parents=True)
    for name in (".bashrc", ".profile", ".config/settings"):
        (tmp_path / "person" / name).write_text("true\n", encoding="utf-8")
    # As ``PYTHONPATH=$PYTHONPATH:/opt`` has it: the folder that a process stands in.
    monkeypatch.setenv("PYTHONPATH", os.pathsep)
    monkeypatch.setenv("LD_LIBRARY_PATH", os.pathsep)
    # One stands in a folder of a stranger's, whose modules are in the way of all that any of our
    # programs imports.
    (folder := tmp_path / "stood in").mkdir()
    for name in (*_IN_THE_WAY, *{name.partition(".")[0] for name in sys.modules}):
        forge.script(folder / f"{name}.py", tmp_path / STOOD_IN)
    monkeypatch.chdir(folder)
    return tmp_path


STOOD_IN = "ran where one stands"
_IN_THE_WAY = (
    "pip",
    "sitecustomize",
    "usercustomize",
    "onnxruntime",
    "openvino",
    "tensorrt",
    "torch",
    "distributed",
    "check",
)


def person(folder: Path, agreed: bool = False) -> dict[str, bytes]:
    """What a person has and no session may touch: every file below these, by what is in it; not
    what engines cache, nor what rustup writes: pip asks rustc for its version. ``agreed``: the
    victim typed a script, which is agreed to by that."""
    kept = trust.trust_file().name
    others = {".cache", ".rustup", *([kept, f".{kept}.lock"] if agreed else [])}
    found = (path for path in folder.rglob("*") if path.is_file() and not others & {*path.parts})
    return {str(path): path.read_bytes() for path in found}


def attempt(folder: Path, base: Path, kind: str, way: str, door: doors.Door) -> Found | None:
    """One forgery at one door; None where this way means nothing for the kind. What it changes of
    the environment ends with it."""
    with contextlib.chdir(Path.cwd()), mock.patch.dict(os.environ):
        return _attempted(folder, base, kind, way, door)


def _attempted(folder: Path, base: Path, kind: str, way: str, door: doors.Door) -> Found | None:
    trust.trust_file().unlink(missing_ok=True)
    try:
        bundle = door.name.startswith("bundle:")
        made = (
            bundles.forged(folder, base, kind, way, door)
            if bundle
            else forge.forged(folder, base, kind, way)
        )
    except forge.Pointless:
        shutil.rmtree(folder)
        return None
    made.canary.unlink(missing_ok=True)  # the compiler's own trial
    logs = made.session / "logs"
    shutil.rmtree(logs, ignore_errors=True)
    work = folder / "work"
    work.mkdir()
    owned = [Path.home(), *(folder / name for name in ("own", "strange"))]
    typed = bool(made.words) or "{score}" in door.name
    before = [person(place, typed) for place in owned]
    code = door.call(made.session, work, made.words)
    if made.canary.exists() or (folder.parent / STOOD_IN).exists():
        end = "ran"
    elif [person(place, typed) for place in owned] != before:
        end = "wrote"
    elif way in forge.HIDDEN:
        end = "refused" if code in REFUSED else "shut"
    elif door.gated and code not in REFUSED:
        end = "let in"
    elif list(logs.glob("worker-*.log")) or list(logs.glob("runner.log")):
        end = "started"
    else:
        end = "refused" if code in REFUSED else "shut"
    shutil.rmtree(folder, ignore_errors=True)
    return Found(kind, way, door.name, end, code)


def test_every_kind_has_a_payload_and_every_command_a_door() -> None:
    """A new kind of thing to run, a new command or a new call of the screens fails here until it is
    tried."""
    assert set(forge.PAYLOADS) == set(trust.KINDS)
    assert doors.forgotten() == set()
    assert len(doors.all_doors()) > 30
    assert sum(door.gated for door in doors.all_doors()) > 10


def test_whatever_is_kept_on_this_machine_is_forged_or_named() -> None:
    """A new cache fails here until it is tried."""
    files = (
        path
        for room in (wizard, engines)
        for path in Path(room.__file__ or "").parent.rglob("*.py")
    )
    found = {
        path.relative_to(gate_mutants.PACKAGE).as_posix()
        for path in files
        if re.search(r"\bown_folder\(\"", path.read_text(encoding="utf-8"))
    }
    assert forge.KEPT.keys() == found


@pytest.mark.parametrize("mutant", gate_mutants.MUTANTS, ids=lambda mutant: mutant.door)
def test_every_mutant_still_finds_its_gate(mutant: gate_mutants.Mutant) -> None:
    assert gate_mutants.mutated(mutant)


def test_no_door_lets_a_kind_in(victim: Path) -> None:
    """Each command with each kind, and each of its options with two, in one of the ways each; a
    compiler is asked for nothing here. The campaign tries every pair."""
    base = forge.released(victim / "base")
    chance = random.Random(SEED)
    plain = [way for way in forge.WAYS if way not in forge.HIDDEN]
    found: list[Found] = []
    with cheap_libraries():
        for number, door in enumerate(doors.all_doors()):
            kinds = [*forge.PAYLOADS]
            if door.name.partition(" ")[2]:
                kinds = [kinds[(2 * number + i) % len(kinds)] for i in range(2)]
            # Where nothing is ever run, one kind stands for all.
            for kind in kinds if door.gated else [chance.choice(kinds)]:
                tried = None
                while tried is None:
                    way = chance.choice(plain if door.gated else ["inside the session", "relative"])
                    tried = attempt(victim / f"{number}-{len(found)}", base, kind, way, door)
                assert tried.end in ("refused", "shut"), (
                    tried
                )  # at once: a session that was let in may work for long
                found.append(tried)
    asked = {each.door for each in found if each.code == 3}
    assert asked == {door.name for door in doors.all_doors() if door.gated}, (
        "each of these doors asks"
    )


def test_no_bundle_runs_what_its_reader_did_not_see(victim: Path) -> None:
    """Each command that takes one with each kind that an engine runs, each option with one; and
    what was agreed to, swapped."""
    base = forge.released(victim / "base")
    of_engines = bundles.kinds_of_engines()
    tries, swapped, found = [], set(), []
    for number, door in enumerate(bundles.of_the_command_line()):
        some = (
            of_engines
            if len(door.name.split()) == 2
            else of_engines[number % len(of_engines) :][:1]
        )
        tries += [(kind, "in the report", door) for kind in some]
        tries += [("check command", way, door) for way in bundles.SWAPPED if some is of_engines]
    assert len(tries) > len(of_engines) + len(bundles.SWAPPED), "a command, and an option of it"
    with cheap_libraries():
        for number, (kind, way, door) in enumerate(tries):
            tried = attempt(victim / f"{number}", base, kind, way, door)
            found += (
                [(tried, *doors.SAID)]
                if tried and (tried.end, tried.code) != ("refused", Exit.NEEDS_PERSON)
                else []
            )
            swapped |= {way} if tried and way in bundles.SWAPPED else set()
    assert not found, "\n".join(map(str, found))
    assert swapped == set(bundles.SWAPPED), "each of these was agreed to before"


def test_the_reference_of_a_flow_is_not_taken_for_typed(victim: Path) -> None:
    """``run MODEL --flow THEIRS`` ran it, and remembered it as the user's own; what the user typed
    beside it is remembered."""
    own = victim / "own.so"
    for path in (own, victim / "evil.so"):
        path.write_bytes(b"no library")
    forge.model(victim / "model.onnx", victim)
    text = load("accuracy").text.replace(
        "\nnodes:", f"\nreference: onnxruntime:custom_ops={victim}/evil.so\nnodes:", 1
    )
    (victim / "flow.yaml").write_text(text, encoding="utf-8")
    words = [
        "--flow",
        str(victim / "flow.yaml"),
        "--engine",
        f"onnxruntime:custom_ops={own}",
        "--display",
        "none",
    ]
    assert (
        entry.main(["run", str(victim / "model.onnx"), *words, "--session", str(victim / "made")])
        == Exit.NEEDS_PERSON
    )
    theirs = Problem(str(victim / "model.onnx"), engine="emulate", flow=str(victim / "flow.yaml"))
    with pytest.raises(Refusal) as refused:
        Sessions(Options()).create(theirs)
    assert refused.value.code == Exit.NEEDS_PERSON
    assert set(trust.trusted().values()) == {str(own)}
    assert not (victim / "made").exists()


def test_all_lets_through_for_once(victim: Path) -> None:
    """A session that was edited with ``all`` made what it runs the user's own for good."""
    made = forge.bench(victim / "forged", forge.released(victim / "base"))
    (made.session / "evil.so").write_bytes(b"no library")
    forge.edit(
        made,
        lambda problem: problem.update(reference=f"onnxruntime:custom_ops={made.session}/evil.so"),
    )
    library, problem = Sessions(Options(), yes=("all",)), forge.problem_of(made)
    library.edit(made.session, msgspec.structs.replace(problem, seed=9))
    assert trust.trusted() == {}


@contextlib.contextmanager
def cheap_libraries():
    """Payloads of libraries without a compiler: doors that stay shut load none."""
    before = {kind: forge.PAYLOADS[kind] for kind in forge.LISTS}
    try:
        for kind, payload in before.items():
            forge.PAYLOADS[kind] = payload._replace(
                write=lambda path, _canary: path.write_bytes(b"\x7fELF")
            )
        yield
    finally:
        forge.PAYLOADS.update(before)


# -- the campaign


def session(folder: Path) -> Path:
    """A finished session that can be taken up again, with a failing case, made by the command line
    itself."""
    folder.mkdir(parents=True)
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["square"], name="square"),
        helper.make_node("ReduceSum", ["square"], ["sum"], name="sum", keepdims=1),
        helper.make_node("Sqrt", ["sum"], ["y"], name="root"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    onnx.save(model, folder / "norm.onnx")
    np.savez(folder / "x.npz", x=np.full((1, 8), 300.0, np.float32))
    words = [
        "run",
        str(folder / "norm.onnx"),
        "--engine",
        "emulate:precision=fp16",
        "--inputs",
        str(folder / "x.npz"),
    ]
    assert entry.main([*words, "--session", str(folder / "base"), "--display", "none"]) == 0
    return folder / "base"


def anew(place: Path) -> int:
    """Take the session up with nothing measured yet."""
    (place / "journal.jsonl").unlink()
    return entry.main(["resume", str(place), "--display", "none"])


@pytest.mark.fuzz
@pytest.mark.timeout(3600)
def test_forged_campaign(victim: Path) -> None:
    base = session(victim / "base")
    for number, (kind, payload) in enumerate(forge.PAYLOADS.items()):
        if payload.code:  # else a canary that stays away would mean nothing
            made = forge.agreed_to(victim / f"control-{number}", base, kind)
            made.canary.unlink(missing_ok=True)
            anew(made.session)
            assert made.canary.exists(), f"the payload of a {kind} does not tell that it ran"
    chance = random.Random(SEED)
    all_doors = [*doors.all_doors(), *bundles.of_the_command_line()]
    turns: dict[str, list[tuple[str, str, doors.Door]]] = {}
    for door in all_doors:
        turns[door.name] = [(kind, way, door) for kind in forge.PAYLOADS for way in forge.WAYS]
        if door.name.startswith("bundle:"):
            turns[door.name] = [
                (kind, "in the report", door) for kind in bundles.kinds_of_engines()
            ]
            turns[door.name] += [("check command", way, door) for way in bundles.SWAPPED]
        chance.shuffle(turns[door.name])
    found: list[Found] = []
    seen: set[tuple[str, str]] = set()
    silent = {
        door.name for door in all_doors if door.gated
    }  # which have not said yet that they need a person
    # Every door has its turn before one has its second; one that is to refuse has as many as it
    # takes to hear it.
    while any(turns.values()) and (len(found) < MANY or any(turns[name] for name in silent)):
        for number, (name, left) in enumerate(turns.items()):
            if len(found) >= MANY and name not in silent:
                continue
            left.sort(key=lambda each: _brings_new(seen, each))
            tried = None
            while left and not tried:
                kind, way, door = left.pop()
                tried = attempt(victim / f"try-{number}-{len(left)}", base, kind, way, door)
            if tried:
                found.append(tried)
                seen |= {(tried.kind, tried.way), (tried.kind, name)}
                silent -= {name} if tried.code == Exit.NEEDS_PERSON else set()
    _print(found)
    bad = [each for each in found if each.end not in ("refused", "shut")]
    assert bad == []
    assert silent == set()
    assert len(found) >= MANY


def _brings_new(seen: set[tuple[str, str]], each: tuple[str, str, doors.Door]) -> int:
    """How many pairs of kind and way, kind and door it would be the first to try."""
    kind, way, door = each
    return len({(kind, way), (kind, door.name)} - seen)


def _print(found: list[Found]) -> None:
    print(f"\n{len(found)} forged sessions, seed {SEED}: {sum(f.end == 'ran' for f in found)} ran")
    ends = ("refused", "shut", "let in", "started", "wrote", "ran")
    for title, of in (("kind", 0), ("way", 1), ("door", 2)):
        print(f"\n{title:32} {' '.join(f'{end:>8}' for end in ends)}")
        counts = Counter((each[of], each.end) for each in found)
        for name in dict.fromkeys(each[of] for each in sorted(found)):
            print(f"{name:32} {' '.join(f'{counts[name, end]:8}' for end in ends)}")
    for each in found:
        if each.end not in ("refused", "shut"):
            print(f"  {each.end}: {each.kind}, {each.way}, by {each.door} (exit {each.code})")
