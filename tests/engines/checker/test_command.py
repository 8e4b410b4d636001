"""The external checker: how it is called, how it ends, and that nothing of it is left behind."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from narrowdown.engines.checker import environment, keeper
from narrowdown.engines.checker.command import SMALL, CheckResult, needs, run_line, words
from narrowdown.engines.processes import USERS, for_ours

from ...patience import allow, wait_until

PYTHON = shlex.quote(sys.executable)


def script(folder: Path, text: str, name: str = "checker.py") -> str:
    """A Python checker as a command, the model not named."""
    path = folder / name
    path.write_text(text)
    return f"{PYTHON} {shlex.quote(str(path))}"


def check(command: str, folder: Path, timeout: float = 30.0, model: str = "m.onnx") -> CheckResult:
    return run_line(
        words(command, folder / model, folder / "in.json", None, folder), folder, timeout
    )


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A zombie that its new parent has not waited for yet is dead.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def gone(pid: int, within: float = 5.0) -> bool:
    """Looks once at least."""
    until = time.monotonic() + allow(within)
    while True:
        try:
            if not alive(pid):
                return True
        except (FileNotFoundError, ProcessLookupError):  # before it is opened, or while it is read
            return True
        if time.monotonic() >= until:
            return False
        time.sleep(0.02)


# -- words


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("check", ["check", "/s/m.onnx"]),
        ("check {model} --in {inputs}", ["check", "/s/m.onnx", "--in", "/s/in put.json"]),
        ("check --model={model}", ["check", "--model=/s/m.onnx"]),
        ("check 'a b' \"c {dir}/x\"", ["check", "a b", "c /s/x", "/s/m.onnx"]),
        ("check {expected}{model}", ["check", "/s/e.json/s/m.onnx"]),
        ("check {other} {} {model", ["check", "{other}", "{}", "{model", "/s/m.onnx"]),
        (
            "check $HOME ; rm * | x > y",
            ["check", "$HOME", ";", "rm", "*", "|", "x", ">", "y", "/s/m.onnx"],
        ),
    ],
)
def test_words(command: str, expected: list[str]) -> None:
    got = words(command, Path("/s/m.onnx"), Path("/s/in put.json"), Path("/s/e.json"), Path("/s"))
    assert got == expected


def test_a_path_that_holds_a_placeholder_stays_as_it_is() -> None:
    got = words("check {model}", Path("/s/{dir}/m.onnx"), None, None, Path("/elsewhere"))
    assert got == ["check", "/s/{dir}/m.onnx"]


def test_what_was_not_made_cannot_be_asked_for() -> None:
    with pytest.raises(ValueError, match=r"asks for \{expected\}, which was not made\."):
        words("check {expected}", Path("m"), None, None, Path())


@pytest.mark.parametrize(
    ("command", "match"), [("check 'a", "mind its quotes"), ("", "is empty"), ("  ", "is empty")]
)
def test_commands_that_are_none(command: str, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        needs(command)
    with pytest.raises(ValueError, match=match):
        words(command, Path("m"), None, None, Path())


def test_needs() -> None:
    assert needs("check") == {"model"}
    assert needs("check {inputs} --x={expected}") == {"model", "inputs", "expected"}
    assert needs("check {dir} {model}") == {"model", "dir"}


@given(st.lists(st.text(min_size=1), min_size=1))
def test_quoted_words_come_back_and_the_model_is_there_once(texts: list[str]) -> None:
    plain = [t for t in texts if "{" not in t and "\0" not in t] or ["x"]
    assert words(shlex.join(plain), Path("/m"), None, None, Path("/d")) == [*plain, "/m"]


# -- how it ends


def test_it_runs_in_the_folder_with_no_input_and_no_shell(tmp_path: Path) -> None:
    command = script(
        tmp_path,
        "import os, sys; print(os.getcwd()); print(repr(sys.stdin.read())); print(sys.argv[1:]); sys.exit(7)",
    )
    got = check(f"{command} '$HOME'", tmp_path)
    assert (got.status, got.returncode, got.signal) == ("exited", 7, 0)
    assert got.stdout.splitlines() == [
        str(tmp_path),
        "''",
        str(["$HOME", str(tmp_path / "m.onnx")]),
    ]
    assert got.seconds > 0


def test_streams_are_kept_apart_and_bad_text_is_replaced(tmp_path: Path) -> None:
    got = check(
        script(tmp_path, "import os; os.write(1, b'out \\xff'); os.write(2, b'err')"), tmp_path
    )
    assert (got.stdout, got.stderr, got.status, got.returncode) == (
        "out \ufffd",
        "err",
        "exited",
        0,
    )


def test_a_signal_is_not_an_exit_code(tmp_path: Path) -> None:
    got = check(
        script(
            tmp_path,
            "import os, signal; print('so far', flush=True); os.kill(os.getpid(), signal.SIGSEGV)",
        ),
        tmp_path,
    )
    assert (got.status, got.signal, got.stdout) == ("signalled", signal.SIGSEGV, "so far\n")


def test_a_flood_of_output_is_bounded_and_its_ends_are_kept(tmp_path: Path) -> None:
    flood = "import sys\nprint('first')\nfor _ in range(600): sys.stdout.write('x' * 65536)\nprint('last')\nsys.stderr.write('e')"
    got = check(script(tmp_path, flood), tmp_path)
    assert got.returncode == 0
    assert got.stdout.startswith("first")
    assert got.stdout.endswith("last\n")
    assert "bytes left out" in got.stdout
    assert len(got.stdout) < 2 * SMALL + 100
    assert got.stderr == "e"


def test_a_timeout_kills_the_group_even_if_it_will_not_listen(tmp_path: Path) -> None:
    command = script(
        tmp_path,
        "import os, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "deaf = 'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)'\n"
        "child = subprocess.Popen([sys.executable, '-c', deaf])\n"
        "print(os.getpid(), child.pid, flush=True)\n"
        "time.sleep(60)\n",
    )
    begun = time.monotonic()
    got = check(command, tmp_path, timeout=1.5)
    assert time.monotonic() - begun < allow(15)
    assert got.status == "timeout"
    assert got.signal == 0
    assert "no verdict within 1.5 s" in got.message
    for pid in map(int, got.stdout.split()):
        assert gone(pid)


def test_a_silent_checker_that_closed_its_streams_still_times_out(tmp_path: Path) -> None:
    got = check(
        script(tmp_path, "import os, time; os.close(1); os.close(2); time.sleep(60)"),
        tmp_path,
        timeout=1.0,
    )
    assert got.status == "timeout"
    assert got.seconds < allow(10)


def test_a_checker_that_closed_its_streams_is_waited_for(tmp_path: Path) -> None:
    got = check(
        script(tmp_path, "import os, time; os.close(1); os.close(2); time.sleep(0.4); os._exit(4)"),
        tmp_path,
    )
    assert (got.status, got.returncode) == ("exited", 4)


def test_what_it_leaves_behind_does_not_hold_it_up_and_is_killed(tmp_path: Path) -> None:
    command = script(
        tmp_path,
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(child.pid, flush=True); sys.exit(1)\n",
    )
    begun = time.monotonic()
    got = check(command, tmp_path)
    assert time.monotonic() - begun < allow(20)
    assert (got.status, got.returncode) == ("exited", 1)
    assert gone(int(got.stdout))


def test_output_written_just_before_the_end_is_not_lost(tmp_path: Path) -> None:
    got = check(script(tmp_path, "import os; os.write(1, b'y' * 60000); os._exit(0)"), tmp_path)
    assert len(got.stdout) == 60000


def test_the_checker_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    command = script(
        tmp_path, "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(60)"
    )
    code = (
        "import sys; from pathlib import Path; from narrowdown.engines.checker.command import run_line, words;"
        "here = Path(sys.argv[2]);"
        "run_line(words(sys.argv[1], Path('m'), None, None, here), here, 60)"
    )
    parent = subprocess.Popen([sys.executable, "-P", "-c", code, command, str(tmp_path)])
    wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), 20)
    parent.kill()
    parent.wait()
    assert gone(int((tmp_path / "pid").read_text()))


# -- what cannot be started


@pytest.mark.parametrize(
    ("command", "folder", "said"),
    [
        ("no-such-checker-anywhere", "", "'no-such-checker-anywhere' was not found"),
        ("true", "nowhere", "folder"),
    ],
)
def test_a_checker_or_a_folder_that_is_not_there(
    tmp_path: Path, command: str, folder: str, said: str
) -> None:
    got = check(command, tmp_path / folder)
    assert got.status == "not-started"
    assert said in got.message


def test_a_checker_that_may_not_be_executed(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("text")
    got = check(str(tmp_path / "plain"), tmp_path)
    assert got.status == "not-started"
    assert "may not be executed" in got.message


def test_a_checker_that_is_no_program(tmp_path: Path) -> None:
    path = tmp_path / "broken"
    path.write_bytes(b"\x00\x01\x02")
    path.chmod(0o755)
    got = check(str(path), tmp_path)
    assert got.status == "not-started"
    assert got.message.endswith("Exec format error.")


# -- what it starts and lets go

# Forks twice, into a session of its own, with an empty environment and closed streams, and says
# where it is: nothing that a process can do to be forgotten is left out.
DAEMON = """
import os, sys, time
place = sys.argv[1]
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.chdir("/")
        for fd in range(3):
            os.close(fd)
        lives = "import os, sys, time; open(sys.argv[1] + '.part', 'w').write(str(os.getpid())); "
        lives += "os.rename(sys.argv[1] + '.part', sys.argv[1]); time.sleep(600)"
        os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", lives, place], {})
    os._exit(0)
while not os.path.exists(place):
    time.sleep(0.01)
"""


def daemon(folder: Path, after: str = "") -> tuple[str, Path]:
    """A checker that leaves a daemon behind, and the file that will hold its process id. ``after``:
    what it does then."""
    command = script(folder, DAEMON + after, "leaves.py")
    return f"{command} {shlex.quote(str(folder / 'daemon'))}", folder / "daemon"


@pytest.mark.parametrize("after", ["", "sys.exit(3)", "os.kill(os.getpid(), 9)", "time.sleep(600)"])
def test_a_daemon_that_hides_is_ended_however_the_checker_ends(tmp_path: Path, after: str) -> None:
    command, place = daemon(tmp_path, after)
    got = check(command, tmp_path, timeout=allow(1.5 if "600" in after else 60.0))
    assert got.status == {"": "exited", "sys.exit(3)": "exited", "time.sleep(600)": "timeout"}.get(
        after, "signalled"
    )
    pid = int(place.read_text())
    assert gone(pid, within=0.0), "it is gone before the answer comes"


@pytest.mark.parametrize("victim", ["worker", "keeper"])
def test_a_daemon_is_ended_when_what_watches_over_it_is_killed(tmp_path: Path, victim: str) -> None:
    command, place = daemon(tmp_path, "time.sleep(600)")
    code = (
        "import ctypes, sys; from pathlib import Path; from narrowdown.engines.checker import command, keeper;"
        "ctypes.CDLL(None).prctl(keeper.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);"
        "here = Path(sys.argv[2]); line = command.words(sys.argv[1], Path('m'), None, None, here);"
        "print(command.run_line(line, here, 60).status)"
    )
    words = [sys.executable, "-P", "-c", code, command, str(tmp_path)]
    worker = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        wait_until(place.exists, 30)
        pid = int(place.read_text())
        assert alive(pid)
        keepers = [pid for pid, _ in keeper.keepers(worker.pid)]
        assert len(keepers) == 1
        os.kill(worker.pid if victim == "worker" else keepers[0], signal.SIGKILL)
        said, _ = worker.communicate(timeout=allow(30))
    finally:
        worker.kill()
    assert said.strip() == ("" if victim == "worker" else "lost"), "no answer of the checker's"
    assert gone(pid)


def test_a_keeper_that_is_killed_between_two_checks_costs_none(tmp_path: Path) -> None:
    command = script(tmp_path, "print('all')")
    assert check(command, tmp_path).stdout == "all\n"
    before = keeper.keepers(os.getpid())[0]
    os.kill(before[0], signal.SIGKILL)
    wait_until(lambda: not keeper.alive(before), 30)
    assert check(command, tmp_path).stdout == "all\n"
    assert keeper.keepers(os.getpid())[0] != before


def test_one_keeper_serves_one_check_after_the_other(tmp_path: Path) -> None:
    """Each with its own folder, environment and streams, and no descriptor more after many than
    after one."""
    command = script(
        tmp_path,
        "import os; print(os.getcwd(), os.environ.get('POLYGRAPHY_N'), os.getsid(0) == os.getpid())",
    )
    counts = []
    for number in range(5):
        folder = tmp_path / f"folder {number}"
        folder.mkdir()
        os.environ["POLYGRAPHY_N"] = str(number)
        try:
            assert check(command, folder).stdout == f"{folder} {number} True\n"
        finally:
            del os.environ["POLYGRAPHY_N"]
        (kept,) = keeper.keepers(os.getpid())
        counts.append(
            (
                kept,
                len(list(Path(f"/proc/{kept[0]}/fd").iterdir())),
                str(Path(f"/proc/{kept[0]}/cwd").readlink()),
            )
        )
    assert counts == [counts[0]] * 5
    assert counts[0][2] == "/"


def test_a_checker_holds_nothing_of_ours_open(tmp_path: Path) -> None:
    command = script(
        tmp_path, "import os; print(sorted(map(int, os.listdir('/proc/self/fd')))[:-1])"
    )
    assert check(command, tmp_path).stdout == "[0, 1, 2]\n"


def test_what_breeds_is_ended(tmp_path: Path) -> None:
    """Each of its processes starts another one in a session of its own and ends: there is always
    one, never the same."""
    breeds = (
        "import os, sys, time\n"
        "if os.fork() == 0:\n"
        "    for n in range(4000):\n"
        "        os.setsid() if os.getpid() != os.getsid(0) else None\n"
        "        if os.fork():\n"
        "            os._exit(0)\n"
        "        open(sys.argv[1], 'w').write(str(os.getpid()))\n"
        "    os._exit(0)\n"
        "time.sleep(0.3)\n"
    )
    place = tmp_path / "latest"
    got = check(f"{script(tmp_path, breeds)} {shlex.quote(str(place))}", tmp_path)
    assert got.status == "exited"
    latest = place.read_text()
    time.sleep(0.1)
    assert place.read_text() == latest, "nothing of it writes any more"


# -- what it sees of the environment

NEEDED = {
    "PATH": "/bin",
    "HOME": "/h",
    "LANG": "C",
    "LC_ALL": "C",
    "TMPDIR": "/t",
    "LD_LIBRARY_PATH": "/l",
    "PYTHONPATH": "/p",
    "VIRTUAL_ENV": "/v",
    "CONDA_PREFIX": "/c",
    "CUDA_VISIBLE_DEVICES": "0,1",
    "CUDA_MODULE_LOADING": "LAZY",
    "NVIDIA_TF32_OVERRIDE": "0",
    "POLYGRAPHY_AUTOINSTALL_DEPS": "0",
    "OMP_NUM_THREADS": "4",
    "NARROWDOWN_WORKER": "mark.1",
}
# Names as they are found on desks, in shells of clusters and in CI, with a value of each that must
# not be seen.
SECRET = (
    "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "GITHUB_TOKEN", "GH_PAT", "CI_JOB_JWT", "OPENAI_API_KEY", "NGC_API_KEY",
    "NGC_CLI_API_KEY", "NVIDIA_API_KEY", "WANDB_API_KEY", "COMET_KEY", "MLFLOW_TRACKING_PASSWORD", "DATABASE_URL",
    "REDIS_URL", "SENTRY_DSN", "PGPASSWORD", "PGPASSFILE", "MYSQL_PWD", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
    "AWS_PROFILE", "AZURE_STORAGE_CONNECTION_STRING", "GOOGLE_APPLICATION_CREDENTIALS", "KUBECONFIG",
    "DOCKER_AUTH_CONFIG", "VAULT_ADDR", "SSH_AUTH_SOCK", "GPG_AGENT_INFO", "KRB5CCNAME", "NETRC", "PIP_INDEX_URL",
    "UV_EXTRA_INDEX_URL", "HTTP_PROXY", "https_proxy", "SLACK_WEBHOOK", "STRIPE_SK", "JWT", "my_secret", "LC_DEPLOY",
    "BASH_FUNC_deploy%%",
)  # fmt: skip


def test_a_checker_gets_what_it_needs_and_none_of_the_secrets() -> None:
    held = {**NEEDED, **{name: f"planted {n}" for n, name in enumerate(SECRET)}}
    assert len(SECRET) >= 20
    assert environment.for_checker(held) == NEEDED
    assert environment.for_checker(held, ["HF_TOKEN", "KUBECONFIG"]).keys() - NEEDED.keys() == {
        "HF_TOKEN",
        "KUBECONFIG",
    }


def test_a_checker_that_is_run_sees_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does what it starts; nor lies one in the environment of the process between, which any
    process of the user can read."""
    for n, name in enumerate(SECRET):
        monkeypatch.setenv(name, f"planted {n};")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    looks = (
        "import os, subprocess\n"
        "print(dict(os.environ)); print(subprocess.run(['env'], capture_output=True, text=True).stdout)\n"
        "print(open(f'/proc/{os.getppid()}/environ').read())"
    )
    got = check(script(tmp_path, looks), tmp_path)
    assert (got.status, got.returncode, got.stderr) == ("exited", 0, "")
    assert "planted" not in got.stdout
    assert "'CUDA_VISIBLE_DEVICES': '3'" in got.stdout
    line = words(script(tmp_path, looks), tmp_path / "m", None, None, tmp_path)
    named = run_line(line, tmp_path, 30.0, ["JWT"])
    assert set(re.findall(r"planted \d+;", named.stdout)) == {f"planted {SECRET.index('JWT')};"}


def test_every_name_has_its_reason() -> None:
    assert all(environment.HANDED.values())
    assert not [name for name in environment.HANDED if name.count("*") != name.endswith("*")]


def test_what_a_checker_missed_is_named() -> None:
    held = {
        "HF_TOKEN": "t",
        "HOME": "/h",
        "EDITOR": "vi",
        "n_words": "1",
        "plain": "1",
        "_": "/bin/x",
    }
    said = [
        "KeyError: 'HF_TOKEN', a _ alone",
        "HOME is set; plain n_words; HF_TOKENS and THE_EDITOR are others",
    ]
    assert environment.list_missed(said, (), held) == ["HF_TOKEN", "n_words"]
    assert environment.list_missed(said, (), held, ["HF_TOKEN"]) == ["n_words"]
    asks = [
        "test $HF_TOKEN",
        "${n_words}x",
        "os.environ[ 'EDITOR']",
        'environ.get("plain", 1)',
        'getenv("HOME")',
    ]
    assert environment.list_missed((), asks, held) == ["EDITOR", "HF_TOKEN", "n_words", "plain"]
    assert environment.list_missed((), ["# HF_TOKEN and EDITOR are words here"], held) == []


@pytest.mark.parametrize(
    ("name", "said"),
    [("HF_TOKEN", ""), ("NONE", "is not set here"), ("A=1", "is no name"), ("", "is no name")],
)
def test_what_can_be_handed_on(name: str, said: str) -> None:
    assert (
        (said in environment.fault(name, {"HF_TOKEN": "t"}))
        if said
        else environment.fault(name, {"HF_TOKEN": "t"}) == ""
    )


@pytest.mark.parametrize("users", [{}, {"OPENBLAS_NUM_THREADS": "16"}])
def test_a_worker_has_one_thread_for_openblas_and_a_checker_what_the_user_says(
    users: dict[str, str],
) -> None:
    held = environment.for_worker({"HOME": "/h", **users})
    assert held["OPENBLAS_NUM_THREADS"] == "1"
    given = environment.for_checker(held)
    assert given["OPENBLAS_NUM_THREADS"] == users.get("OPENBLAS_NUM_THREADS", "1")
    assert not [name for name in given if name.startswith(USERS)]


def test_ours_look_for_nothing_where_they_stand_and_a_checker_where_the_user_says() -> None:
    """A worker stands in the session's folder: with an empty part in PYTHONPATH, which
    ``$PYTHONPATH:/opt`` has, a module of the session ran."""
    users = {"PYTHONPATH": ":/opt/x:src", "LD_LIBRARY_PATH": ":", "PATH": "/bin"}
    users |= {"PYTHONUSERBASE": "mine", "PYTHONPYCACHEPREFIX": "."}
    ours = for_ours(for_ours(users))
    assert (ours["PYTHONPATH"], ours["PATH"]) == ("/opt/x", "/bin")
    assert not {"LD_LIBRARY_PATH", "PYTHONUSERBASE", "PYTHONPYCACHEPREFIX"} & ours.keys()
    assert environment.for_checker(ours) == users
