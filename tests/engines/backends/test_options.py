"""Specs are checked as text, and every mistake is a sentence with the nearest name."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from narrowdown.engines import discovery
from narrowdown.engines.backends.onnxruntime import harmless
from narrowdown.engines.backends.onnxruntime.optimizers import KNOWN
from narrowdown.engines.declaration import NAMES, Declaration, Option
from narrowdown.engines.options import SETTING, check, declared_as, settings, split_paths, values
from narrowdown.engines.spec import EngineSpec, parse


def value_of(option: Option) -> st.SearchStrategy[str]:
    if option.choices:
        return st.sampled_from([*option.choices, *(c.upper() for c in option.choices)])
    if option.name == "disabled_optimizers":
        return st.lists(st.sampled_from(sorted(KNOWN)), max_size=4).map("+".join)
    name = st.text("abcXYZ_/.1", min_size=1)
    if option.name in (
        "names",
        "provider_options",
        "session_config",
    ):  # golden outputs: RECORDED=TENSOR; KEY=VALUE
        return st.lists(st.tuples(name, name).map("=".join), max_size=3).map("+".join)
    if option.name == "dtypes":
        return st.lists(st.sampled_from(["float32", "int64", "bool"]), max_size=3).map("+".join)
    if option.type == "command":
        return st.text("abc {},'.1", min_size=1).map(str.strip).filter(bool)
    match option.type:
        case "int":
            return st.integers(int(option.least or 0), int(option.most or 10**6)).flatmap(
                lambda n: st.sampled_from([str(n), f"0{n}", f" {n}"])
            )
        case "float":
            return st.floats(0, 1).map(str)
        case "bool":
            return st.sampled_from(["true", "FALSE", "yes", "no", "on", "off", "1", "0"])
        case "library" if option.name == "provider_library":
            return name.filter(lambda text: "+" not in text)
        case "list":
            return st.lists(name, max_size=3).map("+".join)
    return st.text("abcXYZ_.1", min_size=1)


def test_every_option_says_what_its_value_is() -> None:
    """A number, a switch or one of a list; a file or a command, which are asked about; or text that
    is, but where it is declared to be harmless: of no such text is any path taken from a session
    for granted, but names of tensors, which nothing opens."""
    for declared in discovery.ours().values():
        for option in declared.options:
            spec = f"{declared.name}:{option.name}="
            if option.type in ("file", "library", "command"):
                assert option.what, spec
            elif option.type in ("str", "list") and not option.choices:
                assert option.harmless, spec
                pair = option.name in ("session_config", "provider_options")
                if option.harmless != NAMES and not declared.hidden:
                    texts = (
                        ("/a", "a/b", "..\\b")
                        if not pair
                        else ("any=1", "session.disable_prepacking=/a", "use_tf32=a/b")
                    )
                    for text in texts:
                        assert not re.fullmatch(option.harmless, text), spec


def test_what_no_declaration_knows_is_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting of an engine of another package, whose author has said nothing of it, too."""
    written = "onnxruntime:session_config=session.collect_node_memory_stats_to_file=/x"
    assert settings(written) == ((SETTING, written),)
    assert (
        settings(
            "onnxruntime:session_config=session.disable_prepacking=1,provider_options=use_tf32=0"
        )
        == ()
    )
    assert [
        text for _, text in settings("onnxruntime:provider_options=backend_path=/a.so+depth=3")
    ] == ["onnxruntime:provider_options=depth=3"]
    theirs = Declaration(
        "theirs", "", "", (Option("cache", "str", "", ""), Option("level", "int", 0, ""))
    )
    monkeypatch.setattr(discovery, "find", lambda name: theirs)
    assert settings("theirs:cache=/x,level=3") == ((SETTING, "theirs:cache=/x"),)


@st.composite
def specs(draw: st.DrawFn) -> EngineSpec:
    declared = draw(st.sampled_from([d for d in discovery.ours().values() if not d.refusal]))
    chosen = (
        draw(st.lists(st.sampled_from(declared.options), unique=True)) if declared.options else []
    )
    drawn = {o.name: draw(value_of(o)) for o in chosen}
    if declared.name == "openvino":
        drawn.pop("disabled_optimizers", "")  # it has its own names
    return EngineSpec(declared.name, tuple(sorted(drawn.items())))


@given(specs())
def test_checking_is_canonical(spec: EngineSpec) -> None:
    canonical = check(spec)
    assert check(str(canonical)) == canonical
    assert values(canonical) == values(spec)
    assert values(spec).keys() == {o.name for o in declared_as(spec.name).options}


@st.composite
def wrong_specs(draw: st.DrawFn) -> str:
    """A known engine and an option of its own or of nobody, with a value that may be of no use."""
    declared = draw(st.sampled_from([d for d in discovery.ours().values() if not d.refusal]))
    known = st.sampled_from([o.name for o in declared.options] or ["none"])
    return f"{declared.name}:{draw(known | st.text('optima', min_size=1))}={draw(st.text('al1+=:-.', min_size=1))}"


@given(st.text() | wrong_specs())
def test_any_text_is_a_spec_or_a_sentence(text: str) -> None:
    said = "."
    try:
        check(text)
    except ValueError as problem:
        said = str(problem)
    assert said.endswith((".", "?"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("onxruntime", "Did you mean 'onnxruntime'?"),
        ("tensort", "Did you mean 'tensorrt'?"),
        ("tensort:fp16", "Did you mean 'tensorrt'?"),
        ("openvino:fp16", "Did you mean 'precision=f16'?"),
        (
            "fakee",
            "There is no engine 'fakee'. Known: onnxruntime, reference, emulate, openvino, tensorrt, tensorrt_rtx, golden, "
            "command, torch.",
        ),
        ("onnxruntime:treads=1", "no option 'treads'. Did you mean 'threads'?"),
        ("emulate:precison=fp16", "Did you mean 'precision'?"),
        ("emulate:precision=fp8", "emulate: precision=fp8 is not one of fp16, bf16, typed."),
        ("openvino:precision=bf61", "Did you mean 'bf16'?"),
        ("onnxruntime:threads=two", "threads=two is not a whole number."),
        ("onnxruntime:threads=-1", "it must be from 0 to 1024."),
        ("onnxruntime:prepacking=maybe", "prepacking=maybe is neither true nor false."),
        ("onnxruntime:disabled_optimizers=PadFusion", "Did you mean 'Pad_Fusion'?"),
        ("onnxruntime:disabled_optimizers=Pad_Fusion+divmulfusion", "Did you mean 'DivMulFusion'?"),
        ("onnxruntime:session_config=x", "session_config: 'x' is not KEY=VALUE"),
        ("golden:names=logits", "'logits' is not RECORDED=TENSOR"),
        ("command:run=a, b", "is not key=value; a comma inside a value is written \\,."),
        ("command:run=a\\", "ends in a backslash"),
        ("onnxruntime:threads", "'threads' in 'onnxruntime:threads' is not key=value."),
        ("emulate:FP16", "is not key=value. Did you mean 'precision=fp16'?"),
        ("fake:rate=nan", "rate=nan is out of range"),
    ],
)
def test_mistakes_are_named_with_what_was_meant(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        check(text)


def test_a_precision_may_have_its_other_name() -> None:
    assert str(check("openvino:precision=FP16")) == "openvino:precision=f16"
    assert str(check("emulate:precision=f16")) == "emulate:precision=fp16"


def test_values_are_typed_and_defaults_filled_in() -> None:
    got = values(
        parse(
            "onnxruntime:optimization=ALL,threads=02,disabled_optimizers=Pad_Fusion+DivMulFusion+Pad_Fusion"
        )
    )
    assert got["optimization"] == "all"
    assert got["threads"] == 2
    assert got["disabled_optimizers"] == ("DivMulFusion", "Pad_Fusion")
    assert got["execution"] == "sequential"
    assert got["prepacking"] is None
    assert values(parse("onnxruntime"))["optimization"] == "disabled"
    assert values(parse("onnxruntime"))["threads"] == 1


def test_every_declared_default_is_itself_allowed() -> None:
    for declared in discovery.ours().values():
        for option in declared.options:
            if option.default not in (None, ()):
                text = str(option.default).lower() if option.type == "bool" else str(option.default)
                spec = check(EngineSpec(declared.name, ((option.name, text),)))
                assert values(spec)[option.name] == option.default


def test_checking_loads_nothing_heavy() -> None:
    code = (
        "import sys; from narrowdown.engines.options import check; check('onnxruntime:optimization=all,disabled_optimizers=Pad_Fusion');"  # noqa: E501
        "import narrowdown.engines.backends; check('emulate'); check('tensorrt'); check('fake');"
        "print([m for m in ('numpy', 'onnx', 'onnxruntime', 'openvino', 'ml_dtypes') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_plus_in_the_path_of_a_file_that_is_there_belongs_to_it(tmp_path: Path) -> None:
    (tmp_path / "a+b").mkdir()
    for name in ("a+b/out+1.npz", "out.npz", "c.so"):
        (tmp_path / name).touch()
    here, there, library = (str(tmp_path / name) for name in ("a+b/out+1.npz", "out.npz", "c.so"))
    assert split_paths(f"{here}+{there}+{here}") == (here, there)
    assert split_paths(f"{there}+gone+x.npz+path={library}") == (
        there,
        "gone",
        "x.npz",
        f"path={library}",
    )
    assert values(parse(f"golden:files={there}+{here}"))["files"] == (there, here)


def test_no_key_of_the_installed_onnx_runtime_that_names_a_file_is_harmless() -> None:
    """A key that is new, or was renamed, is asked about; the list is of keys that the library
    knows."""
    folder = Path(str(importlib.util.find_spec("onnxruntime").origin)).parent / "capi"
    text = b"\0".join(path.read_bytes() for path in folder.glob("libonnxruntime.so*"))
    found = re.findall(rb"(?:session|optimization|mlas|ep)\.[a-z_0-9.]+(?=\0)", text)
    if len(keys := {key.decode() for key in found}) < 20:
        pytest.skip("no library of ONNX Runtime whose keys can be told")
    known = {key for key in keys if re.fullmatch(harmless.SESSION, f"{key}=1")}
    assert len(known) > 20
    assert not [k for k in known if re.search("file|path|folder|dump|profiling|log_|library", k)]
