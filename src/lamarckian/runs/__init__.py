"""Runs on disk: the folder, its journal and its checkpoints."""

from lamarckian.runs.checkpoint import Checkpoint, CheckpointInfo, Keep
from lamarckian.runs.folder import Run, is_run
from lamarckian.runs.journal import Entry, Journal

__all__ = ["Checkpoint", "CheckpointInfo", "Entry", "Journal", "Keep", "Run", "is_run"]
