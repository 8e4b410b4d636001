"""Cards that ask for a few values."""

from collections.abc import Mapping, Sequence

import msgspec
from textual.app import ComposeResult
from textual.widgets import Input

from narrowdown.wizard.tui.screens.overlays.card import Card
from narrowdown.wizard.tui.widgets.lines import Text
from narrowdown.wizard.tui.widgets.typed_line import TypedLine


class Field(msgspec.Struct, frozen=True):
    """One value to ask for."""

    name: str
    prompt: str
    value: str = ""
    required: bool = False


class Fields(Card[Mapping[str, str]]):
    """Ask for a few values by name. Enter in the last one is done; the result holds every name,
    empty where nothing was typed."""

    ABOUT = (
        "Type over what stands in the field, or change it. Press [Tab] for the next field, [Enter] in the last one when done, "
        "{close} to close the card and change nothing."
    )
    HELPED = ", {form_help} explains"  # letters go into the field

    def __init__(self, title: str, text: str, fields: Sequence[Field]) -> None:
        super().__init__(title, hint="[Tab] next, [Enter] done, {close} closes")
        self._text, self._fields = text, fields

    def body(self) -> ComposeResult:
        if self._text:
            yield Text(self._text, classes="paragraph")
        for index, field in enumerate(self._fields):
            yield Text(field.prompt, classes="field-label")
            yield TypedLine(field.value, id=f"field-{index}", compact=True)
            yield Text("", classes="problem", id=f"problem-{index}")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter goes on to the next field, and is done in the last."""
        inputs = list(self.query(Input))
        index = inputs.index(event.input)
        if index + 1 < len(inputs):
            inputs[index + 1].focus()
            return
        for position, field in enumerate(self._fields):
            if field.required and not inputs[position].value.strip():
                self.query_one(f"#problem-{position}", Text).show("This is needed.")
                inputs[position].focus()
                return
        self.dismiss({field.name: inputs[i].value.strip() for i, field in enumerate(self._fields)})


class NoteCard(Fields):
    """Asks for a note. It outlives the screen below: nobody's typing goes elsewhere because a
    session has ended."""

    def __init__(self, text: str) -> None:
        super().__init__("Note", text, [Field("note", "Your note")])
