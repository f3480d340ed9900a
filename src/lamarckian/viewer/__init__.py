"""What a run looks like: the report in one file."""

from lamarckian.viewer.replay import Replay
from lamarckian.viewer.report import WrittenReport, write_report

__all__ = ["Replay", "WrittenReport", "write_report"]
