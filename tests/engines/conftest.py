"""Below the gate: tests of engines and workers agree to whatever they name themselves."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from narrowdown.engines.consent import (
    LOADER,
    NOTHING,
    POSTPROCESS,
    Asked,
    Consent,
    Permit,
    list_asked,
)
from narrowdown.engines.data import held
from narrowdown.engines.probe import AnyProbe
from narrowdown.engines.sources import postprocess_script, scripts
from narrowdown.engines.store import digest_file


class Whatever(dict[str, str]):
    """The digest of every file, as it is now."""

    def get(self, path: str, default: str = "") -> str:  # type: ignore[override]
        return digest_file(Path(path)) if Path(path).is_file() else default


class Everything(Consent, frozen=True):
    """To whatever is asked."""

    @property
    def files(self) -> dict[str, str]:
        return Whatever()

    def find(self, asked: Asked) -> Permit:
        return Permit(asked.kind, asked.name, asked.folder or "")

    def of(self, probe: AnyProbe) -> Consent:
        return agreed(probe)


EVERYTHING = Everything()


def agreed(probe: AnyProbe) -> Consent:
    """Consent to all that this probe names."""
    return Consent(tuple(_permit(asked) for asked in list_asked(probe)))


def _permit(asked: Asked) -> Permit:
    named = {
        LOADER: scripts(asked.name),
        POSTPROCESS: (postprocess_script(asked.name.split(", ")),),
    }.get(asked.kind, (asked.name,))
    files = {path: digest_file(Path(path)) for path in named if Path(path).is_file()}
    return Permit(asked.kind, asked.name, asked.folder or "", files)


@pytest.fixture(autouse=True)
def _agreed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    known = Consent.of
    monkeypatch.setattr(
        Consent, "of", lambda self, probe: agreed(probe) if self == NOTHING else known(self, probe)
    )
    with held.under(EVERYTHING):
        yield
