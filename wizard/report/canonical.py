"""What a route decided, without times, processes, order of finishing or display: equal routes print
equally."""

import hashlib
from typing import Any

from narrowdown.engines.probe import HUGE
from narrowdown.wizard.flow.model import Flow
from narrowdown.wizard.report.gather import confirmed
from narrowdown.wizard.session.state import State, Visit
from narrowdown.wizard.words import LONGEST, elide, visible

# Facts of an outcome that depend on the clock, the job count or the way there and not on what was
# decided.
PASSING = frozenset(
    {
        "cost",
        "message",
        "explanation",
        "missed",
        "margin",
        "builds",
        "probes",
        "verifications",
        "runs",
    }
)


def canonical(state: State, flow: Flow) -> str:
    """Plain text, one fact a line; of a giant line (``LONGEST``) both ends and a digest, so that
    others do not read the same."""
    lines = [f"flow {flow.id}"]
    for visit in state.route:
        lines += _visit(visit)
    findings = state.findings
    for position, culprit in enumerate(confirmed(state, flow), 1):
        case = culprit.case
        there = f"; on {case.engine}" if case.engine else ""
        lines.append(
            f"culprit {position}: {culprit.cause}; nodes {case.node_ids}; sample {case.sample}; verified {case.verified}{there}"
        )
        lines += [f"  {_name(name)}" for name in case.nodes]
    w = findings.workaround
    if w is not None:
        lines.append(
            f"workaround: {w.kind}; engine {w.engine}; {w.samples_ok}/{w.samples_n} samples"
        )
        lines.append(f"  keep {w.keep or 'none'}; off {', '.join(w.switched_off) or 'none'}")
    end = flow.ends.get(state.end)
    lines.append(f"end: {state.end or 'not reached'}" + (f" ({end.verdict})" if end else ""))
    return "".join(f"{_line(line)}\n" for line in lines)


def _line(text: str) -> str:
    """What was answered is text of whoever wrote the journal: it stays one line, and escapes make
    it no giant."""
    if len(text) <= LONGEST and len(shown := visible(text, longest=len(text))) <= LONGEST:
        return shown
    return f"{visible(elide(text, 400))} {_digest(text)}"


def _visit(visit: Visit) -> list[str]:
    lines = [
        f"{visit.node} #{visit.visit}: step {visit.step or 'none'} {visit.status or 'not run'}"
    ]
    for key, value in sorted((visit.outcome or {}).items()):
        if key not in PASSING and not isinstance(value, list | dict):
            lines.append(f"  {key} = {_fact(value)}")
    if visit.answer:
        recommended = visit.question.recommended if visit.question else ""
        settings = "".join(f" {k}={v}" for k, v in sorted(visit.settings.items()))
        lines.append(f"  answer {visit.answer} (recommended {recommended or 'none'}){settings}")
    return lines


def _fact(value: Any) -> str:
    """Numbers to three digits: engines may differ in the last one."""
    if isinstance(value, float):
        return "not finite" if abs(value) >= HUGE else f"{value:.3g}"
    return _name(value) if isinstance(value, str) else ascii(value)


def _name(text: str) -> str:
    """As a literal; of a giant one both ends and a digest, so that others do not read the same."""
    if len(text) <= LONGEST:
        return ascii(text)
    return f"{elide(text, 400)!a} {_digest(text)}"


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
    return f"({len(text)} characters, sha256 {digest})"
