"""The desk as tools of the Model Context Protocol, over stdin and stdout."""

import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import msgspec
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from narrowdown.wizard import Refusal
from narrowdown.wizard.agent.desk import Desk
from narrowdown.wizard.session import folder as folders, of_system

INSTRUCTIONS = (
    "Finds why an inference engine gives wrong answers for an ONNX model. open a session, then run it, or answer its questions "
    "one by one; status until it has ended; report. A session that a person began is named by its id. What needs a person's "
    "consent is refused with the command that the person types: show it, and do not type it."
)
OUR_FAULT = "Narrowdown itself failed, which is our fault; the sessions are safe. The server's log says where the trace is."
WAIT = 30.0  # seconds that a call waits where the client does not say


def serve(desk: Desk) -> None:
    """Answer a client on stdin and stdout until it leaves."""
    # A thread of the SDK waits for stdin, which Ctrl-C would wait for, too. A runner whose
    # client is gone ends, and what it has measured is kept.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        make_server(desk).run("stdio")
    finally:
        desk.close()


def make_server(desk: Desk) -> "MCPServer[Any]":
    """The server with its five tools."""
    server: MCPServer[Any] = MCPServer(
        "narrowdown",
        instructions=INSTRUCTIONS,
        version=folders.versions().get("narrowdown", ""),
        log_level="ERROR",
    )

    def open_(
        model: str,
        engine: str = "",
        inputs: list[str] | None = None,
        options: dict[str, Any] | None = None,
        wait: float = WAIT,
    ) -> dict[str, Any]:
        """Begin a session on an ONNX file that an inference engine gets wrong. Its questions wait
        for answer; run takes the recommended answers. engine: the one under test, such as
        tensorrt:precision=fp16 or onnxruntime:optimization=all. inputs: files of real samples
        (.npz, .npy, .json, folders). options: others of 'narrowdown run', by name without dashes,
        such as {"reference": "golden:out.npz", "input_shapes": {"x": [1, 3, 224, 224]},
        "tolerance": 0.01}. wait: seconds at most until the first question."""
        given = {"engine": engine, "inputs": inputs, **(options or {})}
        return _answer(partial(desk.open, model, given, wait))

    def run(session: str, wait: float = WAIT) -> dict[str, Any]:
        """Let a session go on by itself with the recommended answers. Call status until its state
        is ended."""
        return _answer(partial(desk.run, session, wait))

    def status(session: str, wait: float = WAIT) -> dict[str, Any]:
        """How a session stands: working, asks (a question is open), ended or stopped. Waits at
        most so many seconds for a question or the end."""
        return _answer(partial(desk.status, session, wait))

    def answer(
        session: str, answer: str, settings: dict[str, str] | None = None, wait: float = WAIT
    ) -> dict[str, Any]:
        """Answer the open question with the id of one of its answers. settings: values that the
        answer takes."""
        return _answer(partial(desk.answer, session, answer, settings or {}, wait))

    def report(session: str, form: Literal["md", "json"] = "md") -> str:
        """The report of a session: Markdown, or JSON with every field."""
        return str(_refused(partial(desk.report, session, form)))

    server.tool("open")(open_)
    for tool in (run, status, answer, report):
        server.tool()(tool)
    return server


def _answer(call: Callable[[], object]) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(_refused(call))
    return told


def _refused(call: Callable[[], object]) -> object:
    """A sentence for whoever called in place of what was raised."""
    try:
        return call()
    except Refusal as refusal:
        raise ToolError(str(refusal)) from None
    except OSError as error:
        raise ToolError(of_system(error)) from None
    except Exception as bug:
        sys.excepthook(type(bug), bug, bug.__traceback__)  # says where the trace is
        raise ToolError(OUR_FAULT) from None
