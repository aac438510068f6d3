"""Traces that travel: the run at hand saved as one file, and a file from elsewhere opened without a model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from app.lanes import LaneRun
from app.marks import shortened
from recap_engine.trace import RequestTrace, TraceError

SAVED_AS = "recap-trace.json.gz"


@dataclass(frozen=True)
class Opened:
    """A trace that came from a file."""

    trace: RequestTrace
    file: str  # the file's name, for the visitor

    @property
    def words(self) -> str:
        """What was opened, in one or two sentences."""
        trace = self.trace
        machine = ", ".join(str(trace.machine[key]) for key in ("device", "dtype") if key in trace.machine)
        asked = f"“{shortened(trace.question, 120)}”"
        picture = " The picture itself is not part of a trace." if trace.image_sha else ""
        return (
            f"Opened {shortened(self.file, 60)}: {asked}, answered by {shortened(trace.model, 60)}"
            f"{f' on {shortened(machine, 60)}' if machine else ''}, {trace.created[:10]}.{picture}"
        )


def open_file(path: str | Path) -> Opened:
    """Read a trace file. Raises TraceError, whose message is for the visitor."""
    trace = RequestTrace.load(path)
    if not trace.lanes:
        raise TraceError("This trace has no lanes to show.")
    return Opened(trace, Path(path).name)


def runs_of(trace: RequestTrace) -> dict[str, LaneRun]:
    """The lanes of a trace as the cards show them, all at their end."""
    return {
        name: LaneRun(
            name,
            state="stopped" if lane.stopped == "cancelled" else "done",
            text=lane.text,
            n_tokens=lane.n_tokens,
            n_steps=lane.n_steps,
            elapsed_s=lane.decode_s,
            prefill_s=lane.prefill_s,
            trace=lane,
        )
        for name, lane in trace.lanes.items()
    }


def save(trace: RequestTrace, folder: Path) -> tuple[Path, str]:
    """Write the trace compressed into `folder`; the file, and the label of the button that offers it."""
    path = folder / SAVED_AS
    trace.save(path)
    return path, f"Save the trace ({path.stat().st_size / 1024:,.0f} kB)"
