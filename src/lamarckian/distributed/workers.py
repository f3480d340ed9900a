"""A group of worker processes: start, talk, notice every kind of end, restart, stop.

The parent sleeps on the workers' sockets and process descriptors and is woken by a message or a
death; nothing is polled but the progress marks of workers that may hang. Ownership: the group owns
processes, sockets and mapped memory; fragments handed out stay valid until released, also after
their worker died.
"""

from __future__ import annotations

import contextlib
import functools
import os
import selectors
import time
from collections import deque
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from lamarckian.distributed import layout as arrays_layout
from lamarckian.distributed import messages
from lamarckian.distributed.entries import entry_name, pack_config
from lamarckian.distributed.group import (
    Received,
    Report,
    WorkerOptions,
    WorkerStats,
    stragglers_error,
)
from lamarckian.distributed.layout import Array
from lamarckian.distributed.lives import Filled, Life, Member, describe_end
from lamarckian.distributed.memory import SharedBlock
from lamarckian.distributed.process import ThreadPlan, available_cores, spawn, usage
from lamarckian.distributed.ring import Slot
from lamarckian.distributed.status import STATUS_BYTES, State, StatusBoard
from lamarckian.distributed.weights import WeightWriter
from lamarckian.errors import ConfigError, WorkerError

_CHECK_EVERY = 0.25


class WorkerGroup:
    """Implements :class:`~lamarckian.distributed.group.Group` with processes of this machine."""

    def __init__(
        self, entry: str, configs: Sequence[Any], options: WorkerOptions, report: Report
    ) -> None:
        if not configs:
            raise ConfigError("workers: expected at least one configuration, got none")
        self._entry = entry_name(entry)
        self._options = options
        self._report = report
        self._workers = [
            Member(i, pack_config(config, f"worker {i}")) for i, config in enumerate(configs)
        ]
        self._plan = ThreadPlan(len(configs), options.threads_per_worker, available_cores())
        self._plan.check(options.allow_oversubscription)
        self._selector = selectors.DefaultSelector()
        self._filled: deque[Filled] = deque()
        self._weights: WeightWriter | None = None
        self._restarts = 0
        self._first_error: WorkerError | None = None
        self._fatal: WorkerError | None = None
        self._next_check = 0.0
        self._closing = False
        self._forgiven: set[int] = set()
        self._deaths: list[WorkerError] = []
        report(self._plan.describe())
        try:
            for worker in self._workers:
                self._launch(worker)
            self._wait_until_ready()
        except BaseException:
            self._end_all(ask=False)
            raise

    @property
    def num_workers(self) -> int:
        return len(self._workers)

    @property
    def num_running(self) -> int:
        return sum(
            (w.life is not None and not w.life.ended) or w.restart_at is not None
            for w in self._workers
        )

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers that run."""
        return [w.life.process.pid for w in self._workers if w.life and not w.life.ended]

    def publish(self, version: int, arrays: Mapping[str, Array]) -> None:
        if self._weights is None:
            self._weights = WeightWriter(arrays)
            self._weights.publish(version, arrays)
            for worker in self._workers:
                self._send_weight_slot(worker)
        else:
            self._weights.publish(version, arrays)

    def receive(self, timeout: float | None = None) -> Received | None:
        give_up = None if timeout is None else time.monotonic() + timeout
        self._check_open()
        if not self._filled:
            self._pump(0.0)
        while not self._filled:
            left = None if give_up is None else give_up - time.monotonic()
            if self.num_running == 0 or (left is not None and left <= 0):
                return None
            if left is None and self._is_starved():
                raise WorkerError(
                    f"receive: all {self._options.fragments_in_flight} fragments in flight of every "
                    "worker are held by the caller, so no other can come; call release() on them"
                )
            self._pump(_CHECK_EVERY if left is None else min(left, _CHECK_EVERY))
        return self._open(self._filled.popleft())

    def receive_from_all(self, timeout: float | None = None) -> list[Received]:
        give_up = None if timeout is None else time.monotonic() + timeout
        last = -1
        self._pump(0.0)
        while True:
            present = {filled.worker for filled in self._filled}
            missing = [
                w.number
                for w in self._workers
                if w.number not in present
                and ((w.life is not None and not w.life.ended) or w.restart_at is not None)
            ]
            if not missing:
                break
            last = missing[-1] if len(missing) == 1 else last
            if give_up is not None and time.monotonic() >= give_up:
                raise stragglers_error(missing, timeout or 0.0, [self._say(i) for i in missing])
            self._pump(_CHECK_EVERY)
        if last >= 0:
            self._workers[last].times_last += 1
        chosen: dict[int, Filled] = {}
        for filled in self._filled:
            chosen.setdefault(filled.worker, filled)
        taken = {id(filled) for filled in chosen.values()}
        self._filled = deque(filled for filled in self._filled if id(filled) not in taken)
        return [self._open(chosen[number]) for number in sorted(chosen)]

    def stats(self) -> list[WorkerStats]:
        records = []
        for worker in self._workers:
            life = worker.life
            if life is None or life.ended:
                blank = WorkerStats(
                    worker.number,
                    0,
                    False,
                    0,
                    0,
                    0.0,
                    0.0,
                    worker.times_last,
                    worker.attempt,
                    0,
                    0.0,
                    {},
                )
                records.append(blank)
                continue
            resident, cpu = usage(life.process.pid)
            status = life.status
            records.append(
                WorkerStats(
                    worker=worker.number,
                    pid=life.process.pid,
                    running=True,
                    fragments=status.fragments,
                    bytes=status.bytes,
                    waited_seconds=status.waited_seconds,
                    idle_seconds=status.idle_seconds,
                    times_last=worker.times_last,
                    restarts=worker.attempt,
                    resident_bytes=resident,
                    cpu_seconds=cpu,
                    context=status.context(),
                    unread=life.reader.num_held,
                )
            )
        return records

    def give_task(
        self, worker: int, task: int, payload: Mapping[str, Any], arrays: Mapping[str, Array]
    ) -> bool:
        life = self._workers[worker].life
        if life is None or life.ended or not life.ready:
            return False
        text = arrays_layout.encode_header(payload)
        layout = arrays_layout.plan(arrays_layout.specs_of(arrays))
        block = SharedBlock.create(layout.end + len(text), "task")
        try:
            arrays_layout.write(block.view, layout, arrays, text)
            return life.link.send(messages.Task(task=task, size=block.size), [block.fileno()])
        finally:
            block.close()

    def kill(self, worker: int, reason: str) -> None:
        life = self._workers[worker].life
        if life is not None and not life.ended:
            self._kill_hung(life, reason)

    def forgive(self, worker: int, yes: bool) -> None:
        if yes:
            self._forgiven.add(worker)
        else:
            self._forgiven.discard(worker)

    def take_deaths(self) -> list[WorkerError]:
        deaths, self._deaths = self._deaths, []
        return deaths

    def close(self) -> None:
        if not self._closing:
            self._end_all(ask=True)

    def __enter__(self) -> WorkerGroup:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _is_starved(self) -> bool:
        held = [w.life.reader.num_held for w in self._workers if w.life and not w.life.ended]
        pending = any(w.restart_at is not None for w in self._workers)
        return not pending and all(n >= self._options.fragments_in_flight for n in held)

    # Starting

    def _launch(self, worker: Member) -> None:
        process = spawn(self._plan, {})
        block = SharedBlock.create(STATUS_BYTES, "status")
        status = StatusBoard(block)
        status.progress(State.STARTING)
        link = messages.Link(process.sock, messages.ToParent)
        life = Life(process, link, status, time.monotonic())
        worker.life = life
        worker.restart_at = None
        self._selector.register(link.fileno(), selectors.EVENT_READ, (worker, life))
        if process.sentinel >= 0:
            self._selector.register(process.sentinel, selectors.EVENT_READ, (worker, life))
        options = self._options
        start = messages.Start(
            entry=self._entry,
            config=worker.config,
            worker=worker.number,
            attempt=worker.attempt,
            num_slots=options.fragments_in_flight,
            max_fragment_bytes=options.max_fragment_bytes,
            send_timeout=options.send_timeout,
            status_bytes=STATUS_BYTES,
        )
        link.send(start, [block.fileno()], timeout=options.start_timeout)
        self._send_weight_slot(worker)

    def _send_weight_slot(self, worker: Member) -> None:
        if self._weights is not None and worker.life is not None and not worker.life.ended:
            block = self._weights.block
            worker.life.link.send(messages.Weights(size=block.size), [block.fileno()])

    def _wait_until_ready(self) -> None:
        while not all(w.life is None or w.life.ready or w.life.ended for w in self._workers):
            self._pump(_CHECK_EVERY)

    # Messages and deaths

    def _pump(self, timeout: float) -> None:
        """Take in messages and deaths for ``timeout`` seconds; raises the fatal error if any."""
        self._check_open()
        for key, _ in self._selector.select(timeout):
            worker, life = key.data
            if life.ended:
                continue
            self._take_messages(worker, life)
            if life.link.closed or key.fd == life.process.sentinel:
                self._ended(worker, life)
        now = time.monotonic()
        if now >= self._next_check:
            self._next_check = now + _CHECK_EVERY
            self._check_clocks(now)

    def _check_open(self) -> None:
        if self._fatal is not None:
            raise self._fatal
        if self._closing:
            raise WorkerError("the worker group has been closed")

    def _take_messages(self, worker: Member, life: Life, *, everything: bool = False) -> None:
        try:
            for message, descriptors in life.link.receive(everything=everything):
                self._handle(worker, life, message, descriptors)
        except WorkerError as error:
            life.kill_reason = f"sent what could not be understood and was killed: {error}"
            life.process.kill()

    def _handle(self, worker: Member, life: Life, message: Any, descriptors: list[int]) -> None:
        match message:
            case messages.Filled(generation=generation, index=index, used=used):
                slot = Slot(generation, index)
                life.reader.hold(slot, used)
                self._filled.append(Filled(worker.number, life, slot, used))
            case messages.Block(generation=generation, num_slots=slots, slot_bytes=size):
                life.reader.add(descriptors[0], generation, slots, size)
            case messages.Ready():
                life.ready = True
            case messages.Log(text=text):
                self._report(f"worker {worker.number}: {text}")
            case messages.Failure():
                life.failure = message
            case messages.Finished():
                life.finished = True
            case _:
                raise WorkerError(f"unexpected message {type(message).__name__}")

    def _open(self, filled: Filled) -> Received:
        try:
            header, arrays = filled.life.reader.open(filled.slot, filled.used)
        except WorkerError as error:
            error.worker = filled.worker
            raise
        release = functools.partial(self._release, filled)
        return Received(filled.worker, header, arrays, release)

    def _release(self, filled: Filled) -> None:
        filled.life.reader.release(filled.slot)
        if not filled.life.ended and not self._closing:
            credit = messages.Credit(generation=filled.slot.generation, index=filled.slot.index)
            filled.life.link.send(credit)

    def _check_clocks(self, now: float) -> None:
        options = self._options
        for worker in self._workers:
            life = worker.life
            if worker.restart_at is not None and now >= worker.restart_at:
                self._launch(worker)
            elif life is None or life.ended or life.kill_reason:
                continue
            elif not life.ready and now - life.started > options.start_timeout:
                limit = f"{options.start_timeout:g} s (start_timeout)"
                self._kill_hung(life, f"was not ready after {limit} and was killed")
            elif life.ready and options.hung_after and worker.number not in self._forgiven:
                idle = life.status.idle_seconds
                if life.status.state == State.RUNNING and idle > options.hung_after:
                    limit = f"limit {options.hung_after:g} s, hung_after"
                    self._kill_hung(
                        life, f"hung: no progress for {idle:.1f} s ({limit}), and was killed"
                    )

    def _kill_hung(self, life: Life, reason: str) -> None:
        life.kill_reason = reason
        life.process.dump_stacks()
        if not life.process.has_ended(0.2):
            life.process.kill()

    def _ended(self, worker: Member, life: Life) -> None:
        """Bury one life and decide what follows: nothing, a restart, or the end of the group."""
        status = life.process.reap(self._options.stop_timeout)
        if status is None:
            life.process.kill()
            status = life.process.reap(10.0)
        self._take_messages(worker, life, everything=True)
        self._forget(life)
        if life.finished and life.failure is None and not life.kill_reason:
            life.free()
            return
        error = describe_end(worker.number, self._entry, life, -9 if status is None else status)
        life.free()
        self._first_error = self._first_error or error
        if not life.ready and worker.attempt == 0:
            self._fail(error)
        if worker.number in self._forgiven:
            self._forgiven.discard(worker.number)
            self._deaths.append(error)
        elif self._restarts >= self._options.max_restarts:
            self._fail(self._first_error)
        else:
            self._restarts += 1
        pause = self._options.restart_backoff * 2 ** min(max(0, self._restarts - 1), 10)
        worker.attempt += 1
        worker.restart_at = time.monotonic() + pause
        budget = f"{self._restarts} of {self._options.max_restarts} restarts used"
        self._report(f"{error}\n  restarting it in {pause:g} s; {budget}")

    def _fail(self, error: WorkerError) -> None:
        if self._restarts:
            error.add_note(f"{self._restarts} restarts did not help; this was the first error")
        self._fatal = error
        self._end_all(ask=False)
        raise error

    def _say(self, number: int) -> str:
        life = self._workers[number].life
        if life is None or life.ended:
            return f"worker {number} is being restarted"
        context = life.status.context()
        return f"worker {number} made progress {life.status.idle_seconds:.1f} s ago, at {context}"

    # Ending

    def _forget(self, life: Life) -> None:
        life.ended = True
        for descriptor in (life.link.fileno(), life.process.sentinel):
            if descriptor >= 0:
                with contextlib.suppress(KeyError, ValueError):
                    self._selector.unregister(descriptor)
        life.link.close()

    def _end_all(self, *, ask: bool) -> None:
        """Stop everything; an interrupt while asking kills at once and is raised again."""
        self._closing = True
        lives = [w.life for w in self._workers if w.life is not None and not w.life.ended]
        interrupt: BaseException | None = None
        if ask:
            try:
                self._ask_to_stop(lives)
            except BaseException as error:
                interrupt = error
        for life in lives:
            life.process.kill()
        for life in lives:
            if life.process.reap(10.0) is None:
                self._report(f"process {life.process.pid} does not die (it hangs in the kernel)")
            self._forget(life)
        for worker in self._workers:
            worker.restart_at = None
            if worker.life is not None:
                worker.life.free()
                worker.life.reader.close()
        self._filled.clear()
        self._selector.close()
        if self._weights is not None:
            self._weights.close()
            self._weights = None
        if interrupt is not None:
            raise interrupt

    def _ask_to_stop(self, lives: list[Life]) -> None:
        for life in lives:
            life.link.send(messages.Stop(), timeout=0.2)
        give_up = time.monotonic() + self._options.stop_timeout
        for life in lives:
            while time.monotonic() < give_up and not life.process.has_ended(0.05):
                with contextlib.suppress(WorkerError):
                    for _, descriptors in life.link.receive():
                        for descriptor in descriptors:
                            os.close(descriptor)
