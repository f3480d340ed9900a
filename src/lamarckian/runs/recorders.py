"""Recorders: where the events of a run go besides the journal.

Local files come first and are always written; services are opt-in. A recorder that fails (network
down, disk full, service in error) is switched off with one warning, and training goes on.
"""

from __future__ import annotations

import importlib
import logging
import math
import netrc
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from lamarckian.errors import MissingDependency
from lamarckian.metrics import JsonValue, Recorder
from lamarckian.runs.journal import Journal

_log = logging.getLogger("lamarckian.runs")
_COUNTS = ("iteration", "decisions", "samples", "generation", "evaluations", "score")
_WANDB_HOST = "api.wandb.ai"
_WANDB_PATIENCE = 20  # seconds to wait for the service before going on without it


class JournalRecorder:
    """Writes events to the run's journal, which has the last word on what they may hold."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def record(self, event: str, fields: Mapping[str, JsonValue]) -> None:
        """Append the event. Raises TypeError for an event or field the journal does not know."""
        self._journal.record(event, fields)

    def close(self) -> None:
        """Make what was written durable; the journal itself belongs to the run."""
        self._journal.sync()


class MultiRecorder:
    """Hands each event to several recorders; one that raises is left out from then on.

    A :class:`JournalRecorder` among them is the exception: what it raises is passed on, because
    without a journal there is no run.
    """

    def __init__(self, recorders: Sequence[Recorder]) -> None:
        self._recorders = list(recorders)

    def record(self, event: str, fields: Mapping[str, JsonValue]) -> None:
        """Pass the event on."""
        for recorder in list(self._recorders):
            try:
                recorder.record(event, fields)
            except Exception as error:
                if isinstance(recorder, JournalRecorder):
                    raise
                self._recorders.remove(recorder)
                _log.warning(
                    "%s failed and is switched off; training goes on: %s",
                    type(recorder).__name__,
                    error,
                )

    def close(self) -> None:
        """Close all of them, whatever one of them does."""
        for recorder in self._recorders:
            try:
                recorder.close()
            except Exception as error:
                _log.warning("%s could not be closed: %s", type(recorder).__name__, error)
        self._recorders.clear()


class TensorBoardRecorder:
    """Writes the numbers as TensorBoard curves over frames, into ``folder``.

    On a resume pass the frames it resumes from: TensorBoard then hides what came after. Raises
    MissingDependency if tensorboard is not installed.
    """

    def __init__(self, folder: Path, *, resumed_at: int | None = None) -> None:
        _require("tensorboard", "TensorBoard curves", "tensorboard")
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(folder), purge_step=resumed_at)

    def record(self, event: str, fields: Mapping[str, JsonValue]) -> None:
        """Write the numbers of the event."""
        if self._writer is None:
            return
        frames = fields.get("frames")
        try:
            for name, value in scalars(event, fields):
                self._writer.add_scalar(name, value, frames if isinstance(frames, int) else None)
        except Exception as error:
            _log.warning("TensorBoard is switched off; training goes on: %s", error)
            self._writer = None

    def close(self) -> None:
        """Flush and close. Idempotent."""
        writer, self._writer = self._writer, None
        if writer is not None:
            try:
                writer.close()
            except Exception as error:
                _log.warning("TensorBoard could not be closed: %s", error)


class WandbRecorder:
    """Sends the numbers to Weights & Biases, or keeps them for ``wandb sync``.

    Without a login (``WANDB_API_KEY`` or a netrc entry) and without ``WANDB_MODE`` it works
    offline, into ``folder``: no question is asked and no network is touched. If the service does
    not answer it falls back to offline; if that fails too it is switched off. Raises
    MissingDependency if wandb is not installed.
    """

    def __init__(
        self,
        folder: Path,
        *,
        name: str,
        project: str = "lamarckian",
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        wandb = _require("wandb", "Weights & Biases", "wandb")
        self.mode = os.environ.get("WANDB_MODE") or ("online" if _logged_in() else "offline")
        self._run: Any = None
        for mode in dict.fromkeys((self.mode, "offline")):
            try:
                self._run = wandb.init(
                    project=project,
                    name=name,
                    dir=str(folder),
                    mode=mode,
                    config=dict(settings or {}),
                    settings=wandb.Settings(init_timeout=_WANDB_PATIENCE, silent=True),
                )
                self._run.define_metric("*", step_metric="frames")
            except Exception as error:
                _log.warning("Weights & Biases (%s) failed: %s", mode, error)
                self._run = None
                continue
            self.mode = mode
            break
        else:
            _log.warning("Weights & Biases is switched off; training goes on")

    def record(self, event: str, fields: Mapping[str, JsonValue]) -> None:
        """Log the numbers of the event, over frames."""
        if self._run is None:
            return
        numbers: dict[str, Any] = dict(scalars(event, fields))
        if not numbers:
            return
        if isinstance(fields.get("frames"), int):
            numbers["frames"] = fields["frames"]
        try:
            self._run.log(numbers)
        except Exception as error:
            _log.warning("Weights & Biases is switched off; training goes on: %s", error)
            self._run = None

    def close(self) -> None:
        """Finish the run there. Idempotent."""
        run, self._run = self._run, None
        if run is not None:
            try:
                run.finish()
            except Exception as error:
                _log.warning("Weights & Biases could not be closed: %s", error)


def scalars(event: str, fields: Mapping[str, JsonValue]) -> Iterator[tuple[str, float]]:
    """Yield ``(event/name, value)`` for each finite number of an event."""
    group = {"update": "train", "episode_batch": "episodes"}.get(event, event)
    role = fields.get("role")
    suffix = f"/{role}" if isinstance(role, str) and role else ""
    for name in _COUNTS:
        value = fields.get(name)
        if isinstance(value, (int, float)) and math.isfinite(value):
            yield f"{group}/{name}{suffix}", float(value)
    metrics = fields.get("metrics")
    if isinstance(metrics, Mapping):
        for name, value in metrics.items():
            if isinstance(value, (int, float)) and math.isfinite(value):
                yield f"{group}/{name}{suffix}", float(value)


def _require(module: str, purpose: str, extra: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingDependency(
            f"{purpose}: the package '{module}' is needed ({error}); "
            f"install it with: pip install 'lamarckian[{extra}]'"
        ) from None


def _logged_in() -> bool:
    if os.environ.get("WANDB_API_KEY"):
        return True
    try:
        file = os.environ.get("NETRC") or str(Path.home() / ".netrc")
        return netrc.netrc(file).authenticators(_WANDB_HOST) is not None
    except (OSError, RuntimeError, netrc.NetrcParseError):
        return False
