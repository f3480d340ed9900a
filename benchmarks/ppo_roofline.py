"""The least a PPO must do, in one plain loop: step the games, run the network in batches, take the step.

No records, no checks, no episode statistics, no truncation values, no journal; one network, one role, one
reward. What a platform adds to this is its overhead. Same network, batch, epochs, optimiser and
micro-batches as the side of Lamarckian; see ``ppo_sides.py`` for the protocol.

Settings (JSON): ``game`` (``gym:ID``, ``ale:ROM``, or a built-in batch game), ``num_games``,
``fragment_length``, ``microbatch_size``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from ppo_sides import serve

LEARNING_RATE, DISCOUNT, GAE_LAMBDA, CLIP = 0.01, 0.99, 0.95, 0.2

Array = NDArray[Any]
Game = tuple[Array, Callable[[Array], tuple[Array, Array, Array]], int, bool]
"""First observations, ``step(actions) -> observations, rewards, ends``, actions, continuous?"""


def gym_game(name: str, num_games: int) -> Game:
    """Scalar environments in a plain list."""
    import gymnasium

    envs = [gymnasium.make(name) for _ in range(num_games)]
    seen = np.stack([env.reset(seed=n)[0] for n, env in enumerate(envs)])
    continuous = hasattr(envs[0].action_space, "low")
    rewards, ends = np.zeros(num_games, np.float32), np.zeros(num_games, bool)

    def step(actions: Array) -> tuple[Array, Array, Array]:
        for n, env in enumerate(envs):
            seen[n], rewards[n], terminated, truncated, _ = env.step(actions[n])
            ends[n] = terminated or truncated
            if ends[n]:
                seen[n] = env.reset()[0]
        return seen, rewards, ends

    space: Any = envs[0].action_space
    return seen, step, space.shape[0] if continuous else int(space.n), continuous


def ale_game(rom: str, num_games: int) -> Game:
    """ALE's own vector environment, as Lamarckian uses it."""
    from ale_py.vector_env import AtariVectorEnv

    env = AtariVectorEnv(rom, num_games, num_threads=1, reward_clipping=False)
    seen, _ = env.reset(seed=0)

    def step(actions: Array) -> tuple[Array, Array, Array]:
        frames, rewards, terminated, truncated, _ = env.step(actions)
        return frames, np.clip(rewards, -1, 1).astype(np.float32), terminated | truncated

    return seen, step, int(env.single_action_space.n), False


def native_game(name: str, num_games: int) -> Game:
    """A built-in batch game; a second role, if any, is played by the game's bot."""
    from lamarckian.mdp import catalogue
    from lamarckian.mdp.core import Continuous

    game = catalogue.make_batch(name, num_games)
    game.reset(np.arange(num_games))
    role, *others = game.roles
    (part, space), *_ = game.roles[role].actions.items()
    (key,) = game.roles[role].inputs
    rng = np.random.default_rng(0)

    def step(actions: Array) -> tuple[Array, Array, Array]:
        chosen = {role: {part: actions}}
        for other in others:
            seen = game.observe(other)
            chosen[other] = game.bots["rule"](seen.inputs, seen.legal, rng)
        done = game.step(chosen)[role]
        return game.observe(role).inputs[key], done.rewards[:, 0], done.terminated | done.truncated

    continuous = isinstance(space, Continuous)
    size = space.size if isinstance(space, Continuous) else int(getattr(space, "num"))  # noqa: B009
    return game.observe(role).inputs[key], step, size, continuous


def make_game(name: str, num_games: int) -> Game:
    kind, _, rest = name.partition(":")
    if kind == "gym":
        return gym_game(rest, num_games)
    return ale_game(rest.lower(), num_games) if kind == "ale" else native_game(name, num_games)


class Network(nn.Module):
    """Shared bottom and critic of Table III of the paper; four K4S2 convolutions for images."""

    def __init__(self, shape: tuple[int, ...], num_actions: int, continuous: bool) -> None:
        super().__init__()
        act = nn.LeakyReLU
        self.image = len(shape) == 3
        layers: list[nn.Module] = []
        if self.image:
            channels = shape[0]
            for width in (16, 32, 64, 64):
                layers += [nn.Conv2d(channels, width, 4, 2), act(inplace=True)]
                channels = width
            layers += [nn.Flatten(), nn.Linear(576, 256), act(inplace=True)]
            top, critic = 256, (256, 128, 128, 64)
        else:
            layers += [nn.Linear(shape[0], 256), act(inplace=True)]
            layers += [nn.Linear(256, 128), act(inplace=True)]
            top, critic = 128, (128, 64)
        self.bottom = nn.Sequential(*layers).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.policy = nn.Linear(top, num_actions)
        self.log_std = nn.Parameter(torch.zeros(num_actions)) if continuous else None
        parts: list[nn.Module] = []
        for width in critic:
            parts += [nn.Linear(top, width), act(inplace=True)]
            top = width
        self.critic = nn.Sequential(*parts, nn.Linear(top, 1))

    def forward(self, seen: Tensor) -> tuple[Tensor, Tensor]:
        if self.image:
            pixels = seen.contiguous(memory_format=torch.channels_last).float().mul_(1 / 255)
            features = self.bottom(pixels)
        else:
            features = self.bottom(seen)
        return self.policy(features), self.critic(features).squeeze(1)

    def log_prob(self, outputs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-probabilities and entropies of stored actions."""
        if self.log_std is None:
            logs = functional.log_softmax(outputs, dim=1)
            return logs.gather(1, actions.unsqueeze(1)).squeeze(1), -(logs.exp() * logs).sum(1)
        scaled = (actions - outputs) * (-self.log_std).exp()
        entropy = (self.log_std + 1.4189385).sum().expand(len(outputs))
        return (-0.5 * scaled.square() - self.log_std - 0.9189385).sum(1), entropy


class Loop:
    """Collect a batch, estimate advantages, take one step; called again and again."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.num, self.length = settings["num_games"], settings["fragment_length"]
        self.micro = settings["microbatch_size"] or self.num * self.length
        first, self.step, size, self.continuous = make_game(settings["game"], self.num)
        self.seen = torch.from_numpy(np.array(first))
        torch.manual_seed(0)
        self.network = Network(tuple(first.shape[1:]), size, self.continuous)
        self.optimiser = torch.optim.Adam(self.network.parameters(), LEARNING_RATE, fused=True)
        shape = (self.length, self.num)
        self.inputs = torch.zeros(*shape, *first.shape[1:], dtype=self.seen.dtype)
        tail = (size,) if self.continuous else ()
        self.actions = torch.zeros(*shape, *tail, dtype=torch.float32 if tail else torch.int64)
        self.logs, self.values = torch.zeros(shape), torch.zeros(self.length + 1, self.num)
        self.rewards, self.ends = np.zeros(shape, np.float32), np.zeros(shape, bool)

    def __call__(self) -> int:
        with torch.inference_mode():
            for t in range(self.length):
                self.inputs[t] = self.seen
                outputs, self.values[t] = self.network(self.seen)
                if self.continuous:
                    assert self.network.log_std is not None
                    noise = torch.randn_like(outputs)
                    actions = outputs + self.network.log_std.exp() * noise
                    self.logs[t] = (-0.5 * noise.square() - self.network.log_std - 0.9189).sum(1)
                else:
                    logs = functional.log_softmax(outputs, dim=1)
                    noise = torch.empty_like(logs).exponential_().log_()
                    actions = (logs - noise).argmax(dim=1)
                    self.logs[t] = logs.gather(1, actions.unsqueeze(1)).squeeze(1)
                self.actions[t] = actions
                seen, self.rewards[t], self.ends[t] = self.step(actions.numpy())
                self.seen = torch.from_numpy(seen)
            self.values[self.length] = self.network(self.seen)[1]
        self.learn()
        return self.num * self.length

    def learn(self) -> None:
        values = self.values.numpy()
        going_on = 1.0 - self.ends.astype(np.float32)
        advantages = self.rewards + DISCOUNT * values[1:] * going_on - values[:-1]
        for t in range(self.length - 2, -1, -1):
            advantages[t] += DISCOUNT * GAE_LAMBDA * going_on[t] * advantages[t + 1]
        targets = torch.from_numpy(advantages + values[:-1]).flatten()
        gains = torch.from_numpy(advantages).flatten()
        gains = (gains - gains.mean()) / (gains.std() + 1e-8)
        inputs, actions = self.inputs.flatten(0, 1), self.actions.flatten(0, 1)
        old, rows = self.logs.flatten(), self.num * self.length
        self.optimiser.zero_grad()
        for first in range(0, rows, self.micro):
            part = slice(first, first + self.micro)
            outputs, value = self.network(inputs[part])
            log_prob, entropy = self.network.log_prob(outputs, actions[part])
            ratio = (log_prob - old[part]).exp()
            gain = torch.minimum(ratio * gains[part], ratio.clamp(1 - CLIP, 1 + CLIP) * gains[part])
            loss = -gain + 0.5 * (value - targets[part]).square() - 0.01 * entropy
            (loss.sum() / rows).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.network.parameters(), 0.5)
        self.optimiser.step()


def main() -> None:
    settings: dict[str, Any] = json.loads(sys.argv[1])
    torch.set_num_threads(settings.get("threads", 1))
    loop = Loop(settings)
    for _ in range(2):
        loop()
    serve(loop, {})


if __name__ == "__main__":
    main()
