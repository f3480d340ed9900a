"""Every error a user can meet, drawn once.

``LamarckianError`` is the root. The exit code of the command line is a property of the error class:
2 for what the user can mend (a wrong name, a wrong value, a broken game), 1 for what the platform
or the machine did. A message names the thing, says what was expected, what came, and what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class LamarckianError(Exception):
    """Root of all errors raised on purpose by Lamarckian."""

    exit_code = 1


class ConfigError(LamarckianError):
    """A setting is unknown, has the wrong type, is out of range, or has no effect here."""

    exit_code = 2


class UnknownName(LamarckianError):
    """A game, algorithm, problem, search or run was asked for by a name nobody has."""

    exit_code = 2


class UnsupportedSpace(LamarckianError):
    """An observation or action space is outside what this algorithm can learn on."""

    exit_code = 2


class MissingDependency(LamarckianError):
    """An optional package is needed; the message holds the exact install command."""

    exit_code = 2


class GameError(LamarckianError):
    """A game raised, hung, or returned data that contradict its declared roles.

    The message names the actor, episode, tick, player and key, as far as they are known.
    """

    exit_code = 2


class EvaluatorError(LamarckianError):
    """An evaluator returned data that contradict the encoding it describes."""

    exit_code = 2


class RunError(LamarckianError):
    """A run folder cannot be used: missing, locked, unwritable, or of another schema."""

    exit_code = 2


class CheckpointError(LamarckianError):
    """A checkpoint is damaged or does not fit the policy it is loaded into."""

    exit_code = 2


class NumericsError(LamarckianError):
    """Training met non-finite numbers more often than the guard allows."""


class WorkerError(LamarckianError):
    """A worker process failed; the message holds its own traceback or the signal that ended it.

    ``worker`` is its number (-1: none in particular), ``kind`` one of ``exception``, ``exit``,
    ``signal``,
    ``hung``, ``transport``; ``traceback_text`` is the worker's own traceback and ``context`` what
    it last said it was doing. ``exit_code`` is 2 if the worker's exception was one the user can
    mend.
    """

    def __init__(
        self,
        message: str,
        *,
        worker: int = -1,
        kind: str = "transport",
        traceback_text: str = "",
        context: dict[str, object] | None = None,
        exit_code: int = 1,
    ) -> None:
        super().__init__(message)
        self.worker = worker
        self.kind = kind
        self.traceback_text = traceback_text
        self.context = context or {}
        self.exit_code = exit_code


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the closest known name, or an empty string."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean '{close[0]}'?" if close else ""
