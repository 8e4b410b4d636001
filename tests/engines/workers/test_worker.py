"""Real workers, as the pool starts them: where they come from, what they leave in logs, how they
die."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from narrowdown import engines
from narrowdown.engines.probe import Check, Inspect, LoadInputs, Measure, Measurement
from narrowdown.engines.workers.pool import Pool, Terms

from ...consents import to_check
from ...patience import allow, wait_until

PACKAGES = str(Path(engines.__file__).parents[2])

OWNER = """
import asyncio, sys, time
sys.path.insert(0, {packages!r})
from pathlib import Path
from narrowdown.engines.workers.pool import Pool

async def main():
    pool = Pool(Path(sys.argv[1]), 2)
    for slot in pool._slots:
        await pool._start(slot)
    print(*(s.pid for s in pool.snapshot()), flush=True)
    time.sleep(60)

asyncio.run(main())
"""


def use(root: Path, work: Callable[[Pool], Awaitable[Any]], slots: int = 1, **options: Any) -> Any:
    async def body() -> Any:
        pool = Pool(root, slots, Terms(**options))
        try:
            return await work(pool)
        finally:
            await pool.stop(hard=True)

    return asyncio.run(body())


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie that nobody reaps does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state not in "ZX"


@pytest.mark.parametrize("frozen", [False, True])
def test_workers_die_within_a_second_of_a_killed_owner(tmp_path: Path, frozen: bool) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER.format(packages=PACKAGES), str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    pids = [int(p) for p in owner.stdout.readline().split()]
    assert len(pids) == 2
    assert all(map(alive, pids))
    if frozen:  # a worker that runs no Python at all: the kernel must do it
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
    owner.kill()
    owner.wait()
    wait_until(lambda: not any(map(alive, pids)), 1)


def test_a_folder_of_the_user_is_not_taken_for_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in (tmp_path, tmp_path / "path"):
        (folder / "narrowdown").mkdir(parents=True)
        (folder / "narrowdown" / "__init__.py").write_text(
            "raise RuntimeError('the wrong package')\n"
        )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "path"))

    async def work(pool: Pool) -> Measurement:
        return await pool.run(Inspect(engine="reference"))

    answer = use(tmp_path, work)
    assert answer.status == "ok", answer.message
    assert answer.facts["name"] == "reference"


# -- engines and scripts that misbehave, in real workers


def measure(session: Any, engine: str, **fields: Any) -> Measure:
    return session.probe(engine, samples=("real:0/0",), **fields)


def script(session: Any, body: str) -> LoadInputs:
    """Inputs from a user's script: the shortest way to run any code inside a worker."""
    path = session.root / "loader.py"
    path.write_text(f"import os, sys, time, ctypes\ndef load_data():\n    {body}\n    yield {{}}\n")
    return LoadInputs(model=session.model, sources=(str(path),))


def test_a_native_crash_leaves_its_trace_in_the_probes_log(opened: Any) -> None:
    session = opened("shapes_cnn")

    async def work(pool: Pool) -> tuple[Measurement, Measurement]:
        return await pool.run(measure(session, "fake:fault=crash")), await pool.run(
            measure(session, "onnxruntime")
        )

    crash, after = use(session.root, work)
    assert (crash.status, crash.signal) == ("crash", signal.SIGSEGV)
    log = (session.root / crash.log).read_text()
    assert "Segmentation fault" in log
    assert "measure.py" in log
    assert after.status == "ok"
    assert after.log == ""


@pytest.mark.parametrize(
    ("engine", "status", "words"),
    [
        ("fake:fault=abort,at=build", "crash", "while building"),
        ("fake:fault=exit", "crash", "exit code 3"),
        ("fake:fault=hang", "timeout", "while running"),
        ("fake:fault=build-failed,at=build", "build-failed", "fake"),
    ],
)
def test_what_an_engine_does_to_a_worker(opened: Any, engine: str, status: str, words: str) -> None:
    session = opened("shapes_cnn")

    async def work(pool: Pool) -> Measurement:
        await pool.run(measure(session, "onnxruntime"))
        return await pool.run(measure(session, engine), timeout=allow(1.5))

    answer = use(session.root, work)
    assert answer.status == status
    assert words in answer.message


def test_an_engine_that_eats_memory_is_stopped_before_the_machine_is(opened: Any) -> None:
    session = opened("shapes_cnn")

    async def work(pool: Pool) -> Measurement:
        return await pool.run(measure(session, "fake:fault=memory,mib=16384"))

    answer = use(session.root, work, memory=1 << 29)
    assert answer.status == "out-of-memory"
    assert "of memory and was stopped" in answer.message, (
        "not by itself, where there is no more to be had"
    )


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (
            "[ctypes.CDLL(None).write(fd, b'free(): corrupted\\n', 18) for fd in range(3, 30)]",
            "crash",
        ),
        ("sys.exit(3)", "error|refused"),
        ("raise KeyboardInterrupt", "error|refused"),
        ("os._exit(0)", "crash"),
        ("os.close(0); os.close(1)", "refused"),
    ],
)
def test_a_users_script_cannot_break_the_pool(opened: Any, body: str, status: str) -> None:
    session = opened("shapes_cnn")

    async def work(pool: Pool) -> tuple[Measurement, Measurement]:
        return await pool.run(script(session, body)), await pool.run(
            measure(session, "onnxruntime")
        )

    answer, after = use(session.root, work)
    assert answer.status in status.split("|"), answer
    assert after.status == "ok"


def test_noise_goes_to_the_log_and_not_to_the_protocol(opened: Any) -> None:
    session = opened("shapes_cnn")
    noise = "print('from python'); ctypes.CDLL(None).puts(b'from C'); os.write(1, b'{}\\n'); os.write(2, b'to stderr\\n')"

    async def work(pool: Pool) -> Measurement:
        return await pool.run(script(session, noise), log="logs/noise.log")

    answer = use(session.root, work)
    assert answer.log == "logs/noise.log"
    log = (session.root / answer.log).read_text()
    assert all(words in log for words in ("from python", "from C", "{}", "to stderr"))


def test_what_a_checker_started_ends_with_it(opened: Any) -> None:
    session = opened("shapes_cnn")
    marks = session.root / "pids"
    command = f"sh -c 'sleep 300 & echo $! >> {marks}; echo $$ >> {marks}; wait' checker"

    async def work(pool: Pool) -> Measurement:
        probe = Check(model=session.model, command=command)
        task = asyncio.create_task(pool.run(probe))
        while not marks.exists() or len(marks.read_text().split()) < 2:
            await asyncio.sleep(0.02)
        await pool.stop(hard=True)
        return await task

    assert use(session.root, work).status == "cancelled"
    pids = [int(p) for p in marks.read_text().split()]
    wait_until(lambda: not any(map(alive, pids)), 1)


# Forks twice, into a session of its own with an empty environment, and waits.
HIDES = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        lives = "import os, sys, time; open(sys.argv[1] + '.part', 'w').write(str(os.getpid())); "
        lives += "os.rename(sys.argv[1] + '.part', sys.argv[1]); time.sleep(600)"
        os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", lives, sys.argv[1]], {})
    os._exit(0)
time.sleep(600)
"""
CHECKING = """
import asyncio, sys
sys.path.insert(0, {packages!r})
from pathlib import Path
from narrowdown.engines.consent import CHECK, Consent, Permit
from narrowdown.engines.probe import Check
from narrowdown.engines.workers.pool import Pool, Terms

async def main():
    pool = Pool(Path(sys.argv[1]), 1, Terms(consent=Consent((Permit(CHECK, sys.argv[3]),))))
    asking = asyncio.create_task(pool.run(Check(model=sys.argv[2], command=sys.argv[3])))
    while not pool.snapshot()[0].pid or not Path(sys.argv[4]).exists():
        await asyncio.sleep(0.01)
    print(pool.snapshot()[0].pid, pool._dog.pid, flush=True)
    await asking

asyncio.run(main())
"""


@pytest.mark.parametrize("killed", ["worker", "owner", "all"])
def test_a_daemon_that_hides_ends_whatever_is_killed(
    opened: Any, tmp_path: Path, killed: str
) -> None:
    """The worker alone, the process that owns the pool, or these and the watchdog at one time."""
    session, place = opened("shapes_cnn"), tmp_path / "daemon"
    (tmp_path / "hides.py").write_text(HIDES)
    command = f"{sys.executable} -I -S {tmp_path}/hides.py {place} {{model}}"
    code = CHECKING.format(packages=PACKAGES)
    owner = subprocess.Popen(
        [sys.executable, "-c", code, str(session.root), session.model, command, str(place)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert owner.stdout is not None
        worker, dog = map(int, owner.stdout.readline().split())
        daemon = int(place.read_text())
        assert alive(daemon)
        place.unlink()
        victims = {"worker": [worker], "owner": [owner.pid], "all": [owner.pid, dog, worker]}[
            killed
        ]
        for pid in victims:
            os.kill(pid, signal.SIGSTOP)  # none of them may do anything about the others' end
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not alive(daemon))
    finally:
        owner.kill()
        owner.communicate(timeout=allow(30))


def test_a_checker_whose_keeper_is_killed_is_asked_again(opened: Any, tmp_path: Path) -> None:
    """That somebody killed it says nothing about the model."""
    session, marks = opened("shapes_cnn"), tmp_path / "marks"
    checks = tmp_path / "checks.sh"
    checks.write_text(
        f"echo $PPID $$ >> {marks}; [ $(wc -l < {marks}) = 2 ] || sleep 600; exit 7\n"
    )

    async def work(pool: Pool) -> Measurement:
        task = asyncio.create_task(
            pool.run(Check(model=session.model, command=f"sh {checks} {{model}}"))
        )
        while not marks.exists() or not marks.read_text().endswith("\n"):
            await asyncio.sleep(0.01)
        os.kill(int(marks.read_text().split()[0]), signal.SIGKILL)
        return await task

    answer = use(session.root, work)
    assert (answer.status, answer.facts.get("returncode")) == ("ok", 7), answer.message
    assert not alive(int(marks.read_text().split()[1]))


def test_a_checker_that_is_killed_each_time_is_told_of_with_what_does_that(opened: Any) -> None:
    session = opened("shapes_cnn")

    async def work(pool: Pool) -> Measurement:
        return await pool.run(Check(model=session.model, command="sh -c 'kill -9 $$' checker"))

    answer = use(session.root, work)
    assert answer.status == "fault"
    assert answer.message.startswith("The checker was killed (SIGKILL). It was the second time")
    assert "limit of memory" in answer.message


def test_a_checker_gets_what_the_pool_was_told_to_hand_on(
    opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = opened("shapes_cnn")
    for name in ("HF_TOKEN", "WANDB_API_KEY", "KUBECONFIG"):
        monkeypatch.setenv(name, f"planted {name};")
    command = "sh -c 'env; echo it wants KUBECONFIG and HF_TOKEN; exit 1' checker"

    async def work(pool: Pool) -> Measurement:
        return await pool.run(Check(model=session.model, command=command))

    answer = use(session.root, work, consent=to_check(command).handing(("HF_TOKEN",)))
    assert (
        answer.facts["stdout"].count("planted")
        == answer.facts["stdout"].count("planted HF_TOKEN;")
        == 1
    )
    assert answer.facts["missed"] == ["KUBECONFIG"]


def test_a_warm_worker_keeps_what_it_built(opened: Any) -> None:
    session = opened("sort_tf_massive_m4")

    async def work(pool: Pool) -> list[Measurement]:
        probes = [session.probe("onnxruntime", samples=(f"real:0/{i}",)) for i in range(4)]
        return [await pool.run(p) for p in probes]

    answers = use(session.root, work, slots=3)
    assert all(m.results[0].outputs[0].equal for m in answers)
    assert len({m.build_seconds for m in answers}) == 1


def test_answers_do_not_depend_on_the_number_of_slots(opened: Any) -> None:
    session = opened("sort_tf_massive_m4")
    probes = [
        session.probe("emulate:precision=fp16", session.nodes(n), effect=True)
        for n in session.by_op("Pow")
    ]

    async def work(pool: Pool) -> list[Measurement]:
        return await asyncio.gather(*(pool.run(p) for p in probes))

    one, three = use(session.root, work), use(session.root, work, slots=3)
    assert [m.status for m in one] == ["ok"] * len(probes)
    assert [m.results for m in one] == [m.results for m in three]
