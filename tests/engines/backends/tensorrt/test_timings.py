"""Kernels recorded, forced and kept out through the editable timing cache, on a stand-in for the
builder."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st
from onnx import TensorProto, helper

from narrowdown.engines.backends import make
from narrowdown.engines.backends.base import BuildRequest, EngineFault
from narrowdown.engines.backends.tensorrt import library, timings
from narrowdown.engines.data.tactic_replay import rank_suspects
from narrowdown.engines.installed import importable

from . import stand_in

KERNELS = {"Tanh": (7, 8, 9), "Exp": (4,)}


def request(*ops: str, **rest: Any) -> BuildRequest:
    nodes = [
        helper.make_node(op, [f"t{i}"], [f"t{i + 1}"], name=f"{op.lower()}{i}")
        for i, op in enumerate(ops)
    ]
    ends = [helper.make_tensor_value_info(f"t{i}", TensorProto.FLOAT, [1]) for i in (0, len(ops))]
    return BuildRequest(
        helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:])), "", **rest
    )


def layer(op: str, name: str) -> str:
    return timings.name_layer(stand_in.key_of(op), name)


TANH, EXP = layer("Tanh", "tanh0"), layer("Exp", "exp1")


def facts(asked: BuildRequest) -> tuple[dict[str, Any], list[dict[str, int]]]:
    engine, builder = stand_in.engine(KERNELS)
    return dict(engine.build(asked).facts), builder.asked


def test_what_a_build_chose_is_read_by_operation() -> None:
    """Two operations of the same work share an entry, which bears the name of the first."""
    found, asked = facts(request("Tanh", "Exp", "Tanh", record=True))
    assert found["choices"] == {TANH: timings.write_choice(7), EXP: timings.write_choice(4)}
    assert found["refused"] == []
    assert asked == [{}]  # one build, which learned from nobody


def test_a_forced_kernel_takes_a_second_build_from_what_the_first_timed() -> None:
    found, asked = facts(
        request("Tanh", "Exp", force={TANH: timings.write_choice(9), EXP: timings.write_choice(4)})
    )
    assert found["choices"] == {TANH: timings.write_choice(9), EXP: timings.write_choice(4)}
    assert asked == [{}, {stand_in.key_of("Tanh"): 9, stand_in.key_of("Exp"): 4}]


def test_what_is_chosen_anyway_takes_no_second_build() -> None:
    found, asked = facts(request("Tanh", force={TANH: timings.write_choice(7)}))
    assert found["choices"] == {TANH: timings.write_choice(7)}
    assert len(asked) == 1


def test_a_forbidden_kernel_gives_way_to_the_fastest_other() -> None:
    found, _ = facts(request("Tanh", forbid={TANH: (timings.write_choice(7),)}))
    assert found["choices"] == {TANH: timings.write_choice(8)}
    found, _ = facts(
        request("Tanh", forbid={TANH: (timings.write_choice(7), timings.write_choice(8))})
    )
    assert found["choices"] == {TANH: timings.write_choice(9)}
    assert found["refused"] == []


@pytest.mark.parametrize(
    ("told", "refused"),
    [
        ({"forbid": {EXP: (timings.write_choice(4),)}}, [EXP]),  # the only kernel that there is
        (
            {"force": {layer("Neg", "neg"): timings.write_choice(1)}},
            [layer("Neg", "neg")],
        ),  # no such operation
        ({"force": {"conv1": "{}"}}, ["conv1"]),  # recorded by the algorithm selector
    ],
)
def test_what_cannot_be_followed_is_named_and_the_build_is_free(
    told: dict[str, Any], refused: list[str]
) -> None:
    found, _ = facts(request("Tanh", "Exp", **told))
    assert found["refused"] == refused
    assert found["choices"] == {TANH: timings.write_choice(7), EXP: timings.write_choice(4)}


def test_a_kernel_that_the_layer_cannot_use_is_a_failed_build() -> None:
    with pytest.raises(EngineFault, match="could not build the engine: no such kernel"):
        facts(request("Tanh", force={TANH: timings.write_choice(0x1234)}))


def test_choices_of_two_builds_are_told_apart() -> None:
    good, _ = facts(request("Tanh", "Exp", record=True))
    bad, _ = facts(request("Tanh", "Exp", forbid={TANH: (timings.write_choice(7),)}))
    assert [(s.layer, s.choice) for s in rank_suspects([good["choices"]], [bad["choices"]])] == [
        (TANH, timings.write_choice(8))
    ]


LOG = """\
*************** Autotuning format combination: Float(4) -> Float(4) {key: 0x000000000000000000000000000000AB} ***************
Tactic: 0x0000000000000002 Time: 0.125
Autotuning op __mye12(key: 0x000000000000000000000000000000cd):
tactic_id, cost(in ms), cost/fastest_cost, prediction_correlation, kernel_name, tactic_hash, tunable_parameter
3, 0.25, 1, 0.9, some_kernel, 0x00000000000000ff,
The selected tactic is (tactic hash, cost(in ms)):0x00000000000000ff,0.25
4, no number, 2, 0.9, other_kernel, 0x0000000000000003,
"""


def test_kernels_of_an_operation_without_a_key_are_not_laid_to_the_one_before() -> None:
    """The line is TensorRT-RTX 1.7's own."""
    keyless = "*************** Autotuning format combination: Float(64,1) -> Float(64,1) {key: None} ***************"
    found = timings.parse_timings(
        [*LOG.splitlines(), keyless, "Tactic: 0x0000000000000009 Time: 0.001"]
    )
    assert all(9 not in operation.tried for operation in found.values())


# TensorRT 10.6's texts (from its library): no keys, so nothing that an entry of a cache could be
# told by.
OLD = """\
*************** Autotuning format combination: Float(2048,256,16,1) -> Float(4096,256,16,1) ***************
--------------- Timing Runner: conv0 (CaskConvolution[0x80000009])
Tactic Name: sm80_xmma_fprop_implicit_gemm Tactic: 0x5030121339a48bf3 Time: 0.00512
conv0 (CaskConvolution[0x80000009]) profiling completed in 0.01 seconds. Fastest Tactic: 0x5030121339a48bf3 Time: 0.00512
>>>>>>>>>>>>>>> Chose Runner Type: CaskConvolution Tactic: 0x5030121339a48bf3
"""


def test_a_log_without_keys_tells_nothing() -> None:
    assert timings.parse_timings(OLD.splitlines()) == {}


@pytest.mark.skipif(not importable("tensorrt_rtx"), reason="TensorRT-RTX is not installed")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_real_builder_is_heard_and_a_real_key_is_written_as_we_read_it() -> None:
    found = library.load("tensorrt_rtx")
    key = "0x" + "0123456789abcdef" * 2
    assert timings.key_of(timings.name_layer(str(found.trt.TimingCacheKey.parse(key)), "op")) == key
    value = found.trt.TimingCacheValue(0xFF, 0.5)
    assert (value.tacticHash, value.timingMSec) == (0xFF, 0.5)
    with found.log.listening() as lines:
        asked = request("Tanh", "Exp")
        make("tensorrt_rtx:timing_cache=off").build(
            msgspec.structs.replace(asked, feed_shapes={"t0": (1,)})
        )
    assert any("Autotuning" in line for line in lines)
    assert any("Tactic: 0x" in line for line in lines)
    assert timings.parse_timings(lines) == {}  # its cache holds nothing


def test_both_ways_in_which_a_log_tells_are_understood() -> None:
    found = timings.parse_timings(LOG.splitlines())
    assert found == {
        f"0x{'ab':0>32}": timings.Operation("", {2: 0.125}),
        f"0x{'cd':0>32}": timings.Operation("__mye12", {0xFF: 0.25, 3: -1.0}),
    }
    assert timings.fastest_allowed({2: -1.0, 3: 0.5}, ()) == 3  # what was not timed comes last


@given(st.lists(st.text(alphabet="0x1af, keyTime:Autotuning op()\n{}", max_size=60)))
def test_no_log_is_too_strange(lines: list[str]) -> None:
    for operation in timings.parse_timings(lines).values():
        assert all(isinstance(ms, float) for ms in operation.tried.values())


@given(st.integers(0, 2**128 - 1), st.text(alphabet="ab/[]: 0x", max_size=20))
def test_a_layer_keeps_its_key(number: int, name: str) -> None:
    key = f"0x{number:032x}"
    assert timings.key_of(timings.name_layer(key, name)) == key
