"""Which hosts are alive, in which order, and what each of them has: pure bookkeeping."""

from __future__ import annotations

from dataclasses import dataclass

from lamarckian.distributed import tree, wire


@dataclass(slots=True)
class HostStatus:
    """One host as the learner sees it. ``version`` is the newest it has whole (-1: none)."""

    seat: wire.Seat
    route: bytes
    heard: float
    version: int = -1
    parent: str = ""
    epoch: int = 0
    told_at: float = -1.0


class Roster:
    """The hosts alive; ``epoch`` grows whenever the order, and with it the tree, changes."""

    def __init__(self, topology: str, silent_after: float) -> None:
        self.epoch = 0
        self.changed = False
        self._topology = topology
        self._silent_after = silent_after
        self._hosts: dict[str, HostStatus] = {}
        self._order: list[str] = []

    @property
    def hosts(self) -> list[HostStatus]:
        """The hosts in the order of the tree."""
        return [self._hosts[name] for name in self._order]

    def heard(self, route: bytes, join: wire.Join, now: float) -> HostStatus:
        """Take in a host's sign of life; a new one takes the last place."""
        name = join.seat.name
        host = self._hosts.get(name)
        if host is None:
            host = self._hosts[name] = HostStatus(join.seat, route, now)
            self._order.append(name)
            self.changed = True
        elif host.seat != join.seat:  # restarted: reached elsewhere
            host.seat = join.seat
            self.changed = True
        host.route, host.heard = route, now
        host.version, host.parent, host.epoch = join.version, join.parent, join.epoch
        return host

    def drop_silent(self, now: float) -> list[str]:
        """Strike off and return the hosts not heard of for too long."""
        gone = [n for n, host in self._hosts.items() if now - host.heard > self._silent_after]
        self.remove(gone)
        return gone

    def remove(self, names: list[str]) -> None:
        """Strike off ``names``; the last hosts take their places."""
        gone = [name for name in names if name in self._hosts]
        if gone:
            self._order = tree.without(self._order, gone)
            for name in gone:
                del self._hosts[name]
            self.changed = True

    def next_table(self) -> wire.Table:
        """Begin a new epoch and return its table."""
        self.epoch += 1
        self.changed = False
        return self.table()

    def table(self) -> wire.Table:
        """Return the table of this epoch."""
        seats = tuple(host.seat for host in self.hosts)
        return wire.Table(epoch=self.epoch, topology=self._topology, seats=seats)
