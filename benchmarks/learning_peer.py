"""Stable-Baselines3's side of ``learning.py``: one run, measured at each tenth of its frames.

    peers/bin/python benchmarks/learning_peer.py CartPole-v1 SEED FRAMES EPISODES

The settings are the tuned ones of its zoo for the game, schedules and state-dependent exploration included.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

warnings.filterwarnings("ignore")

SETTINGS: dict[str, tuple[int, dict[str, Any]]] = {
    "CartPole-v1": (
        8,
        {
            "n_steps": 32,
            "batch_size": 256,
            "gae_lambda": 0.8,
            "gamma": 0.98,
            "n_epochs": 20,
            "ent_coef": 0.0,
            "learning_rate": lambda left: 1e-3 * left,
            "clip_range": lambda left: 0.2 * left,
        },
    ),
    "Pendulum-v1": (
        4,
        {
            "n_steps": 1024,
            "gae_lambda": 0.95,
            "gamma": 0.9,
            "n_epochs": 10,
            "ent_coef": 0.0,
            "learning_rate": 1e-3,
            "clip_range": 0.2,
            "use_sde": True,
            "sde_sample_freq": 4,
        },
    ),
}


def main() -> None:
    name, seed, frames, episodes = sys.argv[1], *map(int, sys.argv[2:5])
    torch.set_num_threads(1)
    num_envs, settings = SETTINGS[name]
    model = PPO(
        "MlpPolicy",
        make_vec_env(name, n_envs=num_envs, seed=seed),
        seed=seed,
        device="cpu",
        **settings,
    )
    test = make_vec_env(name, n_envs=32, seed=10_000 + seed)
    found: list[float] = []

    def look(local: dict[str, Any], _: dict[str, Any]) -> bool:
        while len(found) < 10 and model.num_timesteps >= (len(found) + 1) * frames // 10:
            found.append(float(evaluate_policy(model, test, episodes, deterministic=True)[0]))
        return True

    model.learn(frames, callback=look)
    while len(found) < 10:
        found.append(float(evaluate_policy(model, test, episodes, deterministic=True)[0]))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
