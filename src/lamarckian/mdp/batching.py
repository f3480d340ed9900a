"""Waves: all players who are ready to decide are served by one policy call.

Players are coroutines. A scheduler drives them on one thread: while any can run, it runs; when nobody
else can become ready, the waiting observations form a wave and one batched call answers them all. With
players that wait for the outside world (a socket, a person), a wave also closes on size or time, so a
partial batch never waits for somebody who is gone.

Two kinds of coroutine meet here. Those marked :func:`direct` await nothing but the platform's own
:class:`Gate`; they are stepped by hand, which costs about a tenth of an asyncio task switch. All others
run as ordinary asyncio tasks of the scheduler's own event loop and may use asyncio as they like. A Gate
can be awaited by both.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

from lamarckian.errors import GameError
from lamarckian.mdp.event_loop import finish, in_running_loop
from lamarckian.mdp.garbage import rare_garbage_collection

Function = TypeVar("Function", bound=Callable[..., Any])
Ended = Callable[[BaseException | None], None]


def direct(function: Function) -> Function:
    """Mark an async function that awaits only platform objects, so that it may be stepped by hand."""
    function.direct = True  # type: ignore[attr-defined]
    return function


def is_direct(function: object) -> bool:
    """True if ``function`` was marked with :func:`direct`."""
    return bool(getattr(function, "direct", False))


class Gate:
    """A one-shot event with a value and one waiter; awaitable by hand-stepped coroutines and tasks.

    It speaks asyncio's future protocol (``asyncio.isfuture`` is true of it), so a task may await it, be
    cancelled while it waits, and put it under ``asyncio.timeout``.
    """

    __slots__ = ("_asyncio_future_blocking", "error", "is_set", "value", "waiter")

    def __init__(self) -> None:
        self.is_set = False
        self._asyncio_future_blocking = True  # a task that finds it so waits here
        self.value: Any = None
        self.error: BaseException | None = None
        self.waiter: Any = None
        """Who waits: a hand-stepped Lane, or the _TaskWaiter of an asyncio task."""

    def set(self, value: Any = None) -> None:
        """Open the gate; the waiter resumes with ``value``. Opening twice changes nothing."""
        if not self.is_set:
            self.value = value
            self.is_set = True
            waiter = self.waiter
            if waiter is not None:
                waiter.resume(self)

    def fail(self, error: BaseException) -> None:
        """Open the gate; ``error`` is raised where it is awaited."""
        if not self.is_set:
            self.error = error
            self.is_set = True
            if self.waiter is not None:
                self.waiter.resume(self)

    def __await__(self) -> Generator[Gate, None, Any]:
        if not self.is_set:
            yield self
        if self.error is not None:
            raise self.error
        return self.value

    # The rest is what asyncio.Task asks of a future it waits for.

    def add_done_callback(self, callback: Callable[[Gate], object], *, context: Any = None) -> None:
        self._asyncio_future_blocking = True
        if self.is_set:
            asyncio.get_running_loop().call_soon(callback, self, context=context)
        else:
            self.waiter = _TaskWaiter(callback, context)

    def remove_done_callback(self, callback: Callable[[Gate], object]) -> int:
        waiter, self.waiter = self.waiter, None
        if waiter is None:
            return 0
        waiter.leave()
        return 1

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def result(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value

    def exception(self) -> BaseException | None:
        return self.error

    def done(self) -> bool:
        return self.is_set

    def cancelled(self) -> bool:
        return isinstance(self.error, asyncio.CancelledError)

    def cancel(self, msg: Any = None) -> bool:
        """Told by a task that is being cancelled while it waits here."""
        if self.is_set:
            return False
        self.fail(asyncio.CancelledError() if msg is None else asyncio.CancelledError(msg))
        return True


def open_gates(gates: Iterable[Gate], values: Iterable[Any]) -> None:
    """Open many gates, each with its value; from the scheduler's own thread, while it does not sleep."""
    for gate, value in zip(gates, values, strict=True):
        if not gate.is_set:
            gate.value = value
            gate.is_set = True
            waiter = gate.waiter
            if type(waiter) is Lane:
                waiter.ready.append(waiter)
            elif waiter is not None:
                waiter.resume(gate)


_DRIVERS: WeakKeyDictionary[asyncio.AbstractEventLoop, Scheduler] = WeakKeyDictionary()
"""Which scheduler drives a loop: it must know which of its tasks wait for the platform itself."""


def driver() -> Scheduler | None:
    """Return the scheduler that drives the running loop; None in a program with a loop of its own."""
    return _DRIVERS.get(asyncio.get_running_loop())


class _TaskWaiter:
    """An asyncio task that waits at a gate."""

    __slots__ = ("callback", "context", "loop", "scheduler")

    def __init__(self, callback: Callable[[Gate], object], context: Any) -> None:
        self.callback = callback
        self.context = context
        self.loop = asyncio.get_running_loop()
        self.scheduler = _DRIVERS.get(self.loop)
        if self.scheduler is not None:
            self.scheduler.num_gated += 1
            self.scheduler.wake()

    def resume(self, gate: Gate) -> None:
        self.leave()
        self.loop.call_soon(self.callback, gate, context=self.context)

    def leave(self) -> None:
        if self.scheduler is not None:
            self.scheduler.num_gated -= 1
            self.scheduler = None


class Lane:
    """One running coroutine."""

    __slots__ = ("coroutine", "ended", "ready", "scheduler", "send", "task")

    def __init__(
        self, scheduler: Scheduler, coroutine: Coroutine[Any, Any, Any], ended: Ended
    ) -> None:
        self.scheduler = scheduler
        self.ready = scheduler.ready
        self.coroutine: Any = coroutine
        self.send = coroutine.send
        self.ended: Ended | None = ended
        self.task: asyncio.Task[Any] | None = None

    def resume(self, _: Gate) -> None:
        """Called by the gate this coroutine waits at."""
        scheduler = self.scheduler
        scheduler.ready.append(self)
        if scheduler.sleeper is not None:
            scheduler.wake()

    def stop(self) -> None:
        """End the coroutine where it waits; nobody is told, and what it raises now is not heard."""
        self.ended = None
        if self.task is not None:
            self.task.cancel()
        elif not self.coroutine.cr_running:
            with suppress(Exception):
                self.coroutine.close()


class Wave(Protocol):
    """Pending requests to one policy; a scheduler flushes it.

    A wave that has reached its largest size puts itself into ``full``, a list the scheduler hands it.
    """

    full: list[Wave]

    @property
    def size(self) -> int: ...

    def flush(self) -> None:
        """Serve all pending requests with one call and open their gates."""
        ...


class Watched(Protocol):
    """Something that must make progress, checked on every scan."""

    def scan(self, now: float, idle: bool) -> bool:
        """Give up on whoever is overdue; return True if anything changed."""
        ...


class Clock:
    """Time as the games see it: the wall's, or a simulated one that jumps when all are waiting."""

    def __init__(self, *, simulated: bool = False) -> None:
        self.simulated = simulated
        self._now = 0.0
        self._timers: list[tuple[float, int, Callable[[], object]]] = []
        self._serial = itertools.count()

    def now(self) -> float:
        """Seconds, monotone."""
        return self._now if self.simulated else time.monotonic()

    def sleep_until(self, moment: float) -> Gate:
        """Return a gate that opens at ``moment``; the scheduler that owns this clock opens it."""
        gate = Gate()
        self.call_at(moment, gate.set)
        return gate

    def call_at(self, moment: float, callback: Callable[[], object]) -> None:
        """Call ``callback`` at ``moment``; it must not raise."""
        heapq.heappush(self._timers, (moment, next(self._serial), callback))

    def sleep(self, seconds: float) -> Gate:
        """Return a gate that opens ``seconds`` from now."""
        return self.sleep_until(self.now() + seconds)

    def next_timer(self) -> float | None:
        return self._timers[0][0] if self._timers else None

    def fire(self) -> bool:
        """Open what is due; True if anything was."""
        now = self.now()
        fired = False
        while self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2]()
            fired = True
        return fired

    def jump(self) -> None:
        """Simulated time only: go to the next timer."""
        if self._timers:
            self._now = max(self._now, self._timers[0][0])


class Scheduler:
    """Drives players, waves and clocks of one process on one thread.

    ``max_wait``  seconds a wave stays open for players who wait for the outside world.
    ``patience``  seconds without any progress after which a match gives up on who is awaited.

    The event loop is its own, made at the first :meth:`run` and closed by :meth:`close`; if the calling
    thread already runs a loop (a notebook), the work moves to a thread of the scheduler's own.
    """

    def __init__(
        self, *, max_wait: float = 0.005, patience: float = 60.0, clock: Clock | None = None
    ) -> None:
        self.max_wait = max_wait
        self.patience = patience
        self.clock = clock if clock is not None else Clock()
        self.ready: deque[Lane] = deque()
        self.sleeper: asyncio.Future[None] | None = None
        self.full: list[Wave] = []
        self.num_gated = 0
        """Asyncio tasks that wait at a gate: they cannot go on before the platform opens it."""
        self._waves: list[Wave] = []
        self.watched: list[Watched] = []
        self._outside = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._next_scan = 0.0
        self._opened = 0.0
        self._starting: list[Lane] = []

    @property
    def waves(self) -> list[Wave]:
        return self._waves

    @waves.setter
    def waves(self, waves: list[Wave]) -> None:
        self._waves = waves
        for wave in waves:
            wave.full = self.full

    def start(self, coroutine: Coroutine[Any, Any, Any], ended: Ended, *, by_hand: bool) -> Lane:
        """Add a coroutine; ``ended`` is called with None or the exception it raised."""
        lane = Lane(self, coroutine, ended)
        if by_hand:
            self.ready.append(lane)
        else:
            self._outside += 1
            self._starting.append(lane)
        if self.sleeper is not None:
            self.wake()
        return lane

    def wake(self) -> None:
        """End the scheduler's sleep, if it sleeps."""
        if self.sleeper is not None and not self.sleeper.done():
            self.sleeper.set_result(None)

    def run(self, until: Callable[[], bool]) -> None:
        """Drive everything until ``until()`` is true, asked between waves. Re-entrant across calls.

        Raises GameError if nobody can go on and nothing is left to wait for.
        """
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            _DRIVERS[self._loop] = self
        loop = self._loop
        with rare_garbage_collection():
            if in_running_loop():
                if self._thread is None:
                    self._thread = ThreadPoolExecutor(1, thread_name_prefix="lamarckian-players")
                self._thread.submit(loop.run_until_complete, self._drive(until)).result()
            else:
                loop.run_until_complete(self._drive(until))

    def close(self) -> None:
        """Cancel what still runs and close the loop. Safe to call twice."""
        loop, self._loop = self._loop, None
        if loop is not None and not loop.is_closed():
            finish(loop)
        if self._thread is not None:
            self._thread.shutdown(wait=True)
            self._thread = None
        self.ready.clear()

    async def _drive(self, until: Callable[[], bool]) -> None:
        while not until():
            self._start_tasks()
            self._pump()
            if until():
                return
            if self._outside > 0:
                await asyncio.sleep(0)
            now = time.monotonic()
            if now >= self._next_scan:
                self._next_scan = now + min(self.patience / 4, 1.0)
                for watched in self.watched:
                    watched.scan(now, False)
            self.clock.fire()
            if self.ready or self._starting or until():
                continue
            pending = [wave for wave in self._waves if wave.size]
            if pending and await self._wave_may_close(now):
                for wave in pending:
                    wave.flush()
                self.full.clear()
                self._opened = 0.0
            elif not pending and not self.ready:
                self._opened = 0.0
                await self._idle(now)

    def _pump(self) -> None:
        ready = self.ready
        full = self.full
        next_lane = ready.popleft
        while ready:
            lane = next_lane()
            try:
                gate = lane.send(None)
            except StopIteration:
                if lane.ended is not None:
                    lane.ended(None)
                continue
            except Exception as error:
                if lane.ended is not None:
                    lane.ended(error)
                continue
            if isinstance(gate, Gate):
                gate.waiter = lane
            else:
                self._await_outside(lane, gate)
            if full:
                for wave in full:
                    wave.flush()
                full.clear()
                return  # so that clocks and tasks have their turn, however fast the players are

    def _await_outside(self, lane: Lane, future: Any) -> None:
        """A hand-stepped coroutine awaits an asyncio future after all: resume it when that is done."""
        self._outside += 1

        def done(_: Any = None) -> None:
            self._outside -= 1
            self.ready.append(lane)
            self.wake()

        if future is None:  # asyncio.sleep(0)
            asyncio.get_running_loop().call_soon(done)
        else:
            future._asyncio_future_blocking = False
            future.add_done_callback(done)

    def _start_tasks(self) -> None:
        assert self._loop is not None
        starting, self._starting = self._starting, []
        for lane in starting:
            if lane.ended is None:  # stopped before it began
                self._outside -= 1
                continue
            lane.task = self._loop.create_task(lane.coroutine)
            lane.task.add_done_callback(partial(self._task_ended, lane))

    def _task_ended(self, lane: Lane, task: asyncio.Task[Any]) -> None:
        self._outside -= 1
        self.wake()
        error = None if task.cancelled() else task.exception()
        if lane.ended is not None:
            lane.ended(error)

    async def _wave_may_close(self, now: float) -> bool:
        """True once nobody else can join the pending waves, or they waited long enough."""
        if self._outside <= self.num_gated:
            return True
        if not self._opened:
            self._opened = now
        remaining = self._opened + self.max_wait - now
        if remaining <= 0:
            return True
        await self._sleep(remaining)
        return False

    async def _idle(self, now: float) -> None:
        """Nobody can run and no wave waits: sleep until a timer or the outside world, or give up."""
        timer = self.clock.next_timer()
        if self.clock.simulated:
            # Time stands still while a task works on something of its own.
            if self._outside > self.num_gated:
                await self._sleep(max(self._next_scan - now, 0.0))
                return
            if timer is not None:
                self.clock.jump()
                return
        if timer is not None or self._outside:
            horizon = self._next_scan if timer is None else min(timer, self._next_scan)
            await self._sleep(max(horizon - now, 0.0))
            return
        if not any([watched.scan(now, True) for watched in self.watched]):
            raise GameError(
                "no player can go on: every coroutine waits for another one; "
                "check that the game resumes each player it awaits"
            )

    async def _sleep(self, seconds: float) -> None:
        assert self._loop is not None
        self.sleeper = self._loop.create_future()
        timer = self._loop.call_later(seconds, self.wake)
        try:
            await self.sleeper
        finally:
            timer.cancel()
            self.sleeper = None
