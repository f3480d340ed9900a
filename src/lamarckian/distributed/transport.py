"""The learner's end of everything that travels between hosts, and how members take part.

::

    with Hub("10.0.0.1") as hub:                    # None instead: this host only, socket files
        ticket = hub.admit_actor(0)                 # plain data; hand it to the actor
        relay = hub.admit_host("node-1")            # one for each host
        ...
        hub.publish(version, arrays)                # as a local worker group does
        received = hub.receive(timeout=1.0)
        hub.revoke(ticket.member)                   # when the actor is dead

    HostRelay(relay, "10.0.0.2", folder).run()      # on each host, in a process of its own

    with GatherSender(ticket) as sender:            # in the actor, on any host
        slot = SlotWeights(folder)                  # the folder of its host's relay
        newer = slot.weights(timeout=1.0)           # None, or (version, arrays)
        sender.send(arrays, header)

Local mode opens no port: sockets are files in a folder of mode 0700. With an address, every socket
is bound to that address and uses CURVE with keys made for this run; who is not admitted, or has
been revoked, is not heard.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from lamarckian.distributed import wire
from lamarckian.distributed.broadcast import WeightsPublisher
from lamarckian.distributed.gather import GatherReceiver, SenderStats
from lamarckian.distributed.group import Received
from lamarckian.distributed.layout import Array
from lamarckian.distributed.roster import HostStatus
from lamarckian.distributed.security import KeyPair, private_folder
from lamarckian.distributed.sockets import Sockets
from lamarckian.distributed.ticket import Ticket, TransportOptions


class Hub:
    """Where trajectories arrive and weights leave; made by the learner's process, one per run.

    ``declared`` says which arrays a fragment must hold (default: any that may travel). Use it from
    one thread; it owns its sockets, threads and folder until :meth:`close`.
    """

    def __init__(
        self,
        address: str | None = None,
        options: TransportOptions | None = None,
        declared: wire.Declared | None = None,
    ) -> None:
        self.options = options or TransportOptions()
        self.run = wire.new_run_id()
        keys = None if address is None else KeyPair.make()
        self._server_key = keys.public if keys else ""
        self._folder: Path | None = private_folder() if address is None else None
        self._address = f"[{address}]" if address and ":" in address else address
        self._sockets = Sockets(keys)
        self._weights: WeightsPublisher | None = None
        declared = declared or wire.Declared(max_bytes=self.options.max_fragment_bytes)
        try:
            self._gather = GatherReceiver(
                self._sockets, self._endpoint("gather"), self.run, declared
            )
            self._weights = WeightsPublisher(
                self._sockets, self._endpoint("weights"), self.run, self.options
            )
        except BaseException:
            self.close()
            raise

    @property
    def is_local(self) -> bool:
        """Whether only processes of this host can take part."""
        return self._folder is not None

    def admit_actor(self, worker: int) -> Ticket:
        """Return a ticket for an actor; one that was given out before for it is void from now on
        (cluster mode).
        """
        ticket = self._admit(f"actor-{worker}", worker)
        self._gather.expect(worker, ticket.member)
        return ticket

    def admit_host(self, name: str) -> Ticket:
        """Return a ticket for the relay of one host; an earlier one for it is void from now on."""
        return self._admit(f"host-{name}", -1)

    def revoke(self, member: str) -> None:
        """Hear ``member`` no more: it is dead, or should be. The name is that of its ticket."""
        self._sockets.gatekeeper.revoke(member)
        self.publisher.revoke(member)
        if member.startswith("actor-"):
            self._gather.forget(int(member.removeprefix("actor-")))

    def receive(self, timeout: float | None = None) -> Received | None:
        """Return the next fragment of any actor; None after ``timeout`` seconds without one."""
        return self._gather.receive(timeout)

    @property
    def publisher(self) -> WeightsPublisher:
        """The root of the broadcast tree."""
        assert self._weights is not None
        return self._weights

    def publish(self, version: int, arrays: Mapping[str, Array]) -> None:
        """Make ``arrays`` the newest weights of all hosts; they are copied, nobody is waited for.

        Raises ConfigError if the version does not grow.
        """
        self.publisher.publish(version, arrays)

    def hosts(self) -> list[HostStatus]:
        """Return the hosts alive, each with the newest version it has whole."""
        return self.publisher.hosts()

    def stop(self) -> None:
        """Tell every member to finish."""
        self._gather.stop()
        self.publisher.stop()

    def stats(self) -> list[SenderStats]:
        """Return what has come from each actor, and what got lost."""
        return self._gather.stats()

    @property
    def num_rejected(self) -> int:
        """Messages that did not pass the checks."""
        return self._gather.num_rejected + self.publisher.num_rejected

    @property
    def num_refused(self) -> int:
        """Connections turned away at the door."""
        return self._sockets.gatekeeper.num_refused

    def close(self) -> None:
        """Close every socket, end every thread, remove the folder. Idempotent."""
        if self._weights is not None:
            self._weights.close()
        self._sockets.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Hub:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _endpoint(self, name: str) -> str:
        return f"ipc://{self._folder}/{name}" if self._folder else f"tcp://{self._address}:*"

    def _admit(self, member: str, worker: int) -> Ticket:
        keys = None if self.is_local else KeyPair.make()
        if keys is not None:
            self._sockets.gatekeeper.admit(member, keys.public)
        return Ticket(
            run=self.run.hex(),
            member=member,
            worker=worker,
            gather=self._gather.endpoint,
            weights=self.publisher.endpoint,
            server_key=self._server_key,
            keys=keys,
            options=self.options,
        )
