"""Comparison of an exported file with the policy it was made from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from lamarckian.errors import CheckpointError
from lamarckian.mdp.core import Array, Arrays, Continuous, Input, mask_size
from lamarckian.mdp.onnx_player import OnnxPolicy
from lamarckian.mdp.policy import Decisions, draw_noise
from lamarckian.rl.encoders import ConvolutionEncoder, Torso
from lamarckian.rl.normalisers import RunningNormaliser
from lamarckian.rl.policy import TorchPolicy
from lamarckian.seeding import stream

TOLERANCE = 1e-5
RANDOM_OBSERVATIONS = 1000
EPISODE_LENGTH = 25


def check_export(
    policy: TorchPolicy, path: Path, with_values: bool, recorded: Arrays | None = None
) -> float:
    """Compare on 1,000 random observations (batches of 1, 7 and the rest), ``recorded`` ones, and one
    episode with memory; half of them sampled, half most likely.

    Returns the largest difference of actions, log-probabilities, values and memory, relative to the
    largest of 1, the number itself and the bounds of the action. Raises CheckpointError from 1e-5 on.
    """
    rng = stream(0, "export", "check")
    exported = OnnxPolicy(path)
    worst = 0.0
    with _float32(policy):
        sizes = [1] * 20 + [7] * 20
        sizes.append(RANDOM_OBSERVATIONS - sum(sizes))
        for turn, size in enumerate(sizes):
            inputs = random_inputs(policy.network.torso, size, rng)
            memory = _memory(policy, size, rng)
            worst = max(
                worst, _compare(policy, exported, inputs, memory, rng, turn, with_values)[0]
            )
        if recorded is not None:
            size = len(next(iter(recorded.values())))
            memory = _memory(policy, size, rng)
            for turn in range(2):
                found = _compare(policy, exported, recorded, memory, rng, turn, with_values)
                worst = max(worst, found[0])
        ours, theirs = _memory(policy, 2, None), _memory(policy, 2, None)
        for turn in range(EPISODE_LENGTH if policy.is_recurrent else 0):
            inputs = random_inputs(policy.network.torso, 2, rng)
            found = _compare(policy, exported, inputs, ours, rng, turn, with_values, theirs)
            worst, ours, theirs = max(worst, found[0]), found[1].recurrent, found[2].recurrent
            ours = {**_memory(policy, 2, None), **ours}
    return worst


def random_inputs(torso: Torso, number: int, rng: np.random.Generator) -> Arrays:
    """Draw observations ``[number, ...]`` around what the policy's normalisers have seen."""
    arrays: Arrays = {}
    for name, item in torso.inputs.items():
        arrays[name] = _random_input(item, number, rng)
        key = torso.keys.get(name, "")
        if key in torso.normalisers:
            normaliser = torso.normalisers[key]
            assert isinstance(normaliser, RunningNormaliser)
            scaled = arrays[name] / normaliser.scale.cpu().numpy()
            scaled = scaled + normaliser.shift.cpu().numpy()
            arrays[name] = scaled.astype(arrays[name].dtype)
    return arrays


def _random_input(item: Input, number: int, rng: np.random.Generator) -> Array:
    shape = (number, *item.shape)
    if item.dtype == "bool":
        return np.asarray(rng.random(shape) < 0.5)
    if item.kind == "category":
        return rng.integers(0, item.num_categories, shape)
    if item.dtype == "uint8":
        return rng.integers(0, 256, shape, dtype=np.uint8)
    if item.dtype == "int64":
        return rng.integers(-3, 4, shape)
    if item.kind == "image":
        return rng.random(shape, dtype=np.float32)
    return rng.standard_normal(shape, dtype=np.float32)


def _memory(policy: TorchPolicy, number: int, rng: np.random.Generator | None) -> Arrays:
    return {
        name: np.zeros((number, *zero.shape), np.float32)
        if rng is None
        else rng.uniform(-1, 1, (number, *zero.shape)).astype(np.float32)
        for name, zero in policy.memory.items()
    }


def _compare(
    policy: TorchPolicy,
    exported: OnnxPolicy,
    inputs: Arrays,
    memory: Arrays,
    rng: np.random.Generator,
    turn: int,
    with_values: bool,
    their_memory: Arrays | None = None,
) -> tuple[float, Decisions, Decisions]:
    number = len(next(iter(inputs.values())))
    legal: Arrays = {}
    for name in policy.role.masked:
        legal[name] = rng.random((number, mask_size(policy.role.actions[name]))) < 0.6
    state: Arrays = {}
    if policy.network.state_torso is not None:
        state = random_inputs(policy.network.state_torso, number, rng)
    noise = None if turn % 2 else _clear_noise(policy, inputs, legal, state, memory, rng)
    ours = policy.act(inputs, legal, state, memory, noise)
    theirs = exported.act(inputs, legal, state, their_memory or memory, noise)
    pairs = [("log_prob", ours.log_prob, theirs.log_prob)]
    if with_values:
        pairs.append(("values", ours.values, theirs.values))
    pairs += [
        (f"action {name}", a, theirs.game_actions[name]) for name, a in ours.game_actions.items()
    ]
    pairs += [(f"memory {name}", ours.recurrent[name], b) for name, b in theirs.recurrent.items()]
    worst = 0.0
    for name, mine, other in pairs:
        scale = np.maximum(_reach(policy, name), np.abs(mine))
        difference = float(np.max(np.abs(mine - other) / scale, initial=0.0))
        if not difference < TOLERANCE:
            raise CheckpointError(
                f"export refused: {name} of the ONNX file differs from the policy by "
                f"{difference:.2e} (allowed {TOLERANCE:.0e}); please report this network"
            )
        worst = max(worst, difference)
    return worst, ours, theirs


def _reach(policy: TorchPolicy, name: str) -> Array:
    """Return what a difference is measured by: a bounded action in units of its bounds."""
    part = policy.role.actions.get(name.removeprefix("action "))
    if not name.startswith("action ") or not isinstance(part, Continuous):
        return np.ones(())
    bounds = np.abs(np.stack([np.asarray(part.low), np.asarray(part.high)])).max(axis=0)
    return np.where(part.bounded, np.maximum(bounds, 1.0), 1.0)


def _clear_noise(
    policy: TorchPolicy,
    inputs: Arrays,
    legal: Arrays,
    state: Arrays,
    memory: Arrays,
    rng: np.random.Generator,
) -> Array:
    """Draw noise that does not sit on the border between two actions.

    There the last bit of a probability decides, and two correct programs may choose differently.
    """
    number = len(next(iter(inputs.values())))
    noise = draw_noise(policy.role, number, rng)
    columns = [choice.noise for choice in policy.distribution.choices]
    for _ in range(20):
        near, far = noise.copy(), noise.copy()
        near[:, columns] -= np.float32(2 * TOLERANCE)
        far[:, columns] += np.float32(2 * TOLERANCE)
        one = policy.act(inputs, legal, state, memory, near).game_actions
        two = policy.act(inputs, legal, state, memory, far).game_actions
        unclear = np.zeros(number, bool)
        for choice in policy.distribution.choices:
            unclear |= (one[choice.name] != two[choice.name]).reshape(number, -1).any(axis=1)
        if not unclear.any():
            break
        noise[unclear] = draw_noise(policy.role, int(unclear.sum()), rng)
    return noise


@contextmanager
def _float32(policy: TorchPolicy) -> Iterator[None]:
    """Compute in float32 for a while: an export is float32 whatever the training used."""
    encoders = [
        part for part in policy.modules() if isinstance(part, ConvolutionEncoder) and part.reduced
    ]
    for encoder in encoders:
        encoder.reduced = False
    try:
        yield
    finally:
        for encoder in encoders:
            encoder.reduced = True
