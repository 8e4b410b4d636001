"""The state of a step in the same words on every display: before, running, finished, failed,
skipped, cancelled, resumed."""

from narrowdown.wizard.session.state import Visit

SKIPPED = "Skipped"  # how the runner's sentence for a skipped step begins
UNMEASURED = (
    "skipped",
    "cannot run here",
    "failed",
)  # the step ended and measured nothing of its own


def stage(visit: Visit | None) -> str:
    """In a word or two. A step that goes on after it was cancelled or broken off is ``running
    again``."""
    match visit.status if visit else "":
        case "running":
            return "running again" if visit and visit.resumed else "running"
        case "cancelled":
            return "cancelled, runs again"
        case "refused" | "failed" | "done" as status:
            return ended(status, visit.error if visit else "")
    return "finished" if visit and visit.question else "not begun"


def ended(status: str, error: str = "") -> str:
    """How a step ended. ``status`` and ``error``: as in the journal's ``step.finished``."""
    if status == "refused":
        return "skipped" if error.startswith(SKIPPED) else "cannot run here"
    return "failed" if status == "failed" else "finished"
