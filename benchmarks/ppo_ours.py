"""The side of Lamarckian in ``ppo_throughput.py``: a real ``train``, journal and all.

Training is held up between two iterations while nobody measures; see ``ppo_sides.py`` for the protocol.
"""

from __future__ import annotations

import json
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lamarckian import config
from lamarckian.runs.training import TrainingRun, train

WARM_UP = 2


class Gate:
    """A recorder that hears every iteration and waits for the next order where one is finished."""

    def __init__(self) -> None:
        self._left = WARM_UP
        self._target = 0
        self._at = 0
        self._began = 0.0
        self._ready = False

    def record(self, event: str, fields: Mapping[str, Any]) -> None:
        if event != "update":
            return
        now, samples = time.perf_counter(), int(fields["samples"])
        self._left -= 1
        if not self._ready:
            if self._left > 0:
                return
            self._ready = True
            print(json.dumps({"ready": True}), flush=True)
        elif samples - self._at < self._target:
            return
        else:
            answer = {"samples": samples - self._at, "seconds": now - self._began}
            print(json.dumps(answer), flush=True)
        line = sys.stdin.readline()
        if not line:
            signal.raise_signal(signal.SIGTERM)
            return
        self._target = int(line.split()[1])
        self._at, self._began = samples, time.perf_counter()

    def close(self) -> None:
        """Nothing is held back."""


def main() -> None:
    settings: dict[str, Any] = json.loads(sys.argv[1])
    run = config.build(
        TrainingRun,
        {"frames": 10**12, "checkpoint_every": 0, **settings},
    )
    with tempfile.TemporaryDirectory() as folder:
        train(run, Path(folder) / "run", recorders=lambda _: [Gate()])


if __name__ == "__main__":
    main()
