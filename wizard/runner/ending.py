"""How a walk ends before its flow does."""

SINGLE = "step-"  # the id of a flow that is one step begins so


class Closing(Exception):
    """The session is to be closed with this exit code. ``reason`` is a sentence; ``end``: the
    flow's end, "" where it came to none."""

    def __init__(self, code: int, reason: str = "", end: str = "") -> None:
        super().__init__(reason)
        self.code, self.reason, self.end = code, reason, end
