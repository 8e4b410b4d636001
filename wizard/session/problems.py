"""What can be wrong with a session, as sentences. ``code`` is the exit code that a command ends with (docs: exit
codes)."""


class SessionProblem(Exception):
    """Something about a session stops the command. The message says what happened, to what, and what to do next."""

    code = 4


class DamagedJournal(SessionProblem):
    """A journal line that was written whole is no longer what was written. ``line`` counts from 1."""

    def __init__(self, path: object, line: int, why: str) -> None:
        super().__init__(
            f"The journal {path} is damaged at line {line}: {why}. Nothing was changed; "
            "'narrowdown resume SESSION --repair' goes on with a copy that keeps everything that can be kept."
        )
        self.line = line


class NewerSession(SessionProblem):
    """The session was written by a later format than this program reads."""

    def __init__(self, path: object, found: int, known: int) -> None:
        super().__init__(
            f"{path} was written by a newer narrowdown (format {found}; this one reads up to {known}). "
            "Install that version to go on with it."
        )


class NoSuchSession(SessionProblem):
    """The name fits no session."""

    code = 2


class AmbiguousSession(SessionProblem):
    """The prefix fits several sessions."""

    code = 2


class OtherProblem(SessionProblem):
    """The folder holds a session of another model, flow or PROBLEM."""

    code = 2


class Held(SessionProblem):
    """Another runner works on the session. ``holder`` says which."""

    def __init__(self, message: str, holder: object = None) -> None:
        super().__init__(message)
        self.holder = holder
