"""What a host runs to get weights: a relay that fills the host's slot, or a subscriber in a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import numpy as np

from lamarckian.distributed.layout import Arrays
from lamarckian.distributed.relay import Relay
from lamarckian.distributed.slot import SlotHolder
from lamarckian.distributed.ticket import Ticket
from lamarckian.errors import WorkerError


def relay_endpoint(address: str | None, folder: Path) -> str:
    """Return where a relay listens: a port of ``address``, or a socket file in ``folder``."""
    if address is None:
        return f"ipc://{folder}/relay"
    return f"tcp://[{address}]:*" if ":" in address else f"tcp://{address}:*"


class HostRelay:
    """One per host: fetches every version once and puts it where the host's actors read it.

    ``address`` is this node's own (None in local mode); ``folder`` is a private folder of this
    host, whose path the actors need for :class:`~lamarckian.distributed.slot.SlotWeights`.
    """

    def __init__(self, ticket: Ticket, address: str | None, folder: Path) -> None:
        self.slot = SlotHolder(folder)
        self.relay = Relay(ticket, relay_endpoint(address, folder), self.slot.publish)

    def run(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Work until the learner says stop; see :meth:`Relay.run`. Closes everything at the end."""
        try:
            self.relay.run(should_stop)
        finally:
            self.close()

    def close(self) -> None:
        """Close sockets and slot. Idempotent."""
        self.relay.close()
        self.slot.close()


class WeightsSubscriber:
    """Weights for one process that shares no slot with others: a relay in a thread.

    It takes part in the tree as a host does. ``weights`` is to be called from one thread.
    """

    def __init__(self, ticket: Ticket, address: str | None, folder: Path) -> None:
        self._changed = threading.Condition()
        self._newest: tuple[int, Arrays] | None = None
        self._version = -1
        self._closing = False
        self._failure: BaseException | None = None
        self.relay = Relay(ticket, relay_endpoint(address, folder), self._take)
        self._thread = threading.Thread(target=self._run, name="subscriber", daemon=True)
        self._thread.start()

    def weights(self, timeout: float = 0.0) -> tuple[int, Arrays] | None:
        """Return ``(version, arrays)`` if newer than those returned last, else None.

        Waits up to ``timeout`` seconds for them; the arrays are the caller's own. Raises
        WorkerError if the thread has failed or the learner is gone.
        """
        give_up = time.monotonic() + timeout
        with self._changed:
            while True:
                if self._newest is not None and self._newest[0] > self._version:
                    self._version, arrays = self._newest
                    return self._version, {name: np.array(a) for name, a in arrays.items()}
                if self._failure is not None:
                    raise WorkerError(f"weights: {self._failure}") from self._failure
                left = give_up - time.monotonic()
                if left <= 0:
                    return None
                self._changed.wait(left)

    @property
    def stopped(self) -> bool:
        """Whether the learner said stop."""
        return self.relay.stopped

    def close(self) -> None:
        """End the thread and close its sockets. Idempotent."""
        self._closing = True
        self._thread.join(10.0)

    def __enter__(self) -> WeightsSubscriber:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self) -> None:
        try:
            self.relay.run(lambda: self._closing)
        except BaseException as error:
            self._failure = error
        finally:
            self.relay.close()
            with self._changed:
                self._changed.notify_all()

    def _take(self, version: int, arrays: Arrays) -> None:
        with self._changed:
            self._newest = version, arrays
            self._changed.notify_all()
