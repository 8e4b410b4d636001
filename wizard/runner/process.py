"""The runner's process: takes the session's lock, opens its journal, listens, and walks. Who starts
it has made a log of its standard output and error (``Client``)."""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from narrowdown.engines import faults, installed
from narrowdown.engines.probe import inspected_specs, key
from narrowdown.engines.steps.registry import STEPS
from narrowdown.engines.store import Store
from narrowdown.engines.workers.executor import Executor, ExecutorLost
from narrowdown.engines.workers.pool import Death
from narrowdown.wizard import Exit, Refusal
from narrowdown.wizard.flow.load import load as load_flow
from narrowdown.wizard.runner import progress
from narrowdown.wizard.runner.address import socket_path
from narrowdown.wizard.runner.drive import Guarded, Stopped
from narrowdown.wizard.runner.executors import AHEAD, Devices, executor
from narrowdown.wizard.runner.ledger import Ledger, Session
from narrowdown.wizard.runner.requests import Options
from narrowdown.wizard.runner.restore import examine, make_again
from narrowdown.wizard.runner.server import Server
from narrowdown.wizard.runner.walk import Walk
from narrowdown.wizard.schedulers import LOCAL
from narrowdown.wizard.session import Held, SessionProblem, of_system
from narrowdown.wizard.session.events import NoteAdded, WorkerDied
from narrowdown.wizard.session.folder import FLOW, describe
from narrowdown.wizard.session.journal import NAME, Journal
from narrowdown.wizard.session.lock import Lock

_log = logging.getLogger(__name__)


def serve(folder: Path, options_text: str) -> int:
    """Run the session in ``folder`` until it ends or is stopped; the exit code. Says what is wrong
    in ``progress.json`` and the log."""
    folder = folder.absolute()
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    try:
        options = msgspec.json.decode(options_text, type=Options)
        return asyncio.run(_serve(folder, options))
    except Held as held:
        _log.error("%s", held)
        return held.code
    except Refusal as problem:
        return _refuse(folder, problem.code, str(problem))
    except Stopped:
        return _refuse(folder, Exit.STOPPED, "Stopped before it had begun.")
    except OSError as error:
        return _refuse(folder, Exit.MISSING, of_system(error, folder))
    except Exception as error:
        if (fault := faults.find_fault(error)) is not None:
            return _refuse(folder, Exit.MISSING, of_system(fault, folder))
        if changed := installed.say_change():
            _log.exception("the program was changed")
            return _refuse(folder, Exit.MISSING, changed)
        if isinstance(error, ImportError) and (sentence := installed.lacking(error)):
            return _refuse(folder, Exit.MISSING, sentence)
        _log.exception("the runner failed")
        return _refuse(
            folder,
            Exit.OUR_FAULT,
            f"Narrowdown itself failed ({type(error).__name__}); the trace is in logs/runner.log.",
        )


def _refuse(folder: Path, code: int, sentence: str) -> int:
    _log.error("%s", sentence)
    progress.write(folder, progress.Snapshot(phase="stopped", text=sentence, pid=os.getpid()))
    return code


async def _serve(folder: Path, options: Options) -> int:
    description = describe(folder)
    flow = load_flow(folder / FLOW).flow
    where = socket_path(folder)
    with (
        contextlib.closing(Lock.acquire(folder, str(where), patience=2.0)),
        contextlib.closing(Journal(folder / NAME)) as journal,
    ):
        return await _walk(folder, description, flow, options, journal, where)


async def _walk(
    folder: Path, description: Any, flow: Any, options: Options, journal: Journal, where: Path
) -> int:
    ledger = Ledger(journal, Store(folder))
    begun = ledger.state.seq > 0
    going_on = begun and (bool(options.first) or not ledger.state.end)
    for said in examine(ledger, going_on=going_on) if begun else ():
        ledger.emit(NoteAdded(text=said))

    def died(death: Death) -> None:
        unknown = dict.fromkeys(inspected_specs(death.probe), "unavailable")
        ledger.emit(
            WorkerDied(
                worker=death.worker,
                pid=death.pid,
                signal=death.signal,
                returncode=death.returncode,
                key=key(death.probe, {**unknown, **ledger.state.fingerprints}),
                detail=death.detail[:2000],
                extra=death.extra,
            )
        )

    pool = executor(folder, description, options, ledger, died)
    # A session that has ended ends again: nobody asks its workers anything, and each starts when it
    # is asked.
    needed = going_on or not begun or options.executor != LOCAL
    starting = asyncio.create_task(pool.start() if needed else asyncio.sleep(0))
    session = Session(folder, flow, description.problem, ledger, options, description.id)
    devices = Devices(
        pool,
        pool.slots,
        gpus=lambda: pool.gpus,
        beside=pool.beside,
        waited_for=pool.waited_for,
    )
    walk = Walk(session, devices, STEPS)
    server = Server(where, walk.control.handle, walk.control.controlled)
    async with _stopped_on_failure(pool):
        await server.start()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(
            number, lambda: walk.control.stop(hard=True, reason="the runner was told to end")
        )
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        async with _stopped_on_failure(pool):
            await walk.ready(starting)
            if options.executor != LOCAL:
                walk.spread(pool.slots, AHEAD)
            for said in (
                await make_again(ledger, Guarded(pool, options.consent)) if going_on else ()
            ):
                ledger.emit(NoteAdded(text=said))
        return await walk.run()
    except ExecutorLost as lost:
        raise SessionProblem(str(lost)) from None
    finally:
        await server.stop()


@contextlib.asynccontextmanager
async def _stopped_on_failure(pool: Executor) -> AsyncIterator[None]:
    """End the pool where what it is to work for cannot begin, is stopped before it has, or finds
    its files damaged."""
    try:
        yield
    except BaseException:
        await pool.stop(hard=True)
        raise
