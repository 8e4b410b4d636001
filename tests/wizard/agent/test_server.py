"""The server for coding agents, asked by the official client over stdio, as an agent asks it."""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters, stdio_client

from narrowdown.wizard import trust
from narrowdown.wizard.demo import DEMOS, MODELS
from narrowdown.wizard.session import folder as folders
from tests.patience import allow

SHAPES = {
    "model": str(MODELS / "shapes_cnn.onnx"),
    "engine": DEMOS["shapes"].engine,
    "inputs": [str(MODELS / "shapes_cnn_in.npz")],
}
Call = Callable[..., Awaitable[Any]]


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NARROWDOWN_HOME", str(tmp_path / "sessions"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def ask(script: Callable[[Call], Awaitable[None]], folder: Path) -> None:
    """Run a script against ``narrowdown mcp``: its ``call`` gives what a tool answers, and raises
    ValueError for what it refuses."""

    async def converse() -> None:
        server = StdioServerParameters(
            command=sys.executable,
            args=["-P", "-m", "narrowdown", "mcp"],
            env=dict(os.environ),
            cwd=folder,
        )
        async with Client(stdio_client(server)) as client:

            async def call(tool: str, **arguments: Any) -> Any:
                done = await client.call_tool(tool, arguments)
                text = done.content[0].text
                if done.is_error:
                    raise ValueError(text)
                return done.structured_content if tool != "report" else text

            assert {tool.name for tool in (await client.list_tools()).tools} == TOOLS
            await script(call)

    asyncio.run(asyncio.wait_for(converse(), allow(120)))


TOOLS = {"open", "run", "status", "answer", "report"}


def test_an_agent_walks_the_first_demo(tmp_path: Path) -> None:
    async def script(call: Call) -> None:
        stands = await call("open", **SHAPES)
        while stands["state"] == "working":
            stands = await call("status", session=stands["session"])
        first = stands["question"]
        assert (stands["state"], first["node"]) == ("asks", "reproduce")
        assert [a["id"] for a in first["answers"] if a["recommended"]] == ["yes"]
        name = stands["session"]
        with pytest.raises(ValueError, match="not one of the answers"):
            await call("answer", session=name, answer="perhaps")
        stands = await call("answer", session=name, answer="yes")
        assert stands["question"] is None or stands["question"]["node"] != "reproduce"
        stands = await call("run", session=name)
        while stands["state"] == "working":
            stands = await call("status", session=name)
        assert (stands["state"], stands["verdict"], stands["exit_code"]) == (
            "ended",
            "worked-around",
            0,
        )
        assert all(Path(file).exists() for file in stands["files"].values())
        assert {"report", "case", "check"} <= set(stands["files"])
        told = json.loads(await call("report", session=name, form="json"))
        assert told["verdict"] == stands["verdict"]
        assert stands["headline"] in (await call("report", session=name)).replace("\\", "")
        by = [stop["by"] for stop in told["route"]]
        assert by[0] == "person"
        assert set(by[1:]) <= {"person", "recommended"}
        with pytest.raises(ValueError, match=r"stopped|ended"):
            await call("answer", session=name, answer="yes")

    ask(script, tmp_path)


def test_no_consent_is_given_or_remembered(tmp_path: Path) -> None:
    checker = tmp_path / "check.sh"
    checker.write_text("#!/bin/sh\necho ran > ran\nexit 1\n")
    checker.chmod(0o755)

    async def script(call: Call) -> None:
        with pytest.raises(ValueError, match="narrowdown run"):
            await call("open", model=SHAPES["model"], options={"check": str(checker)})

    ask(script, tmp_path)
    assert not trust.trusted()
    assert not list(folders.home().glob("*")), "no session was made"
    assert not list(tmp_path.rglob("ran"))
