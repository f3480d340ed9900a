"""Where workers run: in the caller's process or in processes of this machine.

A placement starts the same entry points with the same configurations; what differs is speed and
safety.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Protocol

from lamarckian.distributed.group import Group, Report, WorkerOptions
from lamarckian.distributed.inprocess import InProcessGroup
from lamarckian.distributed.workers import WorkerGroup
from lamarckian.errors import UnknownName, nearest

_log = logging.getLogger("lamarckian.distributed")


class Placement(Protocol):
    """A place for workers."""

    name: str

    def start(self, entry: str, configs: Sequence[Any], report: Report | None = None) -> Group:
        """Start one worker per configuration and return when all are constructed.

        ``entry`` is ``"module:function"``, a generator function of ``(config, channel)``;
        ``report`` is called with lines for the user (the thread plan, restarts, logs of workers).
        Raises ConfigError for demands this machine cannot meet or configurations that are not plain
        data, WorkerError if a worker fails during its construction.
        """
        ...


class InProcess:
    """Workers take turns in the caller's process; for tests, debugging and tiny jobs."""

    name = "inprocess"

    def start(self, entry: str, configs: Sequence[Any], report: Report | None = None) -> Group:
        return InProcessGroup(entry, configs, report or _log.warning)


class Processes:
    """Workers are processes of this machine, one thread each; the default."""

    name = "processes"

    def __init__(self, options: WorkerOptions | None = None) -> None:
        self.options = options or WorkerOptions()

    def start(self, entry: str, configs: Sequence[Any], report: Report | None = None) -> Group:
        return WorkerGroup(entry, configs, self.options, report or _log.warning)


def placement(name: str, options: WorkerOptions | None = None) -> Placement:
    """Return the placement called ``inprocess`` or ``processes``. Raises UnknownName."""
    if name == InProcess.name:
        return InProcess()
    if name == Processes.name:
        return Processes(options)
    known = (InProcess.name, Processes.name)
    raise UnknownName(
        f"placement {name!r}: expected one of {', '.join(known)}{nearest(name, known)}"
    )
