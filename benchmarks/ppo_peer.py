"""The sides of RLlib and Stable-Baselines3 in ``ppo_throughput.py``; runs in an environment of its own.

    python -m venv peers
    peers/bin/pip install "ray[rllib]==2.60.0" "stable-baselines3==2.9.2" torch gymnasium ale-py \\
        opencv-python-headless psutil

Settings (JSON): ``library`` (``sb3``, ``rllib`` or ``rllib-appo``), ``game`` (``gym:ID`` or ``ale:Pong``),
``num_envs`` (all together for Stable-Baselines3, per runner for RLlib), ``num_runners`` (RLlib),
``batch``. Both peers get the batch, epochs, learning rate and loss weights of the Lamarckian side, and
its network: Stable-Baselines3 exactly; RLlib's standard model has no layers of the critic alone, so that
its critic is one layer on the shared bottom and its side does a little less work. Protocol: see
``ppo_sides.py``.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
# Ray's servers then listen on the loopback address, as they do where there is no cluster to join.
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
warnings.filterwarnings("ignore")

import gymnasium  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402

from ppo_sides import serve  # noqa: E402

LEARNING_RATE, DISCOUNT, GAE_LAMBDA, CLIP, ENTROPY, VALUE = 0.01, 0.99, 0.95, 0.2, 0.01, 0.5
CHANNELS = (16, 32, 64, 64)


class ChannelsLast(gymnasium.ObservationWrapper):
    """Frames ``[4, 84, 84]`` as float32 ``[84, 84, 4]``, which is what RLlib's convolutions read."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (84, 84, 4), np.float32)

    def observation(self, observation: Any) -> Any:
        return np.moveaxis(np.asarray(observation), 0, -1).astype(np.float32) * np.float32(1 / 255)


def atari(_: dict[str, Any]) -> Any:
    """Atari as Gymnasium preprocesses it: grey, 84 x 84, four frames, frame skip 4."""
    import ale_py
    from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

    gymnasium.register_envs(ale_py)
    env = gymnasium.make("ALE/Pong-v5", frameskip=1, repeat_action_probability=0.0)
    return ChannelsLast(FrameStackObservation(AtariPreprocessing(env), 4))


def stable_baselines(settings: dict[str, Any]) -> Callable[[], int]:
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_atari_env, make_vec_env
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
    from stable_baselines3.common.vec_env import VecFrameStack

    class Bottom(BaseFeaturesExtractor):
        """The layers that policy and critic share."""

        def __init__(self, space: Any) -> None:
            image = len(space.shape) == 3
            super().__init__(space, 256 if image else 128)
            layers: list[nn.Module] = []
            size = space.shape[0]
            for width in CHANNELS if image else (256, 128):
                layer = nn.Conv2d(size, width, 4, 2) if image else nn.Linear(size, width)
                layers += [layer, nn.LeakyReLU(inplace=True)]
                size = width
            if image:
                layers += [nn.Flatten(), nn.Linear(576, 256), nn.LeakyReLU(inplace=True)]
            self.layers = nn.Sequential(*layers)

        def forward(self, values: Any) -> Any:
            return self.layers(values)

    num_envs = settings["num_envs"]
    kind, _, name = settings["game"].partition(":")
    if kind == "ale":
        import ale_py

        gymnasium.register_envs(ale_py)
        env: Any = VecFrameStack(make_atari_env("PongNoFrameskip-v4", n_envs=num_envs, seed=0), 4)
    else:
        env = make_vec_env(name, n_envs=num_envs, seed=0)
    model = PPO(
        "CnnPolicy" if kind == "ale" else "MlpPolicy",
        env,
        n_steps=settings["batch"] // num_envs,
        batch_size=settings["batch"],
        n_epochs=1,
        learning_rate=LEARNING_RATE,
        gamma=DISCOUNT,
        gae_lambda=GAE_LAMBDA,
        clip_range=CLIP,
        ent_coef=ENTROPY,
        vf_coef=VALUE,
        max_grad_norm=0.5,
        policy_kwargs={
            "features_extractor_class": Bottom,
            "net_arch": {"pi": [], "vf": [256, 128, 128, 64] if kind == "ale" else [128, 64]},
            "activation_fn": nn.LeakyReLU,
        },
        device="cpu",
    )

    def step() -> int:
        before = model.num_timesteps
        model.learn(settings["batch"], reset_num_timesteps=before == 0)
        return int(model.num_timesteps - before)

    return step


def rllib(settings: dict[str, Any]) -> Callable[[], int]:
    import ray
    from ray.rllib.algorithms.appo import APPOConfig
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
    from ray.tune.registry import register_env

    runners = settings["num_runners"]
    ray.init(
        num_cpus=runners + 1, include_dashboard=False, log_to_driver=False, logging_level="ERROR"
    )
    image = settings["game"].startswith("ale")
    game = settings["game"].partition(":")[2]
    if image:
        game = "atari"
        register_env(game, atari)
    batch = settings["batch"]
    appo = settings["library"] == "rllib-appo"
    model = DefaultModelConfig(
        conv_filters=[[c, 4, 2, "valid"] for c in CHANNELS] if image else None,  # type: ignore[misc]
        fcnet_hiddens=[256] if image else [256, 128],
        head_fcnet_hiddens=[],
        vf_share_layers=True,
    )
    config: Any = APPOConfig() if appo else PPOConfig()
    config = (
        config.environment(game)
        .env_runners(
            num_env_runners=runners,
            num_envs_per_env_runner=settings["num_envs"],
            rollout_fragment_length=settings.get("fragment", "auto"),
            sample_timeout_s=600.0,
        )
        .learners(num_learners=0, num_gpus_per_learner=0)
        .rl_module(model_config=model)
        .debugging(log_level="ERROR")
    )
    common: dict[str, Any] = {
        "lr": LEARNING_RATE,
        "gamma": DISCOUNT,
        "lambda_": GAE_LAMBDA,
        "clip_param": CLIP,
        "entropy_coeff": ENTROPY,
        "vf_loss_coeff": VALUE,
        "grad_clip": 0.5,
        "train_batch_size_per_learner": batch,
    }
    if appo:
        config = config.training(**common, num_epochs=1, use_kl_loss=False)
        config = config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=0)
    else:
        config = config.training(
            **common,
            minibatch_size=batch,
            num_epochs=1,
            use_kl_loss=False,
            shuffle_batch_per_epoch=False,
        )
    algorithm = config.build_algo()
    trained = 0

    def step() -> int:
        nonlocal trained
        result = algorithm.train()
        learner = result.get("learners", {}).get("__all_modules__", {})
        total = learner.get("num_env_steps_trained_lifetime")
        if not appo or total is None:
            total = result["env_runners"].get("num_env_steps_sampled_lifetime", trained)
        fresh, trained = int(total) - trained, int(total)
        return fresh

    return step


def main() -> None:
    settings: dict[str, Any] = json.loads(sys.argv[1])
    torch.set_num_threads(settings.get("threads", 1))
    make = stable_baselines if settings["library"] == "sb3" else rllib
    step = make(settings)
    step()
    if settings["library"] == "rllib-appo":  # the first iterations of APPO bring no data yet
        for _ in range(50):
            if step() > 0:
                break
    serve(step, {"torch_threads": torch.get_num_threads()})
    if settings["library"] != "sb3":
        import ray

        ray.shutdown()


if __name__ == "__main__":
    main()
