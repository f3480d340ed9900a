"""Who hears the events of a run: its journal first, then whatever else is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from lamarckian.metrics import Recorder
from lamarckian.runs.folder import Run
from lamarckian.runs.recorders import JournalRecorder, MultiRecorder

MakeRecorders = Callable[[Run], Sequence[Recorder]]
"""Builds what hears the run's events besides its journal."""


@contextmanager
def recording(run: Run, make: MakeRecorders | None) -> Iterator[Recorder]:
    """Yield the recorder of a run; all are closed at the end."""
    others = make(run) if make is not None else []
    recorder = MultiRecorder([JournalRecorder(run.journal), *others])
    try:
        yield recorder
    finally:
        recorder.close()
