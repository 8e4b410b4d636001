"""Coroutine tests run with asyncio alone; the fixtures are those of ``scripted``."""

import asyncio
import inspect

import pytest

from .scripted import make_app, session

__all__ = ["make_app", "session"]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run ``async def`` tests of this folder."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted}))
    return True
