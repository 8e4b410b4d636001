"""What cures beyond what is accused: is the search done?

A workaround may keep nodes that no culprit explains. With the culprits alone in FP32, each given
what the engine gives it in that very run, either all given samples are right, and the other nodes
serve a margin or samples that were made near; or some fail, and then another culprit is to be
looked for, in what is left."""

import msgspec

from narrowdown.engines.asking import Note, Sub
from narrowdown.engines.asking.inquiry import Inquiry
from narrowdown.engines.asking.oracle import make_oracle
from narrowdown.engines.compare.judge import by_sample, list_slight, worst
from narrowdown.engines.findings import Findings
from narrowdown.engines.graph import ranges
from narrowdown.engines.probe import HUGE, Measurement
from narrowdown.engines.search.cured import measure_cured
from narrowdown.engines.search.unseen import list_failing, restrict


class Left(msgspec.Struct, frozen=True):
    """``findings``: where the search goes on, with what is left of the failure locked. ``ok`` of
    ``n`` given samples are right with the culprits alone cured (-1: not measured), the worst off by
    ``error``. ``message``: sentences with a space in front."""

    findings: Findings
    goes_on: bool = False
    ok: int = -1
    n: int = 0
    error: float | None = None
    message: str = ""


def look_beyond(ask: Inquiry, most: int) -> Sub[Left]:
    """Cure what is accused, nothing else, and see what is left. The search goes on where samples
    fail then, fewer than ``most`` culprits are known, and a further one was found since it went on
    last: what nobody can be named for stays open."""
    findings = ask.findings
    accused = tuple(
        sorted({n for c in findings.culprits for n in ranges.decode(c.keep or c.case.node_ids)})
    )
    yield Note(f"with the {len(accused)} nodes that are accused in FP32, and nothing else")
    oracle = make_oracle(ask)
    m: Measurement = yield from oracle.feed(oracle.feeds, keep=frozenset(accused))
    if m.status != "ok":
        return Left(findings)
    # Nobody can call these right or wrong, so nothing else is looked for because of them.
    slight = list_slight((r for run in m.each_run for r in run), ask.criterion)
    counted = restrict(m, set(by_sample(m)) - slight)
    n, failing = len(by_sample(counted)), list_failing(counted, ask.criterion)
    error = worst([r for run in counted.each_run for r in run], ask.criterion)[2]
    left = Left(findings, False, n - len(failing), n, error if error < HUGE else None)
    if not failing:
        return left
    many = len(findings.culprits)
    alone = f" With what is accused in FP32 alone it is right on {left.ok} of {n}"
    if findings.sought == many or many >= most or findings.spread:
        why = (
            "what is left is spread over many layers"
            if findings.spread
            else f"{many} culprits are the most that one session looks for"
            if many >= most
            else "no other culprit was found in what is left"
        )
        return msgspec.structs.replace(left, message=f"{alone}; {why}.")
    clean = msgspec.structs.replace(
        findings, patches="", keep="", case=None, suspects=(), round_signature=None, sought=many
    )
    after, _, still = yield from measure_cured(ask.knowing(clean), clean, (), accused)
    if not still:
        return left
    return msgspec.structs.replace(
        left,
        findings=after,
        goes_on=True,
        message=f"{alone}: something else is wrong, and is looked for.",
    )
