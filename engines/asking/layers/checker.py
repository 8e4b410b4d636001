"""The user's own program in place of the comparison: it is handed the part, and its exit code and
what it prints decide."""

from narrowdown.engines.asking import Answer, Ask, Question, Sub, asked, unknown
from narrowdown.engines.asking.inquiry import Inquiry
from narrowdown.engines.asking.layers.engine import read
from narrowdown.engines.probe import Check

KEPT = (
    "model.onnx",
    "weights.bin",
    "inputs.json",
    "expected.json",
)  # of a case, beside what it says


def ask_checker(inquiry: Inquiry) -> Ask:
    def ask(question: Question) -> Sub[Answer]:
        if question.fed is not None or question.keep or (question.part and question.watch):
            return unknown("unsupported", "a checker is handed a part, and nothing else")
        if question.note is not None:
            yield question.note
        part = question.part or inquiry.cut(
            question.nodes or frozenset(), question.outputs, question.right
        )
        findings, ctx = inquiry.findings, inquiry.ctx
        check = Check(
            model=findings.model,
            command=ctx.check,
            candidate=part,
            inputs=findings.inputs,
            sample=findings.sample,
            reference=ctx.reference if findings.inputs else "",
            attempt=question.build or 0,
            artifacts=KEPT if question.save else (),
        )
        return read(inquiry, question, (yield from asked(check)))

    return ask
