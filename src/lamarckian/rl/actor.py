"""The actor: plays games in a process of its own and sends what it experienced.

Started by name through :mod:`lamarckian.distributed`; it gets settings as JSON, weights through the
shared slot, and answers with trajectories.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import msgspec
import torch

from lamarckian import seeding
from lamarckian.distributed.channel import Channel
from lamarckian.mdp.core import Arrays, below
from lamarckian.rl.assembly import assemble, training_from

LOOK_EVERY = 0.001
"""Seconds between two looks for newer weights while playing: a look costs some microseconds."""


def actor(config: dict[str, Any], channel: Channel) -> Iterator[None]:
    """Play for ever. ``config``: ``training``, ``num_games``, ``synchronous``.

    Synchronous actors wait for newer weights after each batch; asynchronous ones take what is there,
    between any two decisions.
    """
    torch.set_num_threads(1)
    training = training_from(config["training"])
    assembly = assemble(training)
    seed = seeding.derive(training.seed, "actor", channel.worker, channel.attempt)
    channel.context(game=training.game, actor_seed=seed)
    collector = assembly.make_collector(config["num_games"], seed)
    synchronous = bool(config["synchronous"])
    yield
    received = False
    look_at = 0.0

    def take_newer() -> None:
        nonlocal look_at
        now = time.monotonic()
        if now >= look_at:
            look_at = now + LOOK_EVERY
            newer = channel.weights()
            if newer is not None:
                load_weights(assembly.policies, newer[1])

    while not channel.should_stop():
        waits = synchronous or not received
        newer = channel.weights(timeout=1.0 if waits else 0.0)
        if newer is not None:
            load_weights(assembly.policies, newer[1])
            received = True
        elif waits:
            yield
            continue
        groups: dict[str, Any] = {}
        arrays: Arrays = {}
        for group, trajectory in collector.collect(None if synchronous else take_newer).items():
            groups[group], named = trajectory.to_arrays()
            arrays |= {f"{group}/{name}": array for name, array in named.items()}
        channel.send(
            arrays,
            {
                "groups": groups,
                "episodes": [msgspec.to_builtins(e) for e in collector.take_episodes()],
                "num_frames": collector.num_frames,
                "num_decisions": collector.num_decisions,
                "seconds": dict(collector.seconds),
                "cpu_seconds": time.process_time(),
                "longest_running": collector.longest_running(),
                "sent_at": time.time(),
                "held": {name: policy.version for name, policy in assembly.policies.items()},
            },
        )
        yield
    collector.close()


def weights_of(policies: dict[str, Any]) -> Arrays:
    """Return all groups' weights under one set of names, ``group/name``."""
    return {
        f"{group}/{name}": array
        for group, policy in policies.items()
        for name, array in policy.arrays().items()
    }


def load_weights(policies: dict[str, Any], arrays: Arrays) -> None:
    """Put what :func:`weights_of` took into the policies."""
    for group, policy in policies.items():
        policy.load_arrays(below(f"{group}/", arrays))
        policy.eval()
