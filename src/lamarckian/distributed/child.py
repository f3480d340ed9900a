"""The main function of a worker process; imported by nothing but the boot line of
``process.spawn``.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Iterator
from typing import Any

from lamarckian.distributed import messages
from lamarckian.distributed.channel import ProcessChannel, Stopped
from lamarckian.distributed.entries import load_entry, unpack_config
from lamarckian.distributed.memory import SharedBlock
from lamarckian.distributed.status import StatusBoard
from lamarckian.errors import ConfigError, LamarckianError, WorkerError

_PR_SET_PDEATHSIG = 1


def _die_with_parent(parent: int, descriptor: int) -> None:
    """Arrange that this process does not outlive ``parent``, whatever it is doing then."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    else:
        threading.Thread(target=_watch, args=(descriptor,), daemon=True).start()
    # The parent may have died before the line above; then nobody would ever tell us.
    if os.getppid() != parent:
        os._exit(1)


def _watch(descriptor: int) -> None:
    poll = select.poll()
    poll.register(descriptor, 0)  # hang-up is always reported, data never
    poll.poll()
    os._exit(1)


def _receive_start(link: messages.Link) -> tuple[messages.Start, StatusBoard, list[Any]]:
    received: list[Any] = []
    while not received:
        received = link.receive(60.0)
        if link.closed:
            raise Stopped
    (start, descriptors), rest = received[0], received[1:]
    if not isinstance(start, messages.Start):
        raise WorkerError(f"control channel: expected Start, got {type(start).__name__}")
    block = SharedBlock.attach(descriptors[0], start.status_bytes, writable=True)
    return start, StatusBoard(block), rest


def _run(link: messages.Link) -> None:
    start, status, rest = _receive_start(link)
    status.progress()
    channel = ProcessChannel(link, status, start)
    for message, descriptors in rest:
        channel.handle(message, descriptors)
    steps = load_entry(start.entry)(unpack_config(start.config), channel)
    if not isinstance(steps, Iterator):
        raise ConfigError(
            f"entry point {start.entry!r} returned {type(steps).__name__}; it must be a generator "
            "function: it needs a 'yield' at the end of construction and after each fragment"
        )
    try:
        ready = False
        for _ in steps:
            if not ready:
                ready = True
                link.send(messages.Ready())
            channel.progress()
    finally:
        close = getattr(steps, "close", None)
        if close is not None:
            close()
    link.send(messages.Finished())


def main(descriptor: int, crash_file: int, parent: int) -> None:
    """Run one worker over the inherited socket; never returns normally on failure."""
    _die_with_parent(parent, descriptor)
    faulthandler.enable(crash_file, all_threads=True)
    faulthandler.register(signal.SIGUSR1, crash_file, all_threads=True)
    for inherited in (descriptor, crash_file):
        os.set_inheritable(inherited, False)
    link = messages.Link(socket.socket(fileno=descriptor), messages.ToWorker)
    code = 0
    try:
        _run(link)
    except Stopped:
        pass
    except BaseException as error:
        code = 1
        with contextlib.suppress(Exception):
            link.send(failure_of(error))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    link.close()
    sys.exit(code)


def failure_of(error: BaseException) -> messages.Failure:
    """Return the message that describes ``error``: summary, own traceback, exit code."""
    summary = "".join(traceback.format_exception_only(error)).strip()
    text = "".join(traceback.format_exception(error))
    return messages.Failure(
        summary=summary[:4_000],
        traceback=text[-100_000:],
        exit_code=error.exit_code if isinstance(error, LamarckianError) else 1,
    )
