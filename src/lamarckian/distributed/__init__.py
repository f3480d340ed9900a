"""Placing work: processes, shared memory, weights down, trajectories up; arrays and bytes only."""

from lamarckian.distributed.channel import Channel, TaskRequest
from lamarckian.distributed.group import Group, Received, WorkerOptions, WorkerStats
from lamarckian.distributed.memory import MemoryProbe, probe
from lamarckian.distributed.placement import InProcess, Placement, Processes, placement
from lamarckian.distributed.tasks import TaskPool, TaskResult

__all__ = [
    "Channel",
    "Group",
    "InProcess",
    "MemoryProbe",
    "Placement",
    "Processes",
    "Received",
    "TaskPool",
    "TaskRequest",
    "TaskResult",
    "WorkerOptions",
    "WorkerStats",
    "placement",
    "probe",
]
