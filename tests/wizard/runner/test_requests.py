"""Requests: each travels and comes back as it was, is answered, and a watcher may ask what changes
nothing."""

import asyncio
from pathlib import Path
from typing import get_args

import pytest

from narrowdown.wizard.runner import requests
from narrowdown.wizard.runner.requests import Options
from narrowdown.wizard.runner.server import Client

from .house import Oracle, runner

ONE_OF_EACH: tuple[requests.Request, ...] = (
    requests.Answer("yes", "first", 1, note="I think so", settings={"search": "how"}),
    requests.Go(),
    requests.Skip(),
    requests.Stop(hard=True),
    requests.Settle(),
    requests.Pause(),
    requests.GoOn(),
    requests.Detach(),
    requests.SetPolicy("recommended", offers=False),
    requests.Rewind("back"),
    requests.AddNote("mine", "first"),
    requests.Status(),
)


def test_there_is_one_of_each() -> None:
    assert [type(request) for request in ONE_OF_EACH] == list(get_args(requests.AnyRequest))


@pytest.mark.parametrize("request_", ONE_OF_EACH, ids=lambda r: type(r).__name__)
def test_a_request_travels_and_is_answered(tmp_path: Path, request_: requests.Request) -> None:
    told = requests.encode(request_)
    assert requests.decode(told) == request_
    watcher = Client(1)

    async def ask() -> tuple[dict, dict]:
        made = runner(tmp_path, Oracle(), Options(detach=True))
        return await made.control.handle(told, None), await made.control.handle(told, watcher)

    mine, watched = asyncio.run(ask())
    assert mine["ok"] or mine["error"].endswith(".")
    assert watched["ok"] == isinstance(request_, requests.FOR_ALL), watched


@pytest.mark.parametrize("told", [{}, {"do": 1}, {"do": "fly"}, {"do": "__init__"}, {"do": ["go"]}])
def test_what_is_no_request_is_said_to_be_none(told: dict) -> None:
    with pytest.raises(ValueError, match="knows no request"):
        requests.decode(told)


@pytest.mark.parametrize(
    "told",
    [
        {"do": "answer"},
        {"do": "answer", "answer": 1},
        {"do": "rewind", "to": [1]},
        {"do": "stop", "hard": 3},
    ],
)
def test_what_is_left_out_or_of_another_type_is_named(told: dict) -> None:
    with pytest.raises(ValueError, match=r"is not complete: .*(answer|to|hard)"):
        requests.decode(told)
