"""The commands that README.md, SECURITY.md and docs/ show, and what is done with each.

A *shown* command is a line of a ``sh`` block, or words between backticks that begin with a program,
or with a command of ``narrowdown`` (`` `show --canonical` ``). Each belongs to one class: a scene,
which is a test that runs it; or it is only parsed, and the reason is said. ``SCENES`` names the
tests, ``RULES`` the class of each. Nothing else may be shown.
"""

import re
import shlex
from collections.abc import Sequence
from contextlib import redirect_stdout
from fnmatch import fnmatchcase
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from narrowdown.wizard import Refusal
from narrowdown.wizard.cli.arguments import parse

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md")))
PROGRAMS = (
    "narrowdown", "make", "pip", "python", "pytest", "polygraphy", "trtexec", "dask", "git", "chmod", "rsync", "sh", "cd", "cp",
    "curl", "wget", "docker", "conda", "uv", "apt", "apt-get", "nvidia-smi", "ssh", "scp",
)  # fmt: skip
VERBS = (
    "open", "run", "resume", "edit", "after", "watch", "replay", "report", "export", "sessions", "show", "diff", "engines",
    "diff-tactics", "flow", "step", "demo", "help", "ladder", "trigger", "mcp",
)  # fmt: skip

# Scene -> the test that runs every command of it.
SCENES = {
    "metric": "tests/docs/test_added.py::test_a_metric_is_added_as_its_page_says",
    "cause": "tests/docs/test_added.py::test_a_cause_is_added_as_its_page_says",
    "tutorial": "tests/docs/test_commands.py::test_the_tutorial_does_what_it_says",
    "session": "tests/docs/test_commands.py::test_the_tutorial_does_what_it_says",
    "resume": "tests/docs/test_commands.py::test_a_session_is_resumed_in_every_way_that_is_shown",
    "edit": "tests/docs/test_commands.py::test_a_session_is_resumed_in_every_way_that_is_shown",
    "tolerance": "tests/docs/test_commands.py::test_the_page_about_tolerance_does_what_it_says",
    "at once": "tests/docs/test_commands.py::test_what_answers_at_once_does",
    "surveys": "tests/docs/test_commands.py::test_what_looks_at_the_machine_runs",
    "routes": "tests/docs/test_commands.py::test_whole_routes_come_to_an_end",
    "demos": "tests/docs/test_commands.py::test_every_demo_that_is_shown_comes_to_its_end",
    "collected": "tests/docs/test_commands.py::test_pytest_finds_what_it_is_told_to_run",
    "ci": "tests/e2e/test_ci_recipe.py::test_the_page_does_what_it_says",
    "polygraphy": "tests/e2e/test_polygraphy_page.py::test_every_shown_command_runs",
    "an engine": "tests/plugins/test_engine.py::test_the_page_does_what_it_says",
    "quantization": "tests/e2e/test_quantized_models.py::test_the_page_does_what_it_says",
    "a runtime": "tests/plugins/test_runtime.py::test_the_page_does_what_it_says",
    "converted": "tests/e2e/test_another_model.py::test_the_page_does_what_it_says",
    "rewrite": "tests/e2e/test_rewrites.py::test_the_page_does_what_it_says",
    "trigger": "tests/e2e/test_trigger.py::test_the_page_does_what_it_says",
    "known": "tests/wizard/test_cli_known.py::test_the_page_does_what_it_says",
    "after": "tests/e2e/test_after.py::test_the_page_does_what_it_says",
    "score": "tests/e2e/test_score.py::test_the_page_does_what_it_says",
    "an IR": "tests/e2e/test_openvino_ir.py::test_the_page_does_what_it_says",
    "recipes": "tests/e2e/test_recipes.py::test_what_a_recipe_shows_runs",
    "pytorch": "tests/e2e/test_from_pytorch.py::test_the_page_does_what_it_says",
    "a step": "tests/plugins/test_fresh.py::test_the_page_does_what_it_says",
}

# (page, the command's beginning, scene or, after "parsed: ", why it is not run). A page is a glob;
# "" begins every command.
RULES = (
    ("docs/after.md", "narrowdown ladder", "parsed: installs releases; tests/wizard/ladder runs it"),
    ("docs/json.md", "narrowdown ladder", "parsed: installs releases; tests/wizard/ladder runs it"),
    ("docs/from-pytorch.md", "pip install", "parsed: installs PyTorch"),
    ("docs/from-pytorch.md", "narrowdown run", "pytorch"),
    ("docs/tutorial.md", "narrowdown demo", "demos"),
    ("docs/tutorial.md", "", "tutorial"),
    ("docs/tolerance.md", "narrowdown step compare", "tolerance"),
    ("docs/ci.md", "", "ci"),
    ("docs/add-a-metric-or-a-cause.md", "narrowdown step compare", "metric"),
    ("docs/add-a-metric-or-a-cause.md", "python -m pytest", "cause"),
    ("docs/polygraphy.md", "narrowdown open", "parsed: a person at a terminal, as README's, which the scene 'routes' answers"),
    *(("docs/polygraphy.md", f"narrowdown step {step}", "parsed: TensorRT and a GPU") for step in (
        "compare model.onnx --engine tensorrt", "layerwise model.onnx --engine tensorrt",
        "repeat model.onnx --until 10 --engine tensorrt", "precision model.onnx --engine tensorrt")),
    ("docs/polygraphy.md", "polygraphy run model.onnx --trt", "parsed: a GPU; Polygraphy makes the script of it"),
    ("README.md", "polygraphy run", "parsed: the name of a command"),
    ("docs/polygraphy.md", "polygraphy debug build", "parsed: a GPU"),
    ("docs/polygraphy.md", "polygraphy debug precision", "parsed: a GPU"),
    ("docs/polygraphy.md", "polygraphy inspect diff-tactics", "parsed: TensorRT, even to read its files"),
    ("docs/polygraphy.md", "", "polygraphy"),
    ("docs/quantization.md", "narrowdown demo", "demos"),
    ("docs/quantization.md", "narrowdown step quantization --json", "parsed: the page shows it whole above"),
    ("docs/quantization.md", "", "quantization"),
    *(("docs/after.md", f"narrowdown {words}", "known") for words in ("known", "step known")),
    *(("docs/after.md", f"narrowdown {words}", "rewrite") for words in ("step rewrite", "run shapes_cnn.onnx")),
    *(("docs/after.md", f"narrowdown {words}", "trigger") for words in ("trigger", "step trigger")),
    ("docs/after.md", "narrowdown step score --json", "parsed: the page shows it whole above"),
    *(("docs/after.md", f"narrowdown {words}", "score") for words in ("run", "after SESSION", "step score")),
    ("docs/after.md", "narrowdown after", "after"),
    ("docs/engines.md", "narrowdown run net.onnx", "parsed: a chip maker's file; tests/engines/backends/test_plug_ins.py"),
    ("docs/engines.md", "narrowdown step compare net.xml", "an IR"),
    ("docs/engines.md", "narrowdown run net.xml", "an IR"),
    ("docs/how-it-was-tested.md", "python campaigns/", "parsed: hours, a GPU or the network"),
    ("docs/write-a-step.md", "", "a step"),
    ("docs/write-an-engine.md", "step layerwise", "parsed: the name of a command; IREE, which ran it, is not installed"),
    ("docs/write-an-engine.md", "narrowdown run net.onnx", "a runtime"),
    ("docs/write-an-engine.md", "", "an engine"),
    ("docs/golden.md", "narrowdown run half.onnx", "converted"),
    ("docs/golden.md", "narrowdown run float.onnx", "converted"),
    ("docs/recipes.md", "narrowdown run model.onnx --engine tensorrt:plan", "parsed: as docs/tensorrt.md's"),
    ("docs/recipes.md", "narrowdown run model.onnx --inputs in.npz --engine tensorrt", "parsed: TensorRT and a GPU"),
    ("docs/recipes.md", "narrowdown step precision", "parsed: TensorRT and a GPU"),
    ("docs/recipes.md", "narrowdown open", "parsed: TensorRT and a GPU"),
    ("docs/recipes.md", "narrowdown trigger", "parsed: a session with a case; docs/after.md has it run"),
    *(("docs/recipes.md", f"narrowdown {words}", "recipes") for words in ("run", "step layerwise")),
    ("docs/recipes.md", "ssh ", "parsed: another machine; what runs there is parsed by our own parser"),
    ("docs/recipes.md", "scp ", "parsed: another machine"),
    ("docs/recipes.md", "docker ", "parsed: a daemon, a GPU and the network"),
    ("docs/recipes.md", "trtexec", "parsed: a GPU; a program without a parser that could be asked"),
    ("docs/recipes.md", "python -m pip install", "parsed: the network"),
    ("docs/tensorrt.md", "narrowdown engines", "surveys"),
    ("docs/tensorrt.md", "narrowdown run MODEL --flow build-failure", "parsed: the extra rtx, which is no part of the tests' "
     "environment; tests/e2e/test_build_failure.py walks the flow"),
    ("docs/tensorrt.md", "narrowdown run model.onnx --engine tensorrt:plan", "parsed: a GPU; tests/e2e/test_built_engine.py "
     "walks the flow with an engine that says that it was built before"),
    ("docs/tensorrt.md", "python -m pip install", "parsed: the network"),
    ("docs/tensorrt.md", "narrowdown open", "parsed: a GPU; README's, which the scene 'routes' answers, is the same walk"),
    ("README.md", "narrowdown open model.onnx --engine tensorrt", "parsed: a GPU"),
    ("README.md", "narrowdown open model.py:build", "parsed: torch, which is no part of the tests' environment"),
    ("docs/tensorrt.md", "pip install", "parsed: the network, and GBs of wheels"),
    ("docs/tensorrt.md", "polygraphy ", "parsed: a GPU"),
    ("docs/tensorrt.md", "trtexec", "parsed: a GPU; a program without a parser that could be asked"),
    ("docs/tensorrt.md", "narrowdown replay", "parsed: another version of TensorRT"),
    ("docs/tensorrt.md", "step", "parsed: a GPU"),
    ("docs/golden.md", "step layerwise", "parsed: the name of a command"),
    ("docs/golden.md", "narrowdown run", "parsed: TensorRT; tests/e2e/test_golden.py walks every row of the page without it"),
    ("docs/clusters.md", "pip install", "parsed: the network"),
    ("docs/clusters.md", "sh docs/cluster-tls.sh", "parsed: tests/engines/cluster/test_unreached.py runs it"),
    ("docs/clusters.md", "dask ", "parsed: runs until it is stopped; tests/engines/cluster starts both"),
    ("docs/clusters.md", "narrowdown run", "parsed: hosts with GPUs; tests/engines/cluster runs sessions on hosts with none"),
    ("docs/python.md", "narrowdown run", "parsed: the name of a command; tests/e2e/test_python.py has the page's own code run"),
    ("*", "git ", "parsed: the network, and where from is the reader's affair"),
    ("*", "chmod", "parsed: half a command, for a file of the reader's"),
    ("*", "make demo", "demos"),
    ("*", "make ", "parsed: minutes to hours, or the very suite that this is a part of; make itself says what it would run"),
    ("*", "pip install", "parsed: the network"),
    ("*", "pytest -m", "collected"),
    ("*", "polygraphy surgeon extract", "parsed: the name of a command"),
    ("docs/json.md", "python -m narrowdown.wizard.schemas", "parsed: tests/wizard/schemas has it print each schema"),
    ("README.md", "narrowdown open", "routes"),
    ("docs/flows.md", "narrowdown run", "routes"),
    ("docs/tolerance.md", "narrowdown run", "routes"),
    ("docs/concepts.md", "narrowdown step reduce", "routes"),
    ("docs/json.md", "narrowdown step reduce", "routes"),
    ("docs/steps.md", "narrowdown step", "routes"),
    ("docs/json.md", "narrowdown open", "parsed: a program answers it, as tests/e2e/test_json_driver.py has the page's own do"),
    ("docs/json.md", "narrowdown diff-tactics", "parsed: folders of replays, with which docs/polygraphy.md has it run"),
    ("docs/concepts.md", "narrowdown diff-tactics", "parsed: folders of replays, with which docs/polygraphy.md has it run"),
    ("docs/json.md", "narrowdown diff", "parsed: two sessions, which tests/e2e/test_diff.py has"),
    ("docs/troubleshooting.md", "narrowdown diff", "parsed: two sessions, which tests/e2e/test_diff.py has"),
    ("docs/concepts.md", "step repeat", "parsed: TensorRT, which alone leaves such files"),
    ("*", "narrowdown mcp", "parsed: serves a client until it leaves; tests/wizard/agent is one"),
    ("*", "narrowdown demo", "demos"),
    ("*", "narrowdown engines", "surveys"),
    ("*", "narrowdown flow", "at once"),
    ("*", "narrowdown sessions", "at once"),
    ("*", "narrowdown COMMAND --help", "at once"),
    ("*", "narrowdown resume", "resume"),
    ("*", "narrowdown edit", "edit"),
    *(("*", f"narrowdown {verb}", "session") for verb in ("report", "export", "replay", "show", "watch")),
)  # fmt: skip


class Shown(NamedTuple):
    """``line`` as it stands, on one line; ``block``: whether it is a line of a ``sh`` block."""

    page: str
    line: str
    block: bool

    @property
    def words(self) -> list[str]:
        """Without its remark and without variables set before it; ``narrowdown`` first where only
        its command is named."""
        told = shlex.split(self.line, comments=True)
        while told and re.fullmatch(r"[A-Z_]+=.*", told[0]):
            told = told[1:]
        return ["narrowdown", *told] if told and told[0] in VERBS else told

    @property
    def exit(self) -> int:
        """The exit status that its remark promises; 0 where it says nothing."""
        said = re.search(r"# exit (\d+)", self.line)
        return int(said[1]) if said else 0


def _is_command(text: str) -> bool:
    """Whether words between backticks are a command: a program with words behind it (a name alone
    is a name), or a command of ours with words that ``narrowdown`` knows."""
    try:
        words = Shown("", text, False).words
    except ValueError:  # a quote that is never closed: prose
        return False
    if (
        not words
        or len(text.split()) < 2
        or words[0] not in PROGRAMS
        or "{{" in text
        or "..." in text
    ):
        return False
    return text.split()[0] not in VERBS or completed(words[1:]) is not None


def completed(words: Sequence[str], target: str = "OUT") -> list[str] | None:
    """The words with what running text leaves out: what a command works on, and where it writes
    (``target``). None where ``narrowdown`` does not know them."""
    on = (
        {"open": "MODEL", "run": "MODEL", "step": "MODEL", "flow": "FILE"}.get(words[0], "SESSION")
        if words
        else ""
    )
    on = "" if on in words else on  # replay takes several
    place = 2 if words and words[0] in ("step", "flow") else 1
    # What it works on stands where it can be missing without anybody noticing, so it is tried
    # first.
    ways = [([on], []), ([], []), ([on], ["-o", target]), ([], ["-o", target])]
    if words[:1] == ["export"] and not {"-o", "--output"} & set(words):
        ways = ways[2:]  # it asks where to
    for named, written in ways:
        whole = [*words[:place], *filter(None, named), *words[place:], *written]
        try:
            with redirect_stdout(StringIO()):
                parse(whole)
        except Refusal:
            continue
        except SystemExit:  # --help, --version
            pass
        return whole
    return None


def shown() -> tuple[Shown, ...]:
    """Every command, in the order of the pages; in a page the blocks first."""
    found: list[Shown] = []
    for path in PAGES:
        page, text = str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
        for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL):
            lines = block.replace("\\\n", " ").splitlines()
            found += [
                Shown(page, line, True)
                for line in lines
                if line.strip() and not line.startswith("#")
            ]
        prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        inline = (" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose))
        found += [Shown(page, code, False) for code in dict.fromkeys(inline) if _is_command(code)]
    return tuple(found)


SHOWN = shown()


def kind(command: Shown) -> str:
    """Its scene, ``parsed: reason``, or "" where no rule fits."""
    rule = rule_of(command)
    return rule[2] if rule else ""


def rule_of(command: Shown) -> tuple[str, str, str] | None:
    """The rule that holds for it. One that begins with a command of ours is for those that stand
    without ``narrowdown``."""
    plain = " ".join(command.words)
    for rule in RULES:
        page, start, _ = rule
        line = command.line if start.split(" ")[0] in VERBS else plain
        if fnmatchcase(command.page, page) and line.startswith(start):
            return rule
    return None


def of(scene: str) -> list[Shown]:
    """The commands that this scene's test has to run."""
    return [command for command in SHOWN if kind(command) == scene]
