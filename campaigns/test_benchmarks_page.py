"""campaigns/benchmarks.md is what its generator makes of what was measured, and of nothing else."""

import importlib
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parent / "benchmarks"


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("results")


def test_the_page_is_made_of_what_was_measured(results: Any) -> None:
    assert results.PAGE.read_text() == results.page(
        results.TEMPLATE.read_text(), results.read(results.KEPT)
    ), "'python campaigns/benchmarks/results.py' makes the page anew"


def test_what_is_measured_again_takes_the_place_of_what_was(results: Any, tmp_path: Path) -> None:
    def row(name: str, cpu: float, size: float = 0.0) -> Any:
        return results.made("t", name, ("what", "cpu s"), (name, cpu), size, cpu)

    results.write(tmp_path / "kept", [row("a", 1.0), row("b", 2.0)])
    both = results.merged(results.read(tmp_path / "kept"), [row("b", 3.0), row("c", 4.0)])
    assert [r.cells for r in both] == [("a", "1.0"), ("b", "3.0"), ("c", "4.0")]
    page = results.page("x\n\n{{ t }}\n\ny", both)
    assert "| b | 3.0 |" in page
    with pytest.raises(KeyError):
        results.page("{{ nobody measured this }}", both)
    assert "## t\n" in results.page("without a place for it", both), (
        "nothing that was measured is lost"
    )
    grown = [row("1", 1.0, 10), row("2", 8.0, 20), row("3", 8.0, 40)]
    assert results.exponents(grown) == ["", "3.00", "0.00"]
