"""Where an export departs: whom a part points to, and which recorded values are believed."""

import pytest

from narrowdown.engines.exporting.parting import (
    Part,
    blame_module,
    common_path,
    cut_around,
    list_behind,
)
from narrowdown.engines.graph import GraphIndex, Node, Tensor
from narrowdown.engines.problem import Difference, Exported

# x -> a -> b -> c -> d, each by one node; b and c in the module m.act, w a weight that c reads.
NAMES = ("x", "w", "a", "b", "c", "d")
PATHS = ("m.fc", "m.act", "m.act", "head")


def chain() -> GraphIndex:
    kinds = ("input", "weight", "node", "node", "node", "node")
    tensors = tuple(
        Tensor(i, name, "float32", kind, i - 2 if kind == "node" else -1, (2,), 8)  # type: ignore[arg-type]
        for i, (name, kind) in enumerate(zip(NAMES, kinds, strict=True))
    )
    reads = ((0,), (2,), (3, 1), (4,))
    nodes = tuple(
        Node(
            n,
            f"n{n}",
            "Op",
            "",
            reads[n],
            (n + 2,),
            source=f"m.py:{n}",
            module=PATHS[n],
            module_class=PATHS[n].title(),
        )
        for n in range(4)
    )
    return GraphIndex("d", nodes, tensors, (0,), (5,))


def exported(**more: object) -> Exported:
    return Exported("m.py:build", "golden:files=g.npz", **more)  # type: ignore[arg-type]


def test_the_part_ends_at_recorded_values() -> None:
    index = chain()
    assert cut_around(index, (2, 4), 4) == (1, 2)
    assert cut_around(index, (2, 3, 4), 4) == (2,)
    assert cut_around(index, (4,), 4) == (0, 1, 2)


@pytest.mark.parametrize(
    ("known", "tensor", "behind"),
    [((2, 3, 4, 5), 2, (3,)), ((2, 5), 2, (5,)), ((2,), 2, ()), ((2, 4, 5), 2, (4,))],
)
def test_what_is_next_behind_a_tensor(
    known: tuple[int, ...], tensor: int, behind: tuple[int, ...]
) -> None:
    assert list_behind(chain(), known, tensor) == behind


def test_the_innermost_module_that_holds_the_part_is_named() -> None:
    blamed = blame_module(chain(), Part(4, (1, 2)), exported())
    assert (blamed.module, blamed.module_class, blamed.source) == ("m.act", "M.Act", "m.py:2")


def test_of_several_modules_the_one_that_differs_is_named() -> None:
    told = exported(differences={"m.act": (Difference("gelu: approximate", "m.py:9"),)})
    blamed = blame_module(chain(), Part(4, (0, 1, 2)), told)
    assert (blamed.module, blamed.source, blamed.differs) == (
        "m.act",
        "m.py:9",
        "gelu: approximate",
    )
    assert blame_module(chain(), Part(4, (0, 1, 2)), exported()).module == "m"


def test_a_constant_that_is_another_one_names_its_module() -> None:
    told = exported(constants={"w": Difference("the constant w is off", module="rope")})
    blamed = blame_module(chain(), Part(4, (1, 2)), told)
    assert (blamed.module, blamed.differs) == ("rope", "the constant w is off")
    assert blamed.nodes == (2,), "the one that reads it"
    assert blame_module(chain(), Part(3, (1,)), told).module == "m.act"


def test_a_module_without_nodes_of_its_own_is_named_by_what_is_missing() -> None:
    told = exported(
        differences={"m.clip": (Difference("PyTorch runs clamp, the export nothing", "m.py:7"),)}
    )
    blamed = blame_module(chain(), Part(4, (0, 1, 2)), told)
    assert blamed.differs
    assert blamed.source == "m.py:7"


@pytest.mark.parametrize(
    ("paths", "shared"),
    [(["a.b.c", "a.b.d"], "a.b"), (["a", "b"], ""), (["a.b"], "a.b"), (["a.b", "a"], "a")],
)
def test_paths_share_their_beginning(paths: list[str], shared: str) -> None:
    assert common_path(paths) == shared
