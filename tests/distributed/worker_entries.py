"""Entry points for the tests of distributed: each does one thing, some of them on purpose badly."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
import zlib
from typing import Any

import numpy as np


def checksum(arrays: dict[str, np.ndarray]) -> int:
    value = 0
    for name in sorted(arrays):
        value = zlib.crc32(np.ascontiguousarray(arrays[name]).tobytes(), value)
    return value


def random_arrays(rng: np.random.Generator) -> dict[str, np.ndarray]:
    dtypes = ["?", "u1", "i4", "i8", "f2", "f4", "f8"]
    arrays = {}
    for index in range(int(rng.integers(0, 6))):
        shape = tuple(int(n) for n in rng.integers(0, 30, size=int(rng.integers(0, 4))))
        data = rng.integers(0, 2, size=shape) if rng.random() < 0.5 else rng.normal(size=shape)
        arrays[f"group/{index}"] = np.asarray(data).astype(dtypes[int(rng.integers(7))])
    return arrays


def stress(config: dict[str, Any], channel: Any) -> Any:
    rng = np.random.default_rng([config["seed"], channel.worker])
    yield
    for number in range(config["count"]):
        arrays = random_arrays(rng)
        channel.send(arrays, {"number": number, "crc": checksum(arrays)})
        yield


def counter(config: dict[str, Any], channel: Any) -> Any:
    """Send the number of the fragment, the version of the weights and their mean, for ever."""
    version, mean = -1, float("nan")
    delay = config.get("delay", 0.0)
    size = config.get("size", 4)
    yield
    number = 0
    while not channel.should_stop():
        newer = channel.weights()
        if newer is not None:
            version, arrays = newer
            mean = float(arrays["w"].mean())
        channel.context(number=number)
        if delay:
            time.sleep(delay)
        views = channel.reserve({"data": ("f4", (size,))})
        views["data"][:] = number
        channel.commit({"number": number, "version": version, "mean": mean})
        number += 1
        yield


def torn(config: dict[str, Any], channel: Any) -> Any:
    """Read weights as fast as possible; every read must be of one version."""
    yield
    bad, reads, last = 0, 0, -1
    until = time.monotonic() + config["seconds"]
    while time.monotonic() < until:
        newer = channel.weights(timeout=0.1)
        if newer is None:
            continue
        version, arrays = newer
        reads += 1
        whole = all((a == version).all() for a in arrays.values()) and version > last
        bad += not whole
        last = version
    channel.send({}, {"bad": bad, "reads": reads})
    yield


def boom(config: dict[str, Any], channel: Any) -> Any:
    """Fail in the way ``how`` at the moment ``when``, if this is the worker ``worker``."""
    mine = channel.worker == config.get("worker", 0) and channel.attempt < config.get("until", 99)
    if mine and config["when"] == "init":
        _fail(config["how"])
    yield
    channel.send({"x": np.ones(3, np.float32)}, {"first": True})
    channel.context(episode_seed=7, tick=12, player="red", action=np.array([1, 2]))
    if mine:
        time.sleep(config.get("after", 0.0))
        _fail(config["how"])
    while not channel.should_stop():
        channel.send({"x": np.ones(3, np.float32)})
        time.sleep(0.01)
        yield


def _fail(how: str) -> None:
    if how == "raise":
        raise ValueError("the game broke at reset")
    if how == "exit":
        os._exit(1)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "segfault":
        ctypes.string_at(0)
    if how == "sys.exit":
        sys.exit(3)
    if how == "user":
        from lamarckian.errors import GameError

        raise GameError("game 'x': observation 'y' is NaN at tick 3")
    if how == "hang":
        while True:
            time.sleep(0.05)
    if how == "busy":
        sum(iter(int, 1))


def objects(config: dict[str, Any], channel: Any) -> Any:
    yield
    channel.send({"x": np.array([object()])})
    yield


def not_a_generator(config: dict[str, Any], channel: Any) -> int:
    return 3


def environment(config: dict[str, Any], channel: Any) -> Any:
    yield
    channel.send(
        {}, {"omp": os.environ["OMP_NUM_THREADS"], "path": sys.path, "pgid": os.getpgid(0)}
    )
    yield


def ignore_stop(config: dict[str, Any], channel: Any) -> Any:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    channel.send({})
    while True:
        time.sleep(0.1)
        yield


def make_square(config: dict[str, Any], channel: Any) -> Any:
    """Task entry: squares; with ``how`` it misbehaves on some attempts."""
    state = {"calls": 0}

    def handle(payload: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
        state["calls"] += 1
        time.sleep(payload.get("sleep", 0.0))
        how = payload.get("how")
        marker = payload.get("marker")
        if how and not (marker and os.path.exists(marker)):
            if marker:
                open(marker, "w").close()
            _fail(how)
        return {"calls": state["calls"], "worker": channel.worker}, {"y": arrays["x"] ** 2}

    return handle
