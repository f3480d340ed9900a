"""Evolutionary reinforcement learning for games that do not wait.

``import lamarckian as lm``: games are written against :class:`MDP` or :class:`BatchGame`, settings are
records (:class:`PPO`, :class:`TrainingRun`), and :func:`train` begins a run. Names are loaded when they
are first used, so that importing the package is fast and needs no torch.
"""

from typing import TYPE_CHECKING

from lamarckian.api import __getattr__, __version__

if TYPE_CHECKING:
    from lamarckian.api import evolve, load, resume, train
    from lamarckian.mdp.batch_game import BatchGame, RowStep
    from lamarckian.mdp.core import (
        MDP,
        Continuous,
        Controller,
        Discrete,
        Input,
        MultiDiscrete,
        Observation,
        Role,
    )
    from lamarckian.mdp.tick import TickGame
    from lamarckian.rl.dqn import DQN
    from lamarckian.rl.impala import IMPALA
    from lamarckian.rl.mappo import MAPPO
    from lamarckian.rl.network_config import NetworkConfig
    from lamarckian.rl.ppo import PPO
    from lamarckian.rl.sac import SAC
    from lamarckian.runs.folder import Run
    from lamarckian.runs.training import TrainingRun

__all__ = [
    "DQN",
    "IMPALA",
    "MAPPO",
    "MDP",
    "PPO",
    "SAC",
    "BatchGame",
    "Continuous",
    "Controller",
    "Discrete",
    "Input",
    "MultiDiscrete",
    "NetworkConfig",
    "Observation",
    "Role",
    "RowStep",
    "Run",
    "TickGame",
    "TrainingRun",
    "__getattr__",
    "__version__",
    "evolve",
    "load",
    "resume",
    "train",
]
