"""A terminal for tests: a program on the other side of a pseudo terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any


class Terminal:
    """Runs ``lamarckian`` with a pseudo terminal as its standard input and output."""

    def __init__(self, *args: str, cwd: Path | None = None, lines: int = 30, columns: int = 80):
        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.before = termios.tcgetattr(self.slave)
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [*sys.path])),
            "TERM": "xterm-256color",
            "OMP_NUM_THREADS": "1",
        }
        for name in ("COLUMNS", "LINES", "NO_COLOR"):
            environment.pop(name, None)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "lamarckian", *args],
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            cwd=cwd,
            env=environment,
            start_new_session=True,
        )
        self.text = ""

    def read(self, seconds: float = 0.05) -> None:
        """Take in what the program wrote."""
        while select.select([self.master], [], [], seconds)[0]:
            self.text += os.read(self.master, 65536).decode(errors="replace")
            seconds = 0.0

    def wait_for(self, words: str, seconds: float = 30.0) -> None:
        """Read until ``words`` were written since the last call."""
        deadline = time.monotonic() + seconds
        while words not in self.text:
            if time.monotonic() > deadline:
                raise AssertionError(f"{words!r} did not appear; the end is {self.text[-2000:]!r}")
            self.read()
        self.text = self.text.partition(words)[2]

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, seconds: float = 20.0) -> int:
        """Return the exit code; the terminal must be as it was before."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < deadline:
            self.read()
        code = self.process.wait(1)
        self.read()
        self.check_restored()
        return code

    def check_restored(self) -> None:
        after: list[Any] = termios.tcgetattr(self.slave)
        assert after == self.before

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)
