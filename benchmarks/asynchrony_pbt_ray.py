"""The peer of ``asynchrony_pbt.py``: Ray Tune's PBT over RLlib's PPO, population 8, two cores.

    python benchmarks/asynchrony_pbt_ray.py [--seconds 150]

Needs an environment with ``ray[rllib]`` and torch (it is not a dependency of Lamarckian). The settings are
those of the other script as far as RLlib has them: layers 256, 128, batches of 4096 frames, minibatches of
1024, 4 epochs, learning rate from 1e-5 to 0.1 and critic weight from 0.01 to 1 as what is perturbed.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "asynchrony_pbt_ray.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=150.0)
    parser.add_argument("--epochs", type=int, default=4)
    options = parser.parse_args()
    import ray
    from ray import tune
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
    from ray.tune.schedulers import PopulationBasedTraining

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    config = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=64)
        .learners(num_learners=0)
        .rl_module(
            model_config=DefaultModelConfig(
                fcnet_hiddens=[256, 128], fcnet_activation="relu", vf_share_layers=True
            )
        )
        .training(
            train_batch_size_per_learner=4096,
            minibatch_size=1024,
            num_epochs=options.epochs,
            lr=tune.loguniform(1e-5, 0.1),
            vf_loss_coeff=tune.uniform(0.01, 1.0),
        )
    )
    scheduler = PopulationBasedTraining(
        time_attr="training_iteration",
        metric="env_runners/episode_return_mean",
        mode="max",
        perturbation_interval=8,
        hyperparam_mutations={
            "lr": tune.loguniform(1e-5, 0.1),
            "vf_loss_coeff": tune.uniform(0.01, 1.0),
        },
    )
    began = time.time()
    with tempfile.TemporaryDirectory() as folder:
        results = tune.Tuner(
            "PPO",
            param_space=config,
            tune_config=tune.TuneConfig(
                scheduler=scheduler, num_samples=8, time_budget_s=options.seconds
            ),
            run_config=tune.RunConfig(
                storage_path=folder, stop={"training_iteration": 1000}, verbose=0
            ),
        ).fit()
        seconds = time.time() - began
        frames, scores = 0, []
        for each in results:
            metrics = each.metrics or {}
            frames += int(metrics.get("num_env_steps_sampled_lifetime", 0))
            scores.append(metrics.get("env_runners", {}).get("episode_return_mean"))
    record = {
        "game": f"cartpole, {options.epochs} epochs",
        "frames": frames,
        "seconds": round(seconds, 1),
        "frames_per_second": round(frames / seconds),
        "scores": scores,
        "ray": ray.__version__,
        "load_average": os.getloadavg()[0],
    }
    print(record)
    RESULTS.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
