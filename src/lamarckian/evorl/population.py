"""A whole population of small networks trained in one process as one batched computation.

P members with networks of one shape play P x G matches of one batch game; their weights are stacked and
every layer is one batched matrix product. Each member keeps its own settings (learning rate, clip
range, loss weights, discounts), random streams, minibatches, gradient clipping and optimiser, so that
it learns what it would learn alone (``rl/ppo.py``) but for rounding.

Shape letters: ``P`` members, ``G`` matches of a member, ``N = G x seats`` its lanes, ``T`` decisions, ``B``
rows of a minibatch, ``K`` reward heads, ``D`` weights of one network, ``F`` features.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lamarckian import seeding
from lamarckian.errors import GameError
from lamarckian.evaluator import Decision, Outcome
from lamarckian.evorl.stacked import StackedAdam, StackedNetwork, StackedPolicy
from lamarckian.mdp.batch_game import BatchGame
from lamarckian.mdp.collector import CollectorSettings, Seating
from lamarckian.mdp.core import Arrays
from lamarckian.mdp.evaluation import MAX_DECISIONS, EvaluationResult
from lamarckian.mdp.guard import guard
from lamarckian.mdp.policy import draw_noise
from lamarckian.mdp.trajectory import EpisodeRecord, Trajectory
from lamarckian.mdp.vectorised import BatchCollector
from lamarckian.rl.assembly import EVALUATION_GAMES, Assembly, assemble
from lamarckian.rl.normalisers import RawValues
from lamarckian.rl.ppo import PPO, PPOLearner
from lamarckian.rl.returns import MAX_LOG_RATIO, generalised_advantages

if TYPE_CHECKING:
    from lamarckian.evorl.rl_evaluator import RLEvaluator

MAX_SKIPPED_IN_A_ROW = 10


def misfits(assembly: Assembly, algorithm: PPO) -> list[str]:
    """Return why members of this training cannot be trained together; nothing if they can."""
    reasons = []
    learners = assembly.seating.learners
    if len(learners) != 1:
        reasons.append(f"one training role is needed, there are {len(learners)}")
    role = assembly.roles[next(iter(learners))]
    if any(item.kind not in ("vector", "mask") for item in role.inputs.values()) or role.state:
        reasons.append("only vectors are batched, without central state")
    network = algorithm.network
    if network.memory != "none":
        reasons.append("a memory is not batched")
    if not network.shared or network.input_norm:
        reasons.append("the critic must share the policy's trunk, without input normalisation")
    if algorithm.target_kl:
        reasons.append("target_kl is not batched")
    if algorithm.normalise_values == "popart":
        reasons.append("normalise_values: popart is not batched")
    if not reasons:
        games = assembly.make_game(1)
        if not isinstance(games, BatchGame):
            reasons.append("the game is not stepped as arrays")
        for game in [games] if isinstance(games, BatchGame) else games:
            game.close()
    return reasons


class MemberStreams:
    """The streams of P collectors, drawn side by side: rows are divided evenly among members."""

    def __init__(self, seeds: Sequence[int], name: str = "collector") -> None:
        self.seeds = list(seeds)
        self._streams = [seeding.stream(seed, name) for seed in seeds]

    @property
    def rng(self) -> Any:
        """Looks like a numpy generator to whatever draws an array with a leading row axis."""
        return self

    def game_seeds(self, restart: int, num_games: int) -> NDArray[np.int64]:
        share = num_games // len(self.seeds)
        return np.concatenate(
            [
                seeding.stream(seed, "games", restart).integers(0, 2**31, share)
                for seed in self.seeds
            ]
        )

    def random(self, size: Any, dtype: Any = np.float64) -> Any:
        return self._drawn("random", size, dtype=dtype)

    def standard_normal(self, size: Any, dtype: Any = np.float64) -> Any:
        return self._drawn("standard_normal", size, dtype=dtype)

    def integers(self, low: Any, high: Any = None, size: Any = None, **options: Any) -> Any:
        return np.concatenate(
            [each.integers(low, high, self._share(size), **options) for each in self._streams]
        )

    def _drawn(self, kind: str, size: Any, **options: Any) -> Any:
        share = self._share(size)
        return np.concatenate([getattr(each, kind)(share, **options) for each in self._streams])

    def _share(self, size: Any) -> tuple[int, ...]:
        shape = (size,) if isinstance(size, int) else tuple(size)
        return (shape[0] // len(self._streams), *shape[1:])


class Population:
    """P members of one training, ready to collect and learn together."""

    def __init__(
        self,
        assembly: Assembly,
        algorithms: Sequence[PPO],
        learners: Sequence[PPOLearner],
        seeds: Sequence[int],
    ) -> None:
        self.assembly = assembly
        self.algorithms = list(algorithms)
        self.settings = algorithms[0]
        self.learners = list(learners)
        self.num_members = len(learners)
        (self.role_name, self.group), *_ = assembly.seating.learners.items()
        role = assembly.roles[self.role_name]
        heads = role.num_rewards
        policies = [learner.policy for learner in learners]
        self.network = StackedNetwork(policies)
        self.policy = StackedPolicy(role, self.network, policies[0].distribution)
        self._rngs = [
            seeding.stream(seeding.derive(seed, "learner", self.group), "learner") for seed in seeds
        ]
        games = assembly.make_game(self.num_members * self.settings.num_games)
        assert isinstance(games, BatchGame)
        self.collector = BatchCollector(
            games,
            Seating(
                {self.group: self.policy}, assembly.seating.learners, assembly.seating.opponents
            ),
            CollectorSettings(
                num_games=games.num_games,
                fragment_length=self.settings.fragment_length,
                discounts=lambda own: self.settings.per_head("discount", own.num_rewards),
                seed=0,
            ),
            MemberStreams([seeding.derive(seed, "actor", 0) for seed in seeds]),
        )
        self.lanes = self.settings.num_games * role.seats

        def per_lane(name: Any) -> NDArray[np.float32]:
            rows = [each.per_head(name, heads) for each in self.algorithms]
            return np.repeat(np.array(rows, np.float32), self.lanes, axis=0)

        self._discounts, self._lambdas = per_lane("discount"), per_lane("gae_lambda")
        weights = [learner.reward_weights for learner in self.learners]
        self._reward_weights = np.repeat(np.stack(weights), self.lanes, axis=0)
        self.optimiser = StackedAdam(
            self.network.weights,
            self._moments(),
            self._column("learning_rate"),
            self._column("max_gradient_norm"),
            self.settings.adam_epsilon,
        )

    def _column(self, name: str) -> Tensor:
        return torch.tensor([[float(getattr(each, name))] for each in self.algorithms])

    def _moments(self) -> tuple[Tensor, Tensor, Tensor]:
        shape = self.network.weights.shape
        mean, square = torch.zeros(shape), torch.zeros(shape)
        steps = torch.zeros(self.num_members, 1)
        for row, learner in enumerate(self.learners):
            _, arrays = learner.optimiser.state()
            if not arrays:
                continue
            for name, (start, end, _) in self.network.places.items():
                mean[row, start:end] = torch.from_numpy(arrays[f"exp_avg/{name}"].reshape(-1))
                square[row, start:end] = torch.from_numpy(arrays[f"exp_avg_sq/{name}"].reshape(-1))
                steps[row, 0] = float(arrays[f"step/{name}"])
        return mean, square, steps

    def iterate(self, on_bad_data: Any = "fail") -> list[dict[str, float]]:
        """Collect one batch of each member and learn from it; return each member's metrics."""
        trajectory = self.collector.collect()[self.group]
        guard(trajectory, game=self.assembly.training.game, on_bad_data=on_bad_data)
        return self.update(trajectory)

    def update(self, trajectory: Trajectory) -> list[dict[str, float]]:
        """One PPO update of every member; lanes of member p are ``[p N, (p + 1) N)``."""
        returns = generalised_advantages(trajectory, self._discounts, self._lambdas)
        advantages = (returns.advantages * self._reward_weights).sum(axis=-1)
        self._note_targets(returns.targets, trajectory.valid)
        batch = self._tensors(trajectory, advantages, returns.targets)
        rows = batch["valid"].shape[1]
        sums: dict[str, Tensor] = {}
        count = 0
        for _ in range(self.settings.num_epochs):
            for minibatch in self._minibatches(batch, rows):
                for name, value in self._step(minibatch).items():
                    kept = torch.where(torch.isfinite(value), value, 0.0)
                    sums[name] = sums[name] + kept if name in sums else kept
                count += 1
        self._note_inputs(trajectory)
        self.policy.version += 1
        return [
            {name: float(total[row]) / max(count, 1) for name, total in sums.items()}
            for row in range(self.num_members)
        ]

    def _note_targets(self, targets: NDArray[np.float32], valid: NDArray[np.bool_]) -> None:
        """Let the members' critics see their targets before the loss uses them."""
        if self.settings.normalise_values == "none":
            return
        for row, learner in enumerate(self.learners):
            mine = slice(row * self.lanes, (row + 1) * self.lanes)
            kept = torch.from_numpy(targets[:, mine][valid[:, mine]])
            learner.policy.update_value_statistics(RawValues(kept))
        self.network.refresh()

    def _note_inputs(self, trajectory: Trajectory) -> None:
        """Merge the observations into the members' statistics, for the next batch."""
        if not self.settings.normalise_observations:
            return
        for row, learner in enumerate(self.learners):
            mine = slice(row * self.lanes, (row + 1) * self.lanes)
            learner.policy.update_normalisers(
                {name: array[:, mine] for name, array in trajectory.inputs.items()},
                trajectory.valid[:, mine],
            )
        self.network.refresh()

    def _tensors(
        self, trajectory: Trajectory, advantages: NDArray[np.float32], targets: NDArray[np.float32]
    ) -> dict[str, Tensor]:
        """Return tensors ``[P, T N, ...]``, member by member in the order a lone learner uses."""
        length = trajectory.log_prob.shape[0]
        members, lanes = self.num_members, self.lanes

        def tensor(array: NDArray[Any]) -> Tensor:
            rest = array.shape[2:]
            split = array.reshape(length, members, lanes, *rest).swapaxes(0, 1)
            return torch.from_numpy(
                np.ascontiguousarray(split).reshape(members, length * lanes, *rest)
            )

        found = {
            "log_prob": tensor(trajectory.log_prob),
            "advantages": tensor(advantages),
            "targets": self.network.normalised_values(tensor(targets)),
            "values": self.network.normalised_values(tensor(trajectory.values)),
            "valid": tensor(trajectory.valid),
        }
        for prefix, group in (("legal", trajectory.legal), ("actions", trajectory.actions)):
            found |= {f"{prefix}/{name}": tensor(array) for name, array in group.items()}
        inputs = {name: tensor(array) for name, array in trajectory.inputs.items()}
        found["features"] = self.network.features(inputs)
        return found

    def _minibatches(self, batch: Mapping[str, Tensor], rows: int) -> Any:
        size = self.settings.minibatch_size or rows
        if size >= rows:
            yield dict(batch)
            return
        orders = np.stack([rng.permutation(rows) for rng in self._rngs])
        offsets = np.arange(self.num_members)[:, None] * rows
        flat = {name: tensor.flatten(0, 1) for name, tensor in batch.items()}
        edges = [*range(0, rows - size + 1, size), rows]
        for first, last in itertools.pairwise(edges):
            index = torch.from_numpy((orders[:, first:last] + offsets).reshape(-1))
            yield {
                name: tensor.index_select(0, index).reshape(
                    self.num_members, last - first, *tensor.shape[1:]
                )
                for name, tensor in flat.items()
            }

    def _step(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """One optimiser step of every member; the clipped objective of ``rl/ppo.py`` by member."""
        settings = self.settings
        valid = batch["valid"]
        num_valid = valid.sum(1).to(torch.float32)
        active = num_valid > 0
        divisor = num_valid.clamp(min=1.0)
        advantages = batch["advantages"]
        if settings.normalise_advantages:
            kept = torch.where(valid, advantages, 0.0)
            mean = kept.sum(1) / divisor
            centred = torch.where(valid, advantages - mean[:, None], 0.0)
            deviation = (centred.square().sum(1) / divisor).sqrt()
            normed = (advantages - mean[:, None]) / (deviation[:, None] + 1e-8)
            advantages = torch.where((num_valid > 1)[:, None], normed, advantages)
        leaf = self.network.weights.detach().requires_grad_()
        outputs, values = self.network.forward(leaf, batch["features"])
        members, rows = valid.shape
        legal = {k[6:]: v.flatten(0, 1) for k, v in batch.items() if k.startswith("legal/")}
        actions = {k[8:]: v.flatten(0, 1) for k, v in batch.items() if k.startswith("actions/")}
        flat = self.policy.distribution.evaluate(outputs.flatten(0, 1), legal, actions)
        log_prob, entropy, no_legal = (each.view(members, rows) for each in flat)
        keep = valid & ~no_legal
        log_ratio = (log_prob - batch["log_prob"]).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
        ratio = log_ratio.exp()
        clip = self._column("clip_range")
        gain = torch.minimum(
            ratio * advantages, torch.clamp(ratio, 1.0 - clip, 1.0 + clip) * advantages
        )
        policy_loss = -torch.where(keep, gain, 0.0).sum(1) / divisor
        squares = (values - batch["targets"]).square()
        if settings.value_clip_range is not None:
            limit = settings.value_clip_range
            moved = (values - batch["values"]).clamp(-limit, limit)
            squares = torch.maximum(squares, (batch["values"] + moved - batch["targets"]).square())
        value_loss = torch.where(valid, squares.mean(-1), 0.0).sum(1) / divisor
        entropy = torch.where(keep, entropy, 0.0).sum(1) / divisor
        losses = (
            self._column("policy_weight")[:, 0] * policy_loss
            + self._column("value_weight")[:, 0] * value_loss
            - self._column("entropy_weight")[:, 0] * entropy
        )
        # Members share no weight: the gradient of the sum is each member's own gradient.
        (gradient,) = torch.autograd.grad(losses.sum(), leaf)
        self.optimiser.step(gradient, losses.detach(), active)
        with torch.no_grad():
            divergence = torch.where(keep, ratio - 1 - log_ratio, 0.0).sum(1) / divisor
            return {
                "policy_loss": policy_loss.detach(),
                "value_loss": value_loss.detach(),
                "entropy": entropy.detach(),
                "approximate_kl": divergence,
            }

    def write_back(self) -> None:
        """Put the trained weights and moments into the members' own learners."""
        self.network.unstack()
        optimiser = self.optimiser
        for row, learner in enumerate(self.learners):
            moments: Arrays = {}
            for name, (start, end, shape) in self.network.places.items():
                moments[f"exp_avg/{name}"] = optimiser.mean[row, start:end].numpy().reshape(shape)
                moments[f"exp_avg_sq/{name}"] = (
                    optimiser.square[row, start:end].numpy().reshape(shape)
                )
                moments[f"step/{name}"] = optimiser.steps[row, 0].numpy().copy()
            learner.optimiser.load_state(
                {
                    "num_skipped": int(optimiser.num_skipped[row]),
                    "in_a_row": int(optimiser.in_a_row[row]),
                    "learning_rate": learner.settings.learning_rate,
                },
                moments,
            )

    def measure(self, num_episodes: int, seed: int, greedy: bool) -> list[EvaluationResult]:
        """Play each member's whole lives, as ``mdp.evaluation.evaluate`` does for one player."""
        members, role = self.num_members, self.policy.role
        share = min(num_episodes, EVALUATION_GAMES)
        game = self.assembly.make_game(members * share)
        assert isinstance(game, BatchGame)
        streams = MemberStreams([seed] * members, "evaluation players")
        seeds = seeding.stream(seed, "evaluation games").integers(0, 2**31, share)
        game.reset(np.tile(seeds, members))
        per_game = np.full(share, num_episodes // share)
        per_game += np.arange(share) < num_episodes % share
        quota = np.tile(np.repeat(per_game, role.seats), members)
        width = len(quota) // members
        returns = np.zeros((len(quota), role.num_rewards))
        lengths = np.zeros(len(quota), np.int64)
        memory = {"member": np.zeros(len(quota), np.int64)}
        results = [EvaluationResult([], seed, greedy) for _ in range(members)]
        others = self.assembly.seating.opponents
        while quota.any():
            actions: dict[str, Arrays] = {}
            for name in game.roles:
                seen = game.observe(name)
                if name != self.role_name:
                    bot: Any = others[name][1]
                    actions[name] = bot(seen.inputs, seen.legal, streams.rng)
                    continue
                noise = None if greedy else draw_noise(role, len(quota), streams.rng)
                actions[name] = self.policy.act(
                    seen.inputs, seen.legal, seen.state, memory, noise
                ).game_actions
            alive = game.alive(self.role_name)
            step = game.step(actions)[self.role_name]
            returns += step.rewards * alive[:, None]
            lengths += alive
            ended = (step.terminated | step.truncated) & alive
            for row in np.flatnonzero(ended & (quota > 0)).tolist():
                outcome = step.outcome(row)
                score, value = outcome.pop("score", None), outcome.pop("result", None)
                results[row // width].episodes.append(
                    EpisodeRecord(
                        role=self.role_name,
                        returns=tuple(returns[row].tolist()),
                        length=int(lengths[row]),
                        frames=int(lengths[row]) * game.frames_per_decision,
                        score=score,
                        result=None if value is None else round(value),
                        statistics=outcome,
                    )
                )
            quota[ended] -= quota[ended] > 0
            returns[ended] = 0
            lengths[ended] = 0
            if lengths.max() > MAX_DECISIONS:
                raise GameError(f"a life has not ended after {MAX_DECISIONS} decisions")
        game.close()
        return results

    def failed(self, row: int) -> str | None:
        """Return why a member cannot be used, or None."""
        if int(self.optimiser.in_a_row[row]) >= MAX_SKIPPED_IN_A_ROW:
            return f"{int(self.optimiser.in_a_row[row])} optimiser steps in a row were not finite"
        return None


def train_together(
    evaluator: RLEvaluator, decisions: Sequence[Decision], seeds: Sequence[int]
) -> list[Outcome]:
    """Do for several decisions what ``RLEvaluator.evaluate`` does for one, as one computation."""
    setup = evaluator.setup
    assemblies, algorithms, learners = [], [], []
    for decision, seed in zip(decisions, seeds, strict=True):
        algorithm = evaluator.algorithm_of(decision)
        assembly = assemble(msgspec.structs.replace(setup, algorithm=algorithm, seed=seed))
        own = evaluator.learners(assembly, algorithm, seed)
        weights = decision["weights"]
        assert isinstance(weights, dict)
        evaluator.inherit(own, weights)
        assemblies.append(assembly)
        algorithms.append(algorithm)
        learners.append(own)
    group = next(iter(learners[0]))
    population = Population(
        assemblies[0], algorithms, [own[group] for own in learners], list(seeds)
    )
    metrics: list[dict[str, float]] = [{} for _ in decisions]
    budget = evaluator.task.frames * len(decisions)
    try:
        while population.collector.num_frames < budget:
            metrics = population.iterate(setup.on_bad_data)
        frames = population.collector.num_frames // len(decisions)
    finally:
        population.collector.close()
    task = evaluator.task
    results = population.measure(task.episodes, evaluator.measuring_seed, task.greedy)
    population.write_back()
    reasons = [population.failed(row) for row in range(len(decisions))]
    return [
        evaluator.outcome(results[row], learners[row], metrics[row], frames)
        if reason is None
        else Outcome.failure(reason)
        for row, reason in enumerate(reasons)
    ]
