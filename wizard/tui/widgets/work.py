"""A step at work: what it does and how far it is, its probes, the smallest part that fails, deaths
of workers."""

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size
from textual.content import Content

from narrowdown.wizard.report import pictures
from narrowdown.wizard.report.probe_words import WORDS
from narrowdown.wizard.report.strip import Strip
from narrowdown.wizard.tui.board import Hunt, Row
from narrowdown.wizard.tui.literal import clean, fit, paint, row
from narrowdown.wizard.tui.scene import Work
from narrowdown.wizard.tui.widgets.lines import Lines, wrap
from narrowdown.wizard.words import count, duration

STYLES = {
    "passes": "$passes",
    "fails": "$fails",
    "unresolved": "$unsure",
    "running": "",
    "done": "$quiet",
}


class Doing(Lines[tuple[Work, bool, tuple[str, ...]]]):
    """What is being tried, a bar of probes done and expected, and the time left."""

    def show(self, work: Work, hunt: Hunt, whole: int = 0, now: float = 0.0) -> None:
        """The runner counts the probes that the step has its answer to, known ones among them.
        ``whole``: nodes of the model."""
        self.tell((work, hunt.resumed, tell_pace(work, hunt, whole, now)))

    def rows(self, told: tuple[Work, bool, tuple[str, ...]], width: int) -> list[Content]:
        work, hunt_resumed, pace = told
        rows = wrap(work.text or "starting", width) + self._bar(work, width)
        if pace:  # as much of it as one line holds
            fits = (n for n in range(len(pace), 1, -1) if cell_len(", ".join(pace[:n])) <= width)
            rows.append(row([(", ".join(pace[: next(fits, 1)]), "$quiet")]))
        busy = [slot for slot in work.workers if slot.state == "busy"]
        said = [
            f"{self.glyphs.running} worker {slot.worker}{slot.place} {slot.text or 'starting'}, {duration(slot.seconds)}"
            for slot in busy[:4]
        ]
        said += [f"and {len(busy) - 4} more workers"] if len(busy) > 4 else []
        if hunt_resumed:
            said.append("resumed: what was measured before is known and not run again")
        rows += [row([(line, "$quiet")]) for line in said]
        keys_ = []
        if work.paused:
            keys_.append("paused" if work.holder else "paused; press {pause} to go on")
        if work.stopping:
            keys_.append("stopping after this probe; press {stop_now} to stop now")
        return rows + [row([(self.fill_in_keys(line), "bold $fails")]) for line in keys_]

    def _bar(self, work: Work, width: int) -> list[Content]:
        """How far it is, as far as that is known."""
        g, done = self.glyphs, work.done
        if work.paused and not any(slot.state == "busy" for slot in work.workers):
            return [row([(f"{count(done, 'run')} done, waiting", "$quiet")])]
        if work.expected <= 0:
            return [row([(f"{count(done, 'run')} done", "$quiet")])] if done else []
        total = max(work.expected, done)
        tail = f"{done} of about {total} runs{', paused' if work.paused else ''}"
        beside = width >= 60
        room = max(4, min(40, width - cell_len(tail) - 2)) if beside else width
        full = room * done // max(1, total)
        bar = [(g.full * full, "$recommended"), (g.empty * (room - full), "$quiet")]
        return [row([*bar, ("  " + tail, "")])] if beside else [row(bar), row([(tail, "")])]


def tell_pace(work: Work, hunt: Hunt, whole: int, now: float) -> tuple[str, ...]:
    """How long the step has run, the smallest part that fails so far, and how fast probes come
    back."""
    if not hunt.began or now <= hunt.began or work.paused:  # nothing counts while it waits
        return ()
    seconds = now - hunt.began
    nodes = [n for n in (work.best, len(hunt.strip.suspects)) if 0 < n < whole]
    facts = [f"{duration(seconds)} so far"]
    facts += [f"smallest that fails {min(nodes):,} of {count(whole, 'node')}"] if nodes else []
    if hunt.finished > 2 and seconds >= 5:
        rate = hunt.finished * 60 / seconds
        facts.append(
            f"{rate:.0f} probes a minute"
            if rate >= 2
            else f"a probe takes about {duration(60 / rate)}"
        )
    return tuple(facts)


class Probes(Lines[tuple[tuple[Row, ...], int]]):
    """The last probes, newest first: number, what was tried, verdict as glyph and word, detail,
    seconds."""

    most = 8

    def show(self, rows: tuple[Row, ...], now: float) -> None:
        """``now`` times the probes that are still running."""
        latest = rows[-self.most :][::-1]
        self.tell((latest, int(now) if any(row.state == "running" for row in latest) else 0))

    def rows(self, told: tuple[tuple[Row, ...], int], width: int) -> list[Content]:
        latest, now = told
        if not latest:
            return [row([("no probe yet", "$quiet")])]
        wanted = max(cell_len(clean(probe.what)) for probe in latest) + 1
        detail = max(cell_len(clean(probe.detail)) for probe in latest)
        took = (p.seconds if p.state != "running" else max(0.0, now - p.started) for p in latest)
        times = [duration(seconds) for seconds in took] if width >= 50 else [""] * len(latest)
        said = max(len(WORDS[probe.state]) for probe in latest)
        column = max(
            6, *map(len, times)
        )  # as wide as "59.9 s" needs: what it leaves is for the words
        return [
            self._line(probe, width, (wanted, said, detail), f"  {time:>{column}}" if time else "")
            for probe, time in zip(latest, times, strict=True)
        ]

    def _line(self, probe: Row, width: int, columns: tuple[int, int, int], time: str) -> Content:
        g = self.glyphs
        mark = (
            g.running
            if probe.state == "running"
            else g.dot
            if probe.state == "done"
            else getattr(g, probe.state)
        )
        wanted, said, detail = columns
        head, verdict = f"{probe.number:>3} ", f"{mark} {WORDS[probe.state]:<{said}}  "
        room = max(4, width - cell_len(head) - cell_len(verdict) - cell_len(time))
        what = min(room, wanted, max(room - detail, room // 2))
        return row([
            (head, "$quiet"),
            (fit(probe.what, what - 1, g.ellipsis) + " ", ""),
            (verdict, STYLES[probe.state]),
            (fit(probe.detail, room - what, g.ellipsis), "$quiet"),
            (time, "$quiet"),
        ])  # fmt: skip


class Model(Lines[tuple[Strip, tuple[int, ...]]]):
    """The model as a strip of cells, and the last decisions in words."""

    most = 2  # decisions

    def show(self, hunt: Hunt) -> bool:
        """What is known of each node, and the part that is tried; whether there is any of it."""
        self.tell((hunt.strip, hunt.trying))
        return bool(hunt.strip.said or (hunt.trying and hunt.strip.whole))

    def rows(self, told: tuple[Strip, tuple[int, ...]], width: int) -> list[Content]:
        model, trying = told
        rows = paint(pictures.strip(model, trying, width, self.glyphs))
        for said in model.said[: -self.most - 1 : -1]:
            rows += wrap(said, width)[:2]
        return rows


class Tail(Lines[tuple[str, ...]]):
    """The last lines of a log; wrapped nowhere, cut at the edge."""

    most = 5

    def show(self, lines: Sequence[str]) -> None:
        """New last lines."""
        self.tell(tuple(lines[-self.most :]))

    def rows(self, told: tuple[str, ...], width: int) -> list[Content]:
        return [row([(set_cell_size(clean(line), width).rstrip(), "$quiet")]) for line in told] or [
            row([("nothing yet", "$quiet")])
        ]
