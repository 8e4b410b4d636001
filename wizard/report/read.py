"""The report of a session folder."""

import functools
from pathlib import Path

import msgspec

from narrowdown.engines.graph import GraphIndex
from narrowdown.engines.store import Store
from narrowdown.wizard.flow.load import load as load_flow
from narrowdown.wizard.flow.model import Flow
from narrowdown.wizard.report.document import Report
from narrowdown.wizard.report.gather import Sources, Table, gather
from narrowdown.wizard.session import SessionProblem, folder as folders
from narrowdown.wizard.session.state import State


class Reading(msgspec.Struct, frozen=True, dict=True):
    """A session as it is on disk now."""

    folder: Path
    description: folders.Description
    flow: Flow
    state: State

    def table(self, digest: str) -> Table:
        """The rows of a step's table; none where its artifact is gone."""
        rows = Store(self.folder).load(digest)
        return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []

    def graph(self, digest: str) -> GraphIndex | None:
        """The index of a model; None where its artifact is gone."""
        return Store(self.folder).load(digest, GraphIndex)

    def report(self) -> Report:
        """Raises SessionProblem where steps have found what there cannot be: a stranger may write
        anything into a journal."""
        return self._report

    @functools.cached_property
    def _report(self) -> Report:
        about = self.description
        try:
            return gather(
                self.state, self.flow, about.problem, Sources(self.table, self.graph, about.machine)
            )
        except (ValueError, LookupError) as error:
            raise SessionProblem(
                f"There is no report of '{self.folder}': what its steps found does not fit its model or its engine. "
                "Either somebody has changed its journal or another version of narrowdown wrote it; ask for the session anew."
            ) from error


def read(folder: Path) -> Reading:
    """Read a session. Raises SessionProblem, FlowProblem."""
    about, state = folders.describe(folder), folders.load(folder)
    # The parts that fail do so on the engine that the session went on with.
    engine = state.findings.firm or about.problem.engine
    searched = msgspec.structs.replace(about.problem, engine=engine)
    return Reading(
        folder=folder,
        description=msgspec.structs.replace(about, problem=searched),
        flow=load_flow(str(folder / folders.FLOW)).flow,
        state=state,
    )
