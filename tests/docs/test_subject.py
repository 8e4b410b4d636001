"""The hook that holds the subject of a commit to CONTRIBUTING.md."""

import subprocess
from pathlib import Path

import pytest

HOOK = Path(__file__).parents[2] / ".ci" / "subject"


@pytest.mark.parametrize(
    ("subject", "said"),
    [
        ("Count no order that rounding changes as a failure", ""),
        ("Merge branch 'main' into gate", ""),
        (f"Move {'campaigns ' * 7}", "longer than 72"),
        ("Move the campaigns.", "full stop"),
        ("move the campaigns", "capital"),
        ("Campaigns", "noun"),
        ("Moved the campaigns", "imperative"),
        ("Moving the campaigns", "imperative"),
    ],
)
def test_it_takes_a_short_imperative_with_a_noun(subject: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "message").write_text(f"# a remark\n\n{subject}\n\nThe reason.\n")
    done = subprocess.run(
        ["sh", HOOK, tmp_path / "message"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, said in done.stderr) == (int(bool(said)), True), done.stderr
