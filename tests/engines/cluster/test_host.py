"""What a host remembers of a session."""

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("distributed", reason="needs Dask distributed: pip install '.[cluster]'")

from narrowdown.engines.cluster import host as hosts
from narrowdown.engines.consent import NOTHING
from narrowdown.engines.probe import Inspect


def test_a_withdrawn_question_is_not_begun_and_not_remembered_for_ever(
    tmp_path: Path, monkeypatch
) -> None:
    host = hosts._Host(tmp_path, 1, 0, 0, NOTHING)

    async def body() -> list[int]:
        await host.withdraw("late")
        answer, deaths = await host.probe(hosts.Question("late", Inspect(engine="onnxruntime")))
        assert (answer.status, deaths) == ("cancelled", ())
        held = [len(host._withdrawn)]
        for n in range(50):  # every host is told of each; this one never gets the questions
            await host.withdraw(f"elsewhere-{n}")
        held.append(len(host._withdrawn))
        monkeypatch.setattr(hosts, "LEASE", 0.0)
        await host.withdraw("last")
        return [*held, len(host._withdrawn)]

    try:
        assert host.wait(body()) == [0, 50, 1]
    finally:
        asyncio.run(host.on_own_loop(host.end()))
