"""How many things a step may try."""

from narrowdown.engines.asking import Note


class Spent(Exception):
    """The budget is gone."""


class Tries:
    """What was tried, and whether one more may be. ``most`` 0: as many as there are."""

    def __init__(self, most: int = 0) -> None:
        self.most, self.done = most, 0

    @property
    def over(self) -> bool:
        return 0 < self.most <= self.done

    def note(self, text: str) -> Note:
        """Progress; what is tried from here on may be left out."""
        return Note(text, best=0, tried=self.done)
