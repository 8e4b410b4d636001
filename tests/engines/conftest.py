"""Below the gate: tests of engines and workers agree to whatever they name themselves."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from narrowdown.engines.consent import Consent, list_loaded, list_started
from narrowdown.engines.data import held
from narrowdown.engines.probe import AnyProbe, Check, LoadInputs, Measure
from narrowdown.engines.sources import postprocess_script, scripts
from narrowdown.engines.store.content import digest_file
from narrowdown.engines.workers.pool import Pool


class Whatever(dict[str, str]):
    """The digest of every file, as it is now."""

    def get(self, path: str, default: str = "") -> str:  # type: ignore[override]
        return digest_file(Path(path)) if Path(path).is_file() else default


class AnyCommand(dict[str, tuple[str, ...]]):
    """Every command is agreed to, with no file of its own."""

    def __contains__(self, _command: object) -> bool:
        return True

    def __missing__(self, _command: str) -> tuple[str, ...]:
        return ()


class Everything(Consent, frozen=True):
    """To whatever is asked."""

    def strange(self, _probe: AnyProbe) -> str:
        return ""

    def of(self, probe: AnyProbe) -> Consent:
        return agreed(probe)


EVERYTHING = Everything(files=Whatever(), commands=AnyCommand())


def agreed(probe: AnyProbe) -> Consent:
    """Consent to all that this probe names."""
    named = [path for _, path in list_loaded(probe)]
    sources = probe.sources if isinstance(probe, LoadInputs) else ()
    treated = probe.postprocess if isinstance(probe, Measure) else ()
    named += [path for source in sources for path in scripts(source)]
    named += [script] if (script := postprocess_script(treated)) else []
    return Consent(
        files={path: digest_file(Path(path)) for path in named if Path(path).is_file()},
        inputs=tuple(s for s in sources if scripts(s)),
        postprocess=treated,
        check=probe.command if isinstance(probe, Check) else "",
        commands={command: () for _, command in list_started(probe)},
        folder=getattr(probe, "folder", ""),
    )


@pytest.fixture(autouse=True)
def _agreed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(Pool.__init__.__kwdefaults__, "consent", EVERYTHING)
    with held.under(EVERYTHING):
        yield
