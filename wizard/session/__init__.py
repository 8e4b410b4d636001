"""What a session is: its ``journal``, the ``state`` that this means, what comes next (``decide``),
and its ``folder``. Here: what can be wrong with one, as sentences; ``code`` is the exit code that a
command ends with (docs: exit codes)."""

import errno

from narrowdown.engines import faults
from narrowdown.engines.store import regular
from narrowdown.wizard import Exit, Refusal
from narrowdown.wizard.words import visible


def of_system(error: OSError, place: object = "") -> str:
    """The sentence for a request that the system refused. ``place``: what to name where the error
    names nothing."""
    name = faults.name_path(error, place)
    if isinstance(error, regular.Unfit):
        return f"'{name}' cannot be read: {error.strerror}."
    if error.errno in faults.OURS:
        return faults.say_fault(error, place)
    match error.errno:
        case errno.EACCES | errno.EPERM:
            return f"There is no permission for '{name}'. Change its owner or mode, or name another place."
        case errno.ENOTDIR | errno.EEXIST:
            return f"'{name}' cannot be used: a part of the path is a file and no folder. Name another place."
        case errno.EISDIR:
            return f"'{name}' is a folder. Name a file."
        case errno.ENOENT:
            return f"There is no '{name}'. Check the path."
    return faults.say_fault(error, place)


MENDING = "Nothing was changed; 'narrowdown resume SESSION --repair' goes on with a copy that keeps everything that can be kept."


AGREEING = "Nothing was measured with it; 'narrowdown resume SESSION' asks whether it may run as it is now."


class SessionProblem(Refusal):
    """Something about a session stops the command. The message says what happened, to what, and
    what to do next."""

    code: int = Exit.MISSING

    def __init__(self, message: str) -> None:
        super().__init__(self.code, message)


class Faulted(SessionProblem):
    """The machine refused something (``engines.faults``): nothing was learnt, and a resume asks
    again."""


class DamagedJournal(SessionProblem):
    """A journal line that was written whole is no longer what was written. ``line`` counts from
    1."""

    def __init__(self, path: object, line: int, why: str) -> None:
        # ``why`` may quote what stands there: of its lines none may be taken for one of ours.
        super().__init__(f"The journal {path} is damaged at line {line}: {visible(why)}. {MENDING}")
        self.line = line


class LostPart(SessionProblem):
    """An artifact that holds a part of an event is gone, or no longer what was written."""


class NewerSession(SessionProblem):
    """The session was written by a later format than this program reads."""

    def __init__(self, path: object, found: int, known: int) -> None:
        super().__init__(
            f"{path} was written by a newer narrowdown (format {found}; this one reads up to {known}). "
            "Install that version to go on with it."
        )


class NoSuchSession(SessionProblem):
    """The name fits no session."""

    code = Exit.BAD_USAGE


class AmbiguousSession(SessionProblem):
    """The prefix fits several sessions."""

    code = Exit.BAD_USAGE


class OtherProblem(SessionProblem):
    """The folder holds a session of another model, flow or PROBLEM."""

    code = Exit.BAD_USAGE


OPEN_ELSEWHERE = "The session is open in another window; watch it, or stop it there first."


class Held(SessionProblem):
    """Another runner works on the session."""
