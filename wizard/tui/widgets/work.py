"""A step at work: what it does and how far it is, its probes, the smallest part that fails, deaths of workers."""

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size
from textual.content import Content

from wizard.report.words import duration
from wizard.tui import chart
from wizard.tui.board import Hunt, Row
from wizard.tui.literal import clean, fit
from wizard.tui.scene import Work
from wizard.tui.widgets.lines import Lines, row, wrap
from wizard.tui.words import ago

WORDS = {"passes": "passes", "fails": "fails", "unresolved": "cannot tell", "running": "running", "done": "done"}
STYLES = {"passes": "$passes", "fails": "$fails", "unresolved": "$unsure", "running": "", "done": "$quiet"}


class Doing(Lines):
    """What is being tried, a bar of probes done and expected, and the time left."""

    _state: tuple[Work, int] = (Work(), 0)

    def show(self, work: Work, hunt: Hunt) -> None:
        """The runner counts the probes that were asked for, known ones among them; those at work are not done yet."""
        waiting = sum(row.state == "running" for row in hunt.rows)
        state = (work, max(hunt.finished, work.done - waiting))
        if state != self._state:
            self._state = state
            self.changed()

    def lines(self, width: int) -> list[Content]:
        work, done = self._state
        g = self.glyphs
        rows = wrap(work.text or "starting", width)
        if work.expected > 0:
            total = max(work.expected, done)
            tail = f"{done} of about {total} probes"
            if work.eta >= 1:
                tail += f", ~{duration(work.eta)} left"
            beside = width >= 60
            room = max(4, min(40, width - cell_len(tail) - 2)) if beside else width
            full = room * done // max(1, total)
            bar = [(g.full * full, "$recommended"), (g.empty * (room - full), "$quiet")]
            rows += [row([*bar, ("  " + tail, "")])] if beside else [row(bar), row([(tail, "")])]
        else:
            rows.append(row([(f"{done} probes done, how many remain is not known yet", "$quiet")]))
        if work.paused:
            rows.append(row([("paused: p goes on", "bold $fails")]))
        if work.stopping:
            rows.append(row([("stopping after this probe; X stops now", "bold $fails")]))
        return rows


class Probes(Lines):
    """The last probes, newest first: number, what was tried, verdict as glyph and word, detail, seconds."""

    most = 8
    _rows: tuple[Row, ...] = ()
    _now = 0.0

    def show(self, rows: tuple[Row, ...], now: float) -> None:
        """``now`` times the probes that are still running."""
        second = int(now) if any(r.state == "running" for r in rows[-self.most :]) else 0
        if rows != self._rows or second != int(self._now):
            self._rows, self._now = rows, float(second)
            self.changed()

    def lines(self, width: int) -> list[Content]:
        latest = list(reversed(self._rows[-self.most :]))
        if not latest:
            return [row([("no probe yet", "$quiet")])]
        wanted = max(cell_len(clean(probe.what)) for probe in latest) + 1
        detail = max(cell_len(clean(probe.detail)) for probe in latest)
        return [self._line(probe, width, wanted, detail) for probe in latest]

    def _line(self, probe: Row, width: int, wanted: int, detail: int) -> Content:
        g = self.glyphs
        mark = g.running if probe.state == "running" else g.dot if probe.state == "done" else getattr(g, probe.state)
        seconds = probe.seconds if probe.state != "running" else max(0.0, self._now - probe.started)
        time = f"  {duration(seconds):>10}" if width >= 50 else ""
        head, verdict = f"{probe.number:>3}  ", f"{mark} {WORDS[probe.state]:<11}  "
        room = max(4, width - cell_len(head) - cell_len(verdict) - cell_len(time))
        what = min(room, wanted, max(room - detail, room // 2))
        return row([
            (head, "$quiet"),
            (fit(probe.what, what - 1, g.ellipsis) + " ", ""),
            (verdict, STYLES[probe.state]),
            (set_cell_size(clean(probe.detail), room - what), "$quiet"),
            (time, "$quiet"),
        ])  # fmt: skip


class Smallest(Lines):
    """How the smallest failing part has shrunk."""

    _state: tuple[tuple[tuple[int, float], ...], int, int] = ((), -1, 0)

    def show(self, hunt: Hunt, work: Work, whole: int, now: float) -> None:
        """From the judged probes, or the step's own word (``best``). ``whole``: nodes of the model, 0 unknown."""
        smaller = tuple((nodes, ts) for nodes, ts in hunt.best if not whole or nodes < whole)
        state = (smaller, work.best if not whole or work.best < whole else -1, int(now))
        if state != self._state:
            self._state = state
            self.changed()

    @property
    def known(self) -> bool:
        """Whether there is anything to show."""
        return bool(self._state[0]) or self._state[1] > 0

    def lines(self, width: int) -> list[Content]:  # noqa: ARG002
        best, own, now = self._state
        found = list(best[-5:])
        if own > 0 and (not found or own < found[-1][0]):
            found.append((own, float(now)))
        if not found:
            return [row([("nothing smaller than the whole model yet", "$quiet")])]
        top = found[0][0]
        rows = []
        for nodes, ts in found:
            bar = chart.bars([nodes], 1, self.glyphs.levels, 0, top)
            rows.append(row([(f"{nodes:>6} nodes ", ""), (bar, "$fails"), (f"  {ago(max(0.0, now - ts))}", "$quiet")]))
        return rows


class Tail(Lines):
    """The last lines of a log; wrapped nowhere, cut at the edge."""

    most = 5
    _lines: tuple[str, ...] = ()

    def show(self, lines: Sequence[str]) -> None:
        """New last lines."""
        latest = tuple(lines[-self.most :])
        if latest != self._lines:
            self._lines = latest
            self.changed()

    def lines(self, width: int) -> list[Content]:
        return [row([(set_cell_size(clean(line), width).rstrip(), "$quiet")]) for line in self._lines] or [
            row([("nothing yet", "$quiet")])
        ]
