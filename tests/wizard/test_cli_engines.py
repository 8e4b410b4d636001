"""``narrowdown engines`` as a newcomer reads it."""

from narrowdown.wizard.cli.engines import card, survey

HERE = {
    "name": "one", "present": True, "version": "1.2", "device": "a GPU",
    "capabilities": {
        "build": {"present": True, "reason": ""}, "run": {"present": False, "reason": "there is no GPU."},
        "mark": {"present": False, "reason": "there is no GPU."}, "tactics": {"present": False, "reason": "it has none."},
    },
    "notes": ["It is slow."],
    "options": [{"name": "precision", "choices": ["fp16"], "default": "fp16", "help": "What it computes in."}],
}  # fmt: skip
MISSING = {
    "name": "two",
    "present": False,
    "reason": "two is not installed; install it with: pip install two",
}


def test_a_reason_is_told_once_for_all_that_it_hinders() -> None:
    assert card(HERE).splitlines() == [
        "one 1.2 on a GPU",
        "  can      build",
        "  cannot   run, mark: there is no GPU.",
        "  cannot   tactics: it has none.",
        "  note     It is slow.",
        "  precision (fp16), default fp16: What it computes in.",
    ]


def test_what_is_missing_comes_last_with_what_brings_it_and_the_words_are_explained() -> None:
    text = survey([MISSING, HERE])
    first, missing, words = text.split("\n\n")
    assert first == card(HERE)
    assert missing.splitlines()[0] == "Not here"
    assert "pip install two" in missing
    assert [line.split()[0] for line in words.splitlines()[1:]] == [
        "build",
        "run",
        "mark",
        "tactics",
    ]
    assert all(len(line) <= 100 for line in text.splitlines())


def test_with_nothing_here_there_is_nothing_to_explain() -> None:
    assert survey([MISSING]).splitlines()[0] == "Not here"
    assert "What the words mean" not in survey([MISSING])
