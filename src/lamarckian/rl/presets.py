"""Settings found good by measurement, by algorithm and game.

They replace defaults where the user has said nothing; the resolved values are written to the run's
``config.yaml``, so nothing is hidden. Keys are dotted, as on the command line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_PONG: dict[str, Any] = {
    "frames": 8_000_000,
    "algorithm.learning_rate": 5e-3,
    "algorithm.learning_rate_schedule": "linear",
    "algorithm.num_games": 64,
    "algorithm.fragment_length": 128,
    "algorithm.minibatch_size": 2048,
    "algorithm.num_epochs": 4,
    "algorithm.entropy_weight": 0.003,
    "algorithm.normalise_observations": True,
    "algorithm.normalise_values": "running",
    "algorithm.network.hidden": [64, 64],
    "algorithm.network.critic_hidden": [64],
}

# Frames are part of a preset where the step size falls over the run: fewer frames, steeper fall.
_CARTPOLE: dict[str, Any] = {
    "frames": 100_000,
    "algorithm.learning_rate": 3e-3,
    "algorithm.learning_rate_schedule": "linear",
    "algorithm.num_games": 32,
    "algorithm.fragment_length": 64,
    "algorithm.minibatch_size": 512,
    "algorithm.num_epochs": 4,
    "algorithm.entropy_weight": 0.005,
    "algorithm.normalise_observations": True,
    "algorithm.normalise_values": "running",
    "algorithm.network.hidden": [64, 64],
    "algorithm.network.critic_hidden": [64],
}

_PENDULUM: dict[str, Any] = {
    "frames": 150_000,
    "algorithm.learning_rate": 3e-3,
    "algorithm.learning_rate_schedule": "linear",
    "algorithm.num_games": 16,
    "algorithm.fragment_length": 128,
    "algorithm.minibatch_size": 512,
    "algorithm.num_epochs": 10,
    "algorithm.discount": 0.95,
    "algorithm.entropy_weight": 0.0,
    "algorithm.normalise_observations": True,
    "algorithm.normalise_values": "running",
    "algorithm.network.hidden": [64, 64],
    "algorithm.network.critic_hidden": [64],
    "algorithm.network.activation": "tanh",
}

# Images of 42 x 42 learn Pong as well as those of 84 x 84 and cost a fifth.
_ALE_PONG: dict[str, Any] = {
    "frames": 6_000_000,
    "game_options.image_size": 42,
    "algorithm.learning_rate": 7e-4,
    "algorithm.learning_rate_schedule": "linear",
    "algorithm.num_games": 16,
    "algorithm.fragment_length": 128,
    "algorithm.minibatch_size": 256,
    "algorithm.num_epochs": 3,
    "algorithm.clip_range": 0.15,
    "algorithm.entropy_weight": 0.01,
    "algorithm.network.image.convolutions": [
        {"channels": 16, "kernel": 4, "stride": 2},
        {"channels": 32, "kernel": 4, "stride": 2},
    ],
}

# The settings published for the particle games; 1 M ticks of a match are 3 M decisions of its players.
_SIMPLE_SPREAD: dict[str, Any] = {
    "frames": 3_000_000,
    "algorithm.learning_rate": 7e-4,
    "algorithm.num_games": 128,
    "algorithm.fragment_length": 25,
    "algorithm.num_epochs": 10,
    "algorithm.minibatch_size": 0,
    "algorithm.entropy_weight": 0.01,
    "algorithm.chunk_length": 5,
}

_DQN_CARTPOLE: dict[str, Any] = {
    "frames": 100_000,
    "algorithm.learning_rate": 1e-3,
    "algorithm.learning_rate_schedule": "linear",
    "algorithm.network.hidden": [64, 64],
    "algorithm.network.critic_hidden": [64],
}

_SAC_PENDULUM: dict[str, Any] = {
    "frames": 15_000,
    "algorithm.learning_rate": 1e-3,
    "algorithm.temperature_learning_rate": 1e-3,
    "algorithm.num_games": 4,
    "algorithm.batch_size": 128,
    "algorithm.decisions_per_update": 2.0,
    "algorithm.network.hidden": [64, 64],
    "algorithm.network.critic_hidden": [64, 64],
}

PRESETS: dict[tuple[str, str], Mapping[str, Any]] = {
    ("mappo", "mpe:simple_spread"): _SIMPLE_SPREAD,
    ("ppo", "pong"): _PONG,
    ("ppo", "cartpole"): _CARTPOLE,
    ("ppo", "gym:CartPole-v1"): _CARTPOLE,
    ("ppo", "gymvec:CartPole-v1"): _CARTPOLE,
    ("ppo", "ale:Pong"): _ALE_PONG,
    ("ppo", "pendulum"): _PENDULUM,
    ("ppo", "gym:Pendulum-v1"): _PENDULUM,
    ("ppo", "gymvec:Pendulum-v1"): _PENDULUM,
    ("sac", "pendulum"): _SAC_PENDULUM,
    ("sac", "gym:Pendulum-v1"): _SAC_PENDULUM,
    ("sac", "gymvec:Pendulum-v1"): _SAC_PENDULUM,
    ("dqn", "cartpole"): _DQN_CARTPOLE,
    ("dqn", "gym:CartPole-v1"): _DQN_CARTPOLE,
    ("dqn", "gymvec:CartPole-v1"): _DQN_CARTPOLE,
}


VARIANTS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "ippo": ("mappo", {"critic": "own"}),
    "nv-mappo": ("mappo", {"value_noise": 1.0}),
    "na-mappo": ("mappo", {"advantage_noise": 0.05}),
    "nv-ippo": ("mappo", {"critic": "own", "value_noise": 1.0}),
    "mapg": ("mappo", {"clip_range": None, "num_epochs": 1}),
    "nv-mapg": ("mappo", {"clip_range": None, "num_epochs": 1, "value_noise": 1.0}),
}
"""Published names of an algorithm with certain settings: name -> (algorithm, settings)."""


def expand(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``settings`` with the name of a variant replaced by its algorithm and what it sets.

    The algorithm may be named as ``algorithm: ippo``, as ``algorithm.name`` or as a group with a ``name``;
    other settings given for it win over the variant's.
    """
    given = dict(settings)
    chosen = given.get("algorithm", given.get("algorithm.name"))
    name = chosen.get("name") if isinstance(chosen, Mapping) else chosen
    if not isinstance(name, str) or name not in VARIANTS:
        return given
    base, sets = VARIANTS[name]
    if isinstance(chosen, Mapping):
        return {**given, "algorithm": {**sets, **chosen, "name": base}}
    given.pop("algorithm.name", None)
    given.pop("algorithm", None)
    return {"algorithm": base, **{f"algorithm.{key}": sets[key] for key in sets}, **given}


def preset(algorithm: str, game: str) -> dict[str, Any]:
    """Return the name of the algorithm and the settings known for this pair, if any."""
    return {"algorithm": algorithm, **_known(algorithm, game)}


def evolution_preset(game: str) -> dict[str, Any]:
    """Return the settings known for players of ``game`` that evolve, below ``training.``.

    A falling step size belongs to one long run; members of a population train in short pieces, their
    step size a gene or constant, and their budget is the search's.
    """
    return {
        f"training.{name}": value
        for name, value in _known("ppo", game).items()
        if name.startswith("algorithm.") and name != "algorithm.learning_rate_schedule"
    }


def algorithm_named(chosen: Any) -> str:
    """Return the algorithm a ``algorithm`` setting names: a text, or a group of settings."""
    return str(chosen.get("name", "ppo") if isinstance(chosen, Mapping) else chosen or "ppo")


def _known(algorithm: str, game: str) -> Mapping[str, Any]:
    """Return what is known of a game, whichever options follow its ``?``.

    Settings made for certain options of a game are no settings for others.
    """
    name, _, options = game.partition("?")
    known = PRESETS.get((algorithm, name), {})
    if options and any(key.startswith("game_options") for key in known):
        return {}
    return known
