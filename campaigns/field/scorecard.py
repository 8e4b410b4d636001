"""The score of a case (right, partly, wrong, cannot tell) from the truth, what the product said and
its checks; the page."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

GRADES = ("right", "partly", "wrong", "cannot tell")
BEGIN, END = "<!-- generated: field -->", "<!-- end -->"
HELD = 0.95  # of the samples that a workaround has not seen; the product's own aim
MOST, SOME = (
    0.5,
    6,
)  # of the model's nodes: a case of more than this share, and of more nodes, accuses nobody
MAIN = 0.6  # of the error: a node that makes more makes most of it; the product's own bound
SAID = 0.1  # how far what was promised of unseen samples may be above what came
FOUND = ("minimal-case", "worked-around", "build-failure")
Facts = Mapping[str, Any]


def score(truth: Facts, said: Facts, checks: Facts) -> tuple[str, str]:
    """(grade, why). ``truth``: ``Case.whole``. ``said``: exit, verdict, stopped, culprits,
    workaround, message. ``checks``: what ``Case`` found of each culprit and of the workaround."""
    state = truth["state"]
    if said.get("traceback") or said.get("exit") == 70:
        return "wrong", "the program itself failed"
    if said.get("stopped"):
        return _stopped(said, checks)
    verdict = said.get("verdict", "")
    if state == "unknown":
        return "cannot tell", f"the truth is not known: {truth.get('why', '')}"
    if verdict == "build-failure" or said.get("end") == "build-failure":
        return (
            ("right", "the engine refuses it")
            if state == "refused"
            else ("wrong", "the engine takes this model")
        )
    if said.get("end") == "refused-whole":
        return _refused_whole(state, checks.get("alike") or {})
    if state == "refused" and any(
        c.get("cause") == "build-failure" for c in said.get("culprits") or ()
    ):
        return _refused(checks)
    if state == "refused":
        silent = not verdict or verdict == "unresolved" or said.get("exit") in (2, 4, 6)
        return (
            ("partly", "not opened or not resolved, but not said as a refusal's end")
            if silent
            else ("wrong", "the engine refuses it")
        )
    if (
        state == "dies"
    ):  # there is no answer that could be wrong: naming the part, or saying so, is right
        return (
            ("wrong", f"the engine dies, and {verdict} was said")
            if verdict == "not-reproduced"
            else ("right", "the engine dies")
        )
    if not verdict or said.get("exit") in (2, 4):
        return "cannot tell", f"not opened: {said.get('message', '')}"
    if verdict == "unresolved":
        return "cannot tell", "said so"
    return _judged(state, verdict, truth, said, checks)


def _judged(state: str, verdict: str, truth: Facts, said: Facts, checks: Facts) -> tuple[str, str]:
    found = verdict in FOUND
    if state == "passes" and verdict in ("input-sensitive", "not-determined"):
        return _made_up(verdict, checks, str(said.get("explanation") or ""))
    if state == "passes":
        return (
            ("right", "it does not fail")
            if verdict == "not-reproduced"
            else ("wrong", f"it does not fail, and {verdict} was said")
        )
    if state == "borderline":
        if found:
            return _found(said, checks, truth.get("precision") == "int8")
        if verdict in ("not-reproduced", "not-determined"):
            return "right", "near the tolerance or the noise: either is right"
        return "cannot tell", f"near the tolerance: {verdict}"
    if state == "undetermined":
        if verdict == "not-determined":
            return "right", "the outputs are not determined to this tolerance"
        return ("wrong", f"rounding of the inputs moves it as much, and {verdict} was said")
    if found:
        return _found(said, checks, truth.get("precision") == "int8")
    if verdict == "reference-suspect":
        near = [d for voices in truth.get("others", []) for d in voices.values()]
        if near and min(near) > truth["tolerance"]:
            return "right", "no other voice agrees with the reference"
        return "wrong", "the reference is right, and it was accused"
    if verdict == "fixed-by-sanitizing":
        held = checks.get("sanitized")
        if held and held.get("ok") == held.get("n"):
            return "right", "the cleaned model passes"
        return "wrong", "the cleaned model does not pass"
    return "wrong", f"it fails, and {verdict} was said"


def _made_up(verdict: str, checks: Facts, explanation: str) -> tuple[str, str]:
    """Every given sample passes, and the product speaks of data that it made up itself."""
    made = checks.get("made_up") or {}
    if made.get("state") not in ("fails", "undetermined", "borderline"):
        return "wrong", f"it does not fail, on made-up data neither, and {verdict} was said"
    if verdict == "input-sensitive" or "that you gave pass" in explanation:
        return "right", "every given sample passes, as it said; made-up data fail"
    return (
        "partly",
        "not determined on data that it made up; that every given sample passes is not said",
    )


def _refused_whole(state: str, alike: Facts) -> tuple[str, str]:
    if state != "refused":
        return "wrong", "the engine takes this model"
    if not alike.get("others"):
        return (
            "partly",
            f"the engine refuses it; whether every part could not be checked: {alike.get('why', '')}",
        )
    if alike["others_refused"] < alike["others"]:
        return (
            "wrong",
            f"the engine takes {alike['others'] - alike['others_refused']} of {alike['others']} nodes by themselves",
        )
    return (
        "right",
        f"the engine refuses it, and each of {alike['others']} nodes by themselves, as it said",
    )


def _refused(checks: Facts) -> tuple[str, str]:
    culprits = checks.get("culprits", [])
    if any(c["true"] is False for c in culprits):
        return "wrong", "the engine refuses the model, and takes the named node"
    if not culprits or any(c["true"] is None for c in culprits):
        return "partly", "the engine refuses it; the named node could not be checked"
    if all(c["others"] and c["others_refused"] == c["others"] for c in culprits):
        return "partly", "the engine refuses it, every other node as well as the named one"
    wide = next((c for c in culprits if c.get("share", 0) > MOST and len(c["nodes"]) > SOME), None)
    if wide:
        return (
            "partly",
            f"the engine refuses it; {len(wide['nodes'])} nodes are named, most of the model",
        )
    return "right", "the engine refuses it, and the named node by itself"


def _found(said: Facts, checks: Facts, quantized: bool) -> tuple[str, str]:
    culprits = checks.get("culprits", [])
    false = [c for c in culprits if c["true"] is False]
    if false:
        return "wrong", f"{', '.join(false[0]['nodes'][:3])} is no culprit"
    spread = checks.get("spread")
    if not culprits and spread and spread["true"] is False:
        one = f"one by itself is wrong by {spread['worst']:.2g} of {spread['whole']:.2g}"
        if spread["worst"] > MAIN * spread["whole"]:
            return "wrong", f"it said that no single node makes most of it; {one}"
        return "partly", f"no node is named, and none makes most of it; {one}"
    if not culprits and spread and spread["true"]:
        return _workaround(said, checks, f"no node of {spread['tried']} tried fails by itself")
    if not culprits and quantized and checks.get("workaround"):
        # Which layers to leave in float is all that is claimed, and that is tried with the
        # quantizer itself.
        return _workaround(said, checks, "no node is accused")
    if not culprits or any(c["true"] is None for c in culprits):
        why = next((c.get("why", "") for c in culprits if c["true"] is None), "none was named")
        return "partly", f"the culprit could not be checked: {why}"
    wide = next((c for c in culprits if c.get("share", 0) > MOST and len(c["nodes"]) > SOME), None)
    if wide:
        return "partly", f"{len(wide['nodes'])} nodes are accused, most of the model"
    return _workaround(said, checks)


def _workaround(said: Facts, checks: Facts, known: str = "the culprit is true") -> tuple[str, str]:
    given, held = said.get("workaround"), checks.get("workaround")
    if not given:
        return "partly", f"{known}; no workaround"
    if not held or held.get("ok") is None:
        return (
            "partly",
            f"{known}; the workaround could not be checked: {(held or {}).get('why', '')}",
        )
    share = held["ok"] / max(1, held["n"])
    told = given.get("unseen_ok") / given["unseen_n"] if given.get("unseen_n") else None
    came = f"right on {held['ok']} of {held['n']} that it had not seen (without it {held.get('plain_ok', '?')})"
    if held.get("of") and len(given.get("keep_higher") or ()) > 0.8 * held["of"]:
        return "partly", f"{known}; nearly all nodes are kept; {came}"
    if held.get("missing"):
        return "partly", f"{known}; {held['missing']} kept nodes are not the user's; {came}"
    if share >= HELD:
        return "right", came
    if told is not None and told <= share + SAID:
        return (
            "right",
            f"{came}, as it said beforehand ({given['unseen_ok']} of {given['unseen_n']})",
        )
    if given.get("holds") and told is not None:
        return "wrong", f"{came}; it promised {given['unseen_ok']} of {given['unseen_n']}"
    return "partly", f"{known}; {came}"


def _stopped(said: Facts, checks: Facts) -> tuple[str, str]:
    false = [c for c in checks.get("culprits", []) if c["true"] is False]
    if false:
        return (
            "wrong",
            f"{', '.join(false[0]['nodes'][:3])} is no culprit (stopped after {said['seconds']:.0f} s)",
        )
    if any(c["true"] for c in checks.get("culprits", [])):
        return "partly", f"a true culprit, not at its end after {said['seconds']:.0f} s"
    return "cannot tell", f"not at its end after {said['seconds']:.0f} s"


def counts(rows: Sequence[Facts]) -> Counter[str]:
    """Cases by grade."""
    return Counter(row["grade"] for row in rows)


def page(rows: Sequence[Facts], models: Mapping[str, str]) -> str:
    """The tables of campaigns/logs/field.md, in Markdown: by engine, by model, and every case that is
    not right. ``models``: name to what it is, in the order of the page."""
    tally = counts(rows)
    unseen = [
        r["checks"]["workaround"]
        for r in rows
        if (r["checks"].get("workaround") or {}).get("ok") is not None
    ]
    ok, n = sum(w["ok"] for w in unseen), sum(w["n"] for w in unseen)
    lines = [
        f"{len({r['model'] for r in rows})} models, {len(rows)} cases: "
        + ", ".join(f"{tally[g]} {g} ({100 * tally[g] / max(1, len(rows)):.0f} %)" for g in GRADES) + ".",
        f"{len(unseen)} workarounds were tried on samples that they had not seen: {ok} of {n} are right"
        + (f" ({100 * ok / n:.1f} %)." if n else ".") + f" {_say_short(rows)}",
        "",
        "| engine | cases | right | partly | wrong | cannot tell | median s | most s | most MiB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    engines = list(dict.fromkeys(r["engine"] for r in rows))
    for engine in engines:
        of = [r for r in rows if r["engine"] == engine]
        times, by = sorted(r["said"]["seconds"] for r in of), counts(of)
        most = max(r["said"].get("mib") or 0 for r in of)
        grades = " | ".join(str(by[g]) for g in GRADES)
        lines.append(
            f"| `{engine}` | {len(of)} | {grades} | {times[len(times) // 2]:.0f} | {times[-1]:.0f} | {most:.0f} |"
        )
    lines += ["", "A case: its score, its seconds, its probes, its MiB.", ""]
    lines += [
        "| model | what it is | " + " | ".join(f"`{e}`" for e in engines) + " |",
        "|---" * (len(engines) + 2) + "|",
    ]
    for model, what in models.items():
        of_model = {r["engine"]: r for r in rows if r["model"] == model}
        if of_model:
            cells = (_cell(of_model[e]) if e in of_model else "" for e in engines)
            lines.append(f"| {model} | {what} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "| not right | engine | truth | it said | score | why |",
        "|---|---|---|---|---|---|",
    ]
    for r in sorted(
        (r for r in rows if r["grade"] != "right"),
        key=lambda r: (-GRADES.index(r["grade"]) % 3, r["model"]),
    ):
        said = r["said"]
        verdict = (
            "stopped" if said.get("stopped") else said.get("verdict") or f"exit {said.get('exit')}"
        )
        why = r["why"].replace("|", "/").replace("\n", " ")[:140]
        lines.append(
            f"| {r['model']} | `{r['engine']}` | {r['truth']['state']} | {verdict} | {r['grade']} | {why} |"
        )
    return "\n".join(lines) + "\n"


def _say_short(rows: Sequence[Facts]) -> str:
    """How many workarounds miss more of the unseen samples than they may, and how many of them had
    not been promised to hold."""
    short = [
        r for r in rows
        if (w := r["checks"].get("workaround") or {}).get("ok") is not None and w["ok"] < HELD * w["n"]
    ]  # fmt: skip
    told = sum(not (r["said"].get("workaround") or {}).get("holds") for r in short)
    return f"{len(short)} miss more than {100 * (1 - HELD):.0f} %; of {told} of these it said beforehand that they do not hold."


def _cell(row: Facts) -> str:
    said = row["said"]
    grade = f"**{row['grade']}**" if row["grade"] == "wrong" else row["grade"]
    return f"{grade} {said['seconds']:.0f} s, {said.get('probes') or 0}, {said.get('mib') or 0:.0f}"


def put(page_path: Path, text: str) -> None:
    """Replace what stands between the page's marks."""
    before, _, rest = page_path.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    page_path.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}", encoding="utf-8")
