"""The run: a folder one can stop, resume and watch.

::

    runs/pong-1/
      config.yaml        resolved settings
      journal.jsonl      what happened (lamarckian.runs.journal)
      journal.lock       held by the process that writes
      blobs/             arrays by hash
      checkpoints/       manifests (lamarckian.runs.checkpoint)
      individuals/       one file for each candidate of an evolution
"""

from __future__ import annotations

import logging
import os
import platform
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeVar

import msgspec
from numpy.typing import NDArray

from lamarckian import config as settings
from lamarckian.errors import CheckpointError, RunError
from lamarckian.runs import checkpoint as checkpoints
from lamarckian.runs import events, journal
from lamarckian.runs.checkpoint import Checkpoint, CheckpointInfo, Keep
from lamarckian.runs.durable import write_file
from lamarckian.runs.journal import Entry, Journal
from lamarckian.runs.locking import holder
from lamarckian.version import __version__

CONFIG_NAME = "config.yaml"
DEFAULT_ROOT = "runs"
_Record = TypeVar("_Record", bound=msgspec.Struct)
_log = logging.getLogger("lamarckian.runs")


class Run:
    """One run folder. Made by :meth:`create`, :meth:`resume` (both write) or :meth:`open` (reads).

    A writing run owns the folder's lock until :meth:`close` or the end of the process. All methods
    may be called from any thread of that process.
    """

    def __init__(self, path: Path, writer: Journal | None, keep: Keep | None) -> None:
        self.path = path
        self.keep = keep or Keep()
        self._writer = writer

    @classmethod
    def create(
        cls,
        path: str | Path | None,
        name: str,
        config: msgspec.Struct | Mapping[str, Any] | None = None,
        *,
        kind: str = "train",
        seed: int | None = None,
        command: Sequence[str] = (),
        keep: Keep | None = None,
    ) -> Run:
        """Make a new run folder, by default ``runs/<name>-<n>`` with the next free ``n``.

        Everything a run will need is tried here: the folder is made, written to and locked. Raises
        RunError with the path if that fails or if the folder already holds something.
        """
        target = _next_free(name) if path is None else Path(path).expanduser()
        try:
            target.mkdir(parents=True, exist_ok=True)
            if is_run(target):
                raise RunError(
                    f"{target}: there is a run here already; continue it with "
                    f"'lamarckian resume {_quoted(target)}' or choose another folder"
                )
            if any(target.iterdir()):
                raise RunError(f"{target}: the folder is not empty and holds no run")
            for folder in (checkpoints.BLOBS, checkpoints.MANIFESTS, "individuals"):
                (target / folder).mkdir()
            data = {} if config is None else msgspec.to_builtins(config)
            write_file(target / CONFIG_NAME, settings.dump_yaml(data).encode())
        except OSError as error:
            raise RunError(
                f"{target}: cannot make the run folder here: {error.strerror}; "
                "choose a writable one with --run"
            ) from None
        run = cls(target, Journal(target), keep)
        run.journal.append(
            events.RunStarted(
                name=name,
                version=__version__,
                kind=kind,
                seed=seed,
                command=list(command),
                machine=_machine(),
            )
        )
        run.journal.append(events.Config(settings=data))
        return run

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """Open a run for reading, also while another process writes it. Raises RunError."""
        target = Path(path).expanduser()
        if not target.exists():
            raise RunError(f"{target}: there is no such run folder{_others(target)}")
        if not is_run(target):
            raise RunError(f"{target}: this folder holds no run (no {journal.FILE_NAME} in it)")
        return cls(target, None, None)

    @classmethod
    def resume(cls, path: str | Path, keep: Keep | None = None) -> Run:
        """Open a run for writing: takes the lock, mends a torn journal, sweeps half-made files.

        Then call :meth:`load` and :meth:`go_back`. Raises RunError, naming the pid of a process
        that is still writing.
        """
        run = cls.open(path)
        writing = cls(run.path, Journal(run.path), keep)
        checkpoints.collect_garbage(run.path)
        return writing

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.path.resolve().name

    @property
    def journal(self) -> Journal:
        """The writer of the journal; RunError if this run was opened for reading."""
        if self._writer is None:
            raise RunError(f"{self.path}: this run is open for reading only")
        return self._writer

    @property
    def individuals(self) -> Path:
        """The folder of the candidates of an evolution."""
        return self.path / "individuals"

    @property
    def writer_pid(self) -> int | None:
        """The pid of the process that writes this run now, or None."""
        if self._writer is not None:
            return os.getpid()
        return holder(self.path / journal.LOCK_NAME)

    def settings(self) -> dict[str, Any]:
        """Return the resolved settings as plain data. Raises ConfigError if they cannot be read."""
        file = self.path / CONFIG_NAME
        try:
            return dict(settings.parse_yaml(file.read_text(encoding="utf-8")) or {})
        except OSError as error:
            raise RunError(f"{file}: cannot read the settings: {error.strerror}") from None

    def load_config(self, kind: type[_Record]) -> _Record:
        """Return the resolved settings as a record of type ``kind``. Raises ConfigError."""
        return settings.load_yaml(self.path / CONFIG_NAME, kind)

    def change_config(self, config: msgspec.Struct | Mapping[str, Any]) -> None:
        """Replace the resolved settings (a resume with other ones) and record it."""
        data = msgspec.to_builtins(config)
        write_file(self.path / CONFIG_NAME, settings.dump_yaml(data).encode())
        self.journal.append(events.Config(settings=data))

    def save(
        self,
        step: int,
        state: Mapping[str, Any],
        arrays: Mapping[str, NDArray[Any]],
        score: float | None = None,
    ) -> CheckpointInfo | None:
        """Write a checkpoint and record it; return None if it could not be written.

        A full disk is recorded and warned about, and training goes on with the earlier checkpoint.
        Arrays are named ``part/name``; see :func:`lamarckian.runs.checkpoint.save`.
        """
        try:
            info = checkpoints.save(
                self.path,
                step,
                state,
                arrays,
                score=score,
                sequence=self.journal.sequence + 1,
                keep=self.keep,
            )
        except CheckpointError as error:
            if not isinstance(error.__cause__, OSError):
                raise  # the state itself cannot be stored: a mistake that waiting will not mend
            _log.warning("%s", error)
            self.journal.append(events.CheckpointFailed(step=step, reason=str(error)))
            return None
        self.journal.append(
            events.Checkpoint(step=step, score=info.score, bytes=info.bytes, seconds=info.seconds)
        )
        return info

    def rehearse(self, state: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Save and load the first state once, before the first step; keeps it as step 0.

        Raises CheckpointError naming what cannot be stored or does not come back equal.
        """
        info = checkpoints.rehearse(self.path, state, arrays)
        self.journal.append(
            events.Checkpoint(step=0, score=None, bytes=info.bytes, seconds=info.seconds)
        )

    def load(
        self,
        which: int | Literal["last", "best"] = "last",
        *,
        require: Iterable[str] = (),
        parts: Sequence[str] | None = None,
    ) -> Checkpoint:
        """Read a checkpoint; see :func:`lamarckian.runs.checkpoint.load`. Warns of damage."""
        loaded = checkpoints.load(self.path, which, require=require, parts=parts)
        for reason in loaded.warnings:
            _log.warning("%s; using the checkpoint of step %d", reason, loaded.info.step)
            if self._writer is not None:
                self._writer.append(events.CheckpointDamaged(step=loaded.info.step, reason=reason))
        return loaded

    def go_back(self, info: CheckpointInfo) -> int:
        """Record that the run continues from that checkpoint; later events no longer count."""
        return self.journal.resume(info.sequence, info.step)

    def checkpoints(self) -> list[CheckpointInfo]:
        """Return the checkpoints on disk, the oldest first."""
        return checkpoints.available(self.path)

    def replay(self) -> list[Entry]:
        """Return the events that count; see :func:`lamarckian.runs.journal.replay`."""
        return journal.replay(self.path)

    def close(self) -> None:
        """Close the journal and give the lock back. Idempotent."""
        if self._writer is not None:
            self._writer.close()

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def is_run(path: Path) -> bool:
    """Return whether the folder at ``path`` holds a run."""
    return (path / journal.FILE_NAME).is_file()


def _next_free(name: str) -> Path:
    stem = re.sub(r"[^\w.-]+", "-", name).strip("-.") or "run"
    root = Path(DEFAULT_ROOT)
    pattern = re.compile(re.escape(stem) + r"-([0-9]+)\Z")
    try:
        root.mkdir(exist_ok=True)
        taken = [int(m[1]) for entry in root.iterdir() if (m := pattern.match(entry.name))]
        number = max(taken, default=0) + 1
        while True:
            try:
                (root / f"{stem}-{number}").mkdir()
            except FileExistsError:
                number += 1  # another process took it between the look and the mkdir
            else:
                return root / f"{stem}-{number}"
    except OSError as error:
        raise RunError(
            f"{root.resolve()}: cannot make a run folder here: {error.strerror}; "
            "choose a writable one with --run"
        ) from None


def _others(target: Path) -> str:
    parent = target.parent
    if not parent.is_dir():
        return ""
    names = sorted(entry.name for entry in parent.iterdir() if is_run(entry))
    return f"; runs in {parent}: {', '.join(names[:10])}" if names else ""


def _quoted(path: Path) -> str:
    text = str(path)
    return f'"{text}"' if re.search(r"\s", text) else text


def _machine() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count() or 1,
        "executable": sys.executable,
    }
