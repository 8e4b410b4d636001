"""What TensorRT 10.15 and 11.2 answered on an H200, and TensorRT-RTX 1.7 with no GPU, recorded by
``answers.py``: the stand-ins of the other tests say the same, and the words that a user reads of a
refusal come of what the real parsers said."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from narrowdown.engines import installed, options
from narrowdown.engines.backends.tensorrt import configure, make as tensorrt, network
from narrowdown.engines.backends.tensorrt.library import Library
from narrowdown.engines.backends.tensorrt.settings import FLAGS, Settings, strongly_typed
from narrowdown.engines.backends.tensorrt.switches import read_routes
from narrowdown.engines.spec import parse

from . import answers, stand_in
from .test_versions import H200, module

RECORD: dict[str, dict[str, Any]] = json.loads(answers.RECORD.read_text())
ROUTES = answers.RECORD.with_name("build_routes.json")
ON_A_GPU = [version for version in RECORD if not version.startswith("rtx")]
REFUSALS = [
    (v, q)
    for v, said in RECORD.items()
    for q, a in said.items()
    if q.startswith("parse ") and "refused" in a
]


def test_each_version_answered_every_question() -> None:
    assert ON_A_GPU == ["10.15.1.29", "11.2.1.2"]
    for version, said in RECORD.items():
        assert set(said) == set(answers.asks()), (
            f"{version}: run python tests/engines/backends/tensorrt/answers.py"
        )
        assert not [q for q, a in said.items() if isinstance(a, dict) and "died" in a]


@pytest.mark.parametrize("version", ON_A_GPU)
def test_the_stand_in_of_a_version_can_what_the_real_one_can(version: str) -> None:
    found, said = Library("tensorrt", module(version)), RECORD[version]
    assert {ability: bool(getattr(found, ability)) for ability in answers.ABILITIES} | {
        "version": version
    } == said["abilities"]
    flags = {name for row in FLAGS.values() for name in row} | {
        "OBEY_PRECISION_CONSTRAINTS",
        "EDITABLE_TIMING_CACHE",
    }
    assert {name for name in flags if said["flags"][name] == "no such flag"} == {
        n for n in flags if not found.has_flag(n)
    }
    # As the backend uses them: a flag that is set is there afterwards, and TF32 is on before
    # anybody asks.
    assert all(
        said["flags"][name] == [name == "TF32", True] for name in flags if found.has_flag(name)
    )


@pytest.mark.parametrize("version", ON_A_GPU)
@pytest.mark.parametrize("text", answers.OPTIONS)
def test_an_option_is_taken_or_refused_in_the_words_of_the_real_one(
    text: str, version: str
) -> None:
    found, spec = Library("tensorrt", module(version)), parse(text)
    try:
        said: Any = strongly_typed(Settings.of(spec.name, options.values(spec), found, H200), found)
    except ValueError as error:
        said = str(error)
    real = RECORD[version]["options"][text]
    if (
        isinstance(real, str) and " It has " in real
    ):  # the stand-in holds the sources alone that the backend names
        said, real = said.partition(" It has ")[0], real.partition(" It has ")[0]
    assert said == real


@pytest.mark.parametrize("version", ON_A_GPU)
def test_branches_are_there_as_on_the_real_one(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensorrt.cuda, "device", lambda: (H200, ""))
    monkeypatch.setattr(tensorrt.library, "load", lambda _: Library("tensorrt", module(version)))
    monkeypatch.setattr(tensorrt.switches, "list_switches", lambda _: ("dce",))
    info = tensorrt.make(parse("tensorrt:precision=fp16")).info
    able = {what: [able.present, able.reason] for what, able in info.capabilities.items()}
    assert able == RECORD[version]["capabilities"] | {"optimizers": [True, ""]}


def test_the_knobs_of_11_2_are_read_as_it_lists_them() -> None:
    """``all_build_routes`` as the real library gave it on an H200, before any build: 211 knobs, of
    which 190 are on or off, and 149 of these are on."""
    listed = json.loads(ROUTES.read_text())
    assert (listed["tuner_version"], len(listed["tuner_options"])) == ("2.20.51", 211)
    names = read_routes(json.dumps(listed))
    assert len(names) == 149
    assert {"peep:conv_h_fusion", "slice_fusion", "kgen:dynq:epilog_fusion"} <= names
    assert not {"conv_use_long_w:reshapes", "peep:max"} & names, "off already; a number"


@pytest.mark.parametrize("version", ON_A_GPU)
def test_the_stand_in_of_the_editable_cache_answers_as_the_real_one(version: str) -> None:
    real, cache = RECORD[version]["timing cache"], stand_in.Config().create_timing_cache(b"")
    assert cache.queryKeys() == real["keys"] == []
    assert cache.update("0x1", stand_in.Value(1, 1.0)) is real["an unknown key is changed"] is False
    assert cache.query("0x1").tacticHash == real["an unknown key's kernel"] == 2**64 - 1
    config = stand_in.Config()
    assert config.set_timing_cache(cache, False) is real["is taken"] is True
    assert (config.get_timing_cache() is cache) is real["comes back"] is True


@pytest.mark.parametrize(("version", "question"), REFUSALS)
def test_a_refusal_of_the_real_parser_is_told_in_these_words(version: str, question: str) -> None:
    """The parser's own errors, replayed through what makes a sentence of them."""
    real = RECORD[version][question]
    errors = [
        SimpleNamespace(
            code=lambda c=c: c,
            desc=lambda d=d: d,
            node_name=lambda n=n: n,
            node_operator=lambda o=o: o,
        )
        for c, d, n, o in real["errors"]
    ]
    title = "TensorRT-RTX" if version.startswith("rtx") else "TensorRT"
    found: Any = SimpleNamespace(title=title, log=SimpleNamespace(errors=list))
    fault = network.refuse_model(found, errors)
    assert (fault.status, str(fault)) == (real["refused"], real["said"])
    assert not [
        word
        for word in (": false", "&&", "In node -1", "ITensor::", "Error Code")
        if word in real["said"]
    ]


def test_what_each_version_refuses_is_what_the_page_says() -> None:
    refused = {v: {q.removeprefix("parse ") for at, q in REFUSALS if at == v} for v in RECORD}
    expected = {
        "pillars_add", "Unique", "SequenceAt", "an operator that nobody has", "uint8 as quantize_static makes it",
        "int8 pairs, not symmetric", "int8 pairs with an int32 bias", "weights of UINT4 in blocks of 32",
        "weights of FP8 in blocks of 32, scales of E8M0",
    }  # fmt: skip
    assert refused == dict.fromkeys(RECORD, expected)


@pytest.mark.parametrize("version", ON_A_GPU)
def test_a_library_without_kernels_says_so(version: str) -> None:
    for real in (
        answer for question, answer in RECORD[version].items() if question.startswith("build ")
    ):
        errors = list(real["errors"])
        found: Any = SimpleNamespace(title="TensorRT", log=SimpleNamespace(errors=errors.copy))
        fault = configure.make_fault(found)
        assert (fault.status, str(fault)) == (real["refused"], real["said"])
        assert "no kernels for this GPU" in real["said"]
        assert "Install TensorRT again, whole" in real["said"]


@pytest.mark.filterwarnings("ignore:Use Deprecated in TensorRT-RTX")
@pytest.mark.skipif(
    not installed.importable("tensorrt_rtx"), reason="TensorRT-RTX is not installed"
)
@pytest.mark.parametrize(
    "question",
    [
        "parse Unique",
        "parse If",
        "parse weights of FP4 in blocks of 16",
        "parse int8 pairs with an int32 bias",
        "parse uint8 as quantize_static makes it",
        "marks, outputs",
        "marks, debug",
        "marks, unfused",
        "flags",
        "timing cache",
    ],
)
def test_tensorrt_rtx_still_answers_what_was_recorded(question: str) -> None:
    (recorded,) = (said for version, said in RECORD.items() if version.startswith("rtx"))
    assert json.loads(json.dumps(answers.asks()[question]("tensorrt_rtx"))) == recorded[question]
