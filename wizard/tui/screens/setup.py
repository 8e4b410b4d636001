"""A new session: model, engine, reference, inputs, tolerance, flow, and behind a fold what else says
what is wrong. Each is checked when left; nothing runs before Start. The set-up of a session that is
there is changed in the same form. How sessions run (--jobs, --budget, --executor) is said on the
command line."""

import argparse
import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

import msgspec
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.widgets import Button, Input

from narrowdown.engines.exporting.launch import INPUT_KINDS as PROGRAM_KINDS
from narrowdown.engines.sources import INPUT_KINDS
from narrowdown.wizard import Refusal
from narrowdown.wizard.from_pytorch import open_model
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.schedulers import LOCAL
from narrowdown.wizard.tui import checks, choices, keys
from narrowdown.wizard.tui.host import Hosted
from narrowdown.wizard.tui.screens.overlays import Entry, Pick, PickFile, Reading
from narrowdown.wizard.tui.widgets.bottom import Bottom
from narrowdown.wizard.tui.widgets.lines import Text
from narrowdown.wizard.tui.widgets.typed_line import TypedLine


class Row(msgspec.Struct, frozen=True):
    """One field of the form. ``entries``: what can be picked for it; ``kinds``: how the files end
    that can."""

    name: str
    label: str
    hint: str
    placeholder: str = ""
    entries: Callable[[], Sequence[Entry]] | None = None
    kinds: tuple[str, ...] = ()


_DEFAULT = Problem(model="")
ROWS = (
    Row(
        "model",
        "Model",
        "An ONNX file, or a PyTorch program (model.py:build), which runs once.",
        "path/to/model.onnx",
        kinds=(".onnx",),
    ),
    Row(
        "engine",
        "Engine under test",
        "The engine that gives wrong numbers. Options follow a colon.",
        _DEFAULT.engine,
        choices.engines,
    ),
    Row(
        "reference",
        "Reference",
        "What is taken as right. The default runs in FP32, unoptimized.",
        _DEFAULT.reference,
        partial(choices.engines, reference=True),
    ),
    Row(
        "inputs",
        "Inputs",
        "Real ones if you can: .npz, .npy, .json, .pt, image, .py; commas between.",
        "random",
        kinds=(*INPUT_KINDS, *PROGRAM_KINDS),
    ),
    Row(
        "tolerance",
        "Tolerance",
        "A number, or output:number. Empty: what the engine's precision allows.",
        "by precision",
        choices.tolerances,
    ),
    Row(
        "flow",
        "Flow",
        "What to find out: why numbers are wrong, unless you choose another.",
        _DEFAULT.flow,
        choices.flows,
        (".yaml", ".yml"),
    ),
)
ADVANCED = (
    Row("input_shapes", "Input shapes", "For open dimensions: name:[1,3,224,224]; blanks between several.", "as guessed"),
    Row("served", "Served sizes", "Smallest and largest of open inputs, for the engine: x:1x3x64x64..8x3x64x64", "as fed"),
    Row("val_range", "Value ranges", "Of made-up inputs: name:[low,high], or [low,high] for all.", "as guessed"),
    Row("carry", "Carry", "Outputs that go back into inputs at the next step: present.*:past.*", "nothing"),
    Row("carry_token", "Carry tokens", "What the scores choose goes back: logits:input_ids=argmax", "nothing"),
    Row("steps", "Steps", "Of such a loop, a whole number.", "as the inputs have, else 64"),
    Row("seed", "Seed", "Of made-up inputs, a whole number.", str(_DEFAULT.seed)),
    Row("metric", "Metric", "What an output is measured by, such as max_abs or cosine.", "rel_l2", choices.metrics),
    Row("atol", "Absolute tolerance", "For each element, with the metric elementwise; a number, or output:number.", "none"),
    Row("rtol", "Relative tolerance", "For each element, beside the absolute one.", "none"),
    Row("postprocess", "Postprocess", "Done to outputs before they are compared: SCRIPT.py, or top-5.", "nothing"),
    Row("score", "Score", "How good outputs are, for you: SCRIPT.py, or a file of labels.", "none"),
    Row("check", "Checker", "A command of yours that says pass or fail, in place of the comparison.", "none"),
    Row("torch_python", "Python with torch", "Exports a PyTorch program.", "this one, or the first on the PATH"),
    Row("timeout", "Longest run", "Seconds that one build with its runs may take.", "from what was measured"),
)  # fmt: skip
FIELDS = {row.name: row for row in (*ROWS, *ADVANCED)}
NOTHING_RUNS = (
    "Nothing runs before Start. Press [Enter] for the next field, {pick} to list what fits."
)
EDITING = "Start begins a new session, which takes over what still holds."
SUGGESTED = "Names and shapes of this model suggest it."
MORE = "More options"


def start(typed: str) -> Path:
    """The folder where a picker begins: that of the file that was typed, else the one where the
    program was started."""
    folder = Path(typed).expanduser().parent if typed.strip() else Path()
    return folder.absolute() if folder.is_dir() else Path().absolute()


class SetupScreen(Hosted):
    """The form. Problems stand beside their field."""

    BINDINGS: ClassVar[list[BindingType]] = [
        # Before the field sees them: what is typed or pasted right behind them must land in the
        # next field.
        Binding("enter", "next", "next field", show=False, priority=True),
        Binding("tab,down", "app.focus_next", "next field", show=False, priority=True),
        Binding("shift+tab,up", "app.focus_previous", "field before", show=False, priority=True),
        *keys.bindings("pick", "start", "form_help", "leave_form", "interrupt"),
    ]

    def __init__(
        self,
        problem: Problem | None = None,
        source: Path | None = None,
        suggested: Sequence[tuple[str, str]] = (),
    ) -> None:
        """``source``: the session whose set-up is changed; ``suggested``: (field, value) that
        its model suggests."""
        super().__init__()
        self._base, self._source = problem, source
        self._suggested = {
            name: " ".join(value for of, value in suggested if of == name) for name, _ in suggested
        }

    def compose(self) -> ComposeResult:
        source = self._source
        yield Text(
            f"Session {source.name} with another set-up" if source else "New session", id="title"
        )
        with VerticalScroll(id="form", can_focus=False):
            yield Text(
                self.host.fill_in_keys(EDITING if source else NOTHING_RUNS),
                classes="quiet",
            )
            for field in ROWS:
                yield from self._field(field)
            yield Button("Start", id="start", variant="primary", compact=True)
            yield Text("", id="problem-start", classes="problem")
            yield Button(MORE, id="more", compact=True)
            with Vertical(id="advanced"):
                for field in ADVANCED:
                    yield from self._field(field)
        yield Bottom()

    def _field(self, field: Row) -> ComposeResult:
        yield Text(field.label, classes="field-label")
        yield Text(field.hint, classes="quiet field-hint")
        fits = self._suggested.get(field.name, "")
        takes = f", or {fits} {self.host.fill_in_keys('by {pick}')}" if fits else ""
        yield TypedLine(
            self._given(field.name),
            placeholder=field.placeholder + takes,
            id=field.name,
            compact=True,
            select_on_focus=False,
        )
        yield Text("", keep=True, id=f"problem-{field.name}", classes="problem")

    def _given(self, name: str) -> str:
        """What stands in a field before anybody types."""
        return checks.show_field(self._base, name) if self._base else ""

    def on_mount(self) -> None:
        """Start at the model; where one was given, check everything and offer Start."""
        self.run_worker(
            choices.flows, thread=True, group="flows", exit_on_error=False
        )  # so that F2 answers at once
        given = any(self._given(f.name) or f.name in self._suggested for f in ADVANCED)
        self.query_one("#advanced").display = given
        self.query_one("#more").display = not given
        if self._base is None or not self._base.model:
            self.query_one("#model", Input).focus()
            return
        self.query_one("#start", Button).focus()
        for name in FIELDS:
            self._check(name)

    @on(Input.Blurred)
    def _left(self, event: Input.Blurred) -> None:
        if event.input.id and (event.input.value or event.input.id != "model"):
            self._check(event.input.id)

    @work(group="check", exit_on_error=False)
    async def _check(self, name: str) -> None:
        """Check one field off the loop: a path may lie on a slow disk."""
        text = self.query_one(f"#{name}", Input).value
        said = await asyncio.to_thread(self._problem_with, name, text)
        if self.query_one(f"#{name}", Input).value == text:
            self._say(name, said)

    def _problem_with(self, name: str, text: str) -> str:
        model, here = self.query_one("#model", Input).value, self.host.library.executor == LOCAL
        return checks.problem_with(name, text, here=here, model=model)

    def _say(self, name: str, problem: str) -> None:
        mark = f"{self.host.glyphs.fails} " if problem else ""
        said = self.query_one(f"#problem-{name}", Text)
        said.show(mark + problem, "$fails")
        if problem:
            self.call_after_refresh(self._bring_into_sight, said)

    def _bring_into_sight(self, said: Text) -> None:
        """A problem of several lines, and after it the field at hand, where there is no room for
        both."""
        said.scroll_visible(animate=False, immediate=True)
        if self.focused is not None:
            self.call_after_refresh(self.focused.scroll_visible, animate=False, immediate=True)

    @on(Button.Pressed, "#more")
    def _unfold(self) -> None:
        """Show what is rarely needed, and go there."""
        self.query_one("#advanced").display = True
        self.query_one("#more").display = False
        first = self.query_one(f"#{ADVANCED[0].name}", Input).focus()
        self.call_after_refresh(first.scroll_visible, animate=False)  # it has no place before

    @on(Button.Pressed, "#start")
    @work(exclusive=True, group="create", exit_on_error=False)
    async def _create(self) -> None:
        """Check all fields, then create the session and open it."""
        answers = {name: self.query_one(f"#{name}", Input).value for name in FIELDS}
        problems = {
            name: await asyncio.to_thread(self._problem_with, name, text)
            for name, text in answers.items()
        }
        for name, problem in problems.items():
            self._say(name, problem)
        wrong = next((name for name, problem in problems.items() if problem), "")
        if wrong:
            if FIELDS[wrong] in ADVANCED:
                self._unfold()
            self.query_one(f"#{wrong}", Input).focus()
            return
        self.query_one("#start", Button).disabled = True
        try:
            folder = await asyncio.to_thread(self._made, answers)
        except (Refusal, OSError, ValueError) as error:
            self._say("start", str(error))
        else:
            self.host.open_session(folder, replace=self)
        finally:
            self.query_one("#start", Button).disabled = False

    def _made(self, answers: Mapping[str, str]) -> Path:
        """The new session's folder; blocks. Raises Refusal, ``OSError``, ``ValueError``."""
        library = self.host.library
        if self._source:
            problem = checks.build(answers, self._base, library.executor)
            return library.edit(self._source, problem)
        typed = argparse.Namespace(
            model=checks.model(answers["model"]),
            inputs=[checks.as_path(part) for part in checks.split_listed(answers["inputs"])],
            flow=checks.flow(answers["flow"]),
            session=None,
            torch_python=answers["torch_python"].strip(),
            engine=answers["engine"].strip(),
            reference=answers["reference"].strip(),
        )
        with open_model(typed, partial(self.app.call_from_thread, self.host.say)) as named:
            answers = {**answers, **checks.show_exported(named)}
            made = getattr(named, "exported", None)
            problem = checks.build(answers, self._base, library.executor, made)
            return library.create(problem, named.session)

    def action_pick(self) -> None:
        """List what fits into the field at hand."""
        model = self.query_one("#model", Input)
        field = self.focused if isinstance(self.focused, Input) else model
        row = FIELDS[field.id or "model"]
        several = row.name == "inputs"  # what is picked is added

        def done(picked: str | None) -> None:
            if picked == choices.FILE:
                pick_file(field.value)
            elif picked is not None:
                before = checks.split_listed(field.value) if several else []
                field.value = ", ".join([*before, picked])
                field.cursor_position = len(field.value)
                field.focus()
                self._check(row.name)

        def pick_file(typed: str) -> None:
            title = row.label + (" ({pick} again adds another)" if several else "")
            picker = PickFile(self.host.fill_in_keys(title), start(typed), row.kinds)
            self.app.push_screen(picker, done)

        fits = self._suggested.get(row.name, "")
        if row.entries or fits:
            entries = row.entries() if row.entries else [Entry(fits, fits, "", SUGGESTED)]
            self.app.push_screen(Pick(row.label, entries), done)
        elif row.kinds:
            pick_file(model.value)
        else:
            self.host.say("This field has no list: its hint says what it takes.")

    def action_next(self) -> None:
        """To the next field; on Start it starts."""
        if isinstance(self.focused, Button):
            self.focused.press()
        else:
            self.focus_next()

    def action_start(self) -> None:
        self.query_one("#start", Button).press()

    def action_leave_form(self) -> None:
        """To where one came from; what was typed is gone."""
        if self._source:
            self.app.pop_screen()
        else:
            self.host.show_sessions()

    def action_form_help(self) -> None:
        fields = [(field.label, field.hint) for field in FIELDS.values()]
        self.app.push_screen(
            Reading("New session", [*fields, ("Keys that work now", self.host.key_table(self))])
        )
