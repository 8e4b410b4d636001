"""What a wrong name is answered with: the one that was meant, or those that there are."""

import pytest

from narrowdown.engines.nearest import NAMED, spell_out, suggest_or_list


@pytest.mark.parametrize(
    ("word", "known", "said"),
    [
        ("imge", ("image", "mask"), " Did you mean 'image'?"),
        ("q", ("x",), " It has 'x'."),
        ("q", ("x", "y", "z"), " It has 'x', 'y' and 'z'."),
        ("q", tuple("abcdef"), " It has 'a', 'b', 'c', 'd', 'e' and 'f'."),
        ("q", tuple("abcdefgh"), " It has 'a', 'b', 'c', 'd', 'e', 'f' and 2 more."),
        ("q", (), ""),
    ],
)
def test_what_there_is_is_said_where_nothing_is_near(
    word: str, known: tuple[str, ...], said: str
) -> None:
    assert NAMED == 6
    assert suggest_or_list(word, iter(known)) == said


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("trt", "tensorrt"), ("TRT", "tensorrt"), ("ort", "onnxruntime"), ("ov", "openvino"), ("trtx", "tensorrt_rtx"),
        ("t", ""), ("rt", ""), ("tro", ""), ("tensor", "tensorrt"), ("tensort", ""), ("", ""),
    ],
)  # fmt: skip
def test_an_engine_has_a_short_name(word: str, meant: str) -> None:
    assert (
        spell_out(word, ("onnxruntime", "tensorrt_rtx", "tensorrt", "openvino", "reference"))
        == meant
    )
