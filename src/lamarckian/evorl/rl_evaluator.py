"""Reinforcement learning as an evaluator: the Lamarckian step.

A decision is a set of hyperparameters (genes) and, as the blob ``weights``, a network with the
moments of its optimiser. Evaluating it means: load the inherited weights, put the individual's own genes
in force, train for a budget of frames, play whole games, and hand the trained weights back with the
outcome. The search then passes them on through memory; nothing is restarted and no file is read.

Loading comes before the genes (EVO-01): what a donor brings never decides how its heir learns, and
the values in force are checked and recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta

from lamarckian import seeding
from lamarckian.errors import ConfigError, EvaluatorError, nearest
from lamarckian.evaluator import (
    Array,
    Blob,
    BlobValue,
    Decision,
    Descriptor,
    Encoding,
    Objective,
    Outcome,
    Real,
)
from lamarckian.mdp.core import below
from lamarckian.mdp.evaluation import EvaluationResult
from lamarckian.mdp.guard import OnBadData, guard
from lamarckian.rl.assembly import Assembly, Training, assemble
from lamarckian.rl.ppo import PPO, PPOLearner

REWARD_WEIGHT = "reward_weights."
"""Prefix of the genes that weigh reward heads, e.g. ``reward_weights.damage``."""


class Gene(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The range of one evolving setting."""

    low: float
    high: float
    scale: Literal["linear", "log"] = "linear"


class Genes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of PPO that may evolve: numbers that can change while weights stay what they are.

    None is not evolved. The defaults are those of Table III of the Lamarckian paper: learning rate
    (0, 0.1] and critic weight (0, 1].
    """

    learning_rate: Gene | None = Gene(low=1e-5, high=0.1, scale="log")
    value_weight: Gene | None = Gene(low=0.01, high=1.0)
    entropy_weight: Gene | None = None
    policy_weight: Gene | None = None
    clip_range: Gene | None = None
    discount: Gene | None = None
    gae_lambda: Gene | None = None
    max_gradient_norm: Gene | None = None
    reward_weights: Annotated[
        dict[str, Gene],
        Meta(description="Reward head -> range of its weight; the other heads keep theirs."),
    ] = {}

    def evolving(self) -> dict[str, Gene]:
        """Return the genes that are not None, by setting; weights as ``reward_weights.<head>``."""
        found = {name: getattr(self, name) for name in self.__struct_fields__}
        weights = found.pop("reward_weights")
        return {
            **{name: gene for name, gene in found.items() if gene is not None},
            **{f"{REWARD_WEIGHT}{head}": gene for head, gene in weights.items()},
        }


class RLTask(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one evaluation of a player does: how it is trained, and how it is measured."""

    algorithm: Annotated[PPO, Meta(description="What learns; genes replace its settings.")] = PPO()
    frames: Annotated[
        int, Meta(ge=1, description="Frames of training per evaluation, rounded up to batches.")
    ] = 16_384
    episodes: Annotated[int, Meta(ge=1, description="Whole games played to measure.")] = 16
    greedy: Annotated[
        bool, Meta(description="Measure with the most likely action instead of a drawn one.")
    ] = False
    genes: Annotated[Genes, Meta(description="Settings that evolve, with their ranges.")] = Genes()
    inherit_optimiser: Annotated[
        bool, Meta(description="Moments of the optimiser are inherited with the weights.")
    ] = True
    learn: Annotated[
        tuple[str, ...],
        Meta(description="Roles that are trained; empty: the first if there is a bot, else all."),
    ] = ()
    opponent: Annotated[
        str, Meta(description="Bot of the other roles; empty: the game's first.")
    ] = ""
    on_bad_data: Annotated[
        OnBadData,
        Meta(description="NaN from the game: fail the evaluation, or drop the episode."),
    ] = "fail"


class RLSetup(Training, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A training of one game together with what evolves in it."""

    task: RLTask


def task_from(
    settings: Mapping[str, Any], options: Mapping[str, Any], kind: type[RLTask] = RLTask
) -> RLSetup:
    """Build the settings of :class:`RLEvaluator` from plain data.

    ``settings`` are those of ``kind`` and ``game``; ``seed`` is that of the measuring games,
    the same for everybody. ``options`` are those of the game. Raises ConfigError.
    """
    plain = dict(settings)
    game, seed = plain.pop("game"), plain.pop("seed", 0)
    try:
        task = msgspec.convert(plain, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"training: {error}") from None
    return RLSetup(
        game=game,
        game_options=dict(options),
        algorithm=task.algorithm,
        frames=task.frames,
        seed=seed,
        learn=task.learn,
        opponent=task.opponent,
        on_bad_data=task.on_bad_data,
        task=task,
    )


class RLEvaluator:
    """Evaluates players of a game by training them.

    Raises ConfigError for genes that cannot evolve, and what ``assemble`` raises for the game.
    """

    def __init__(self, setup: RLSetup) -> None:
        self.setup = setup
        self.task = setup.task
        self.genes = setup.task.genes.evolving()
        _check(setup.task)
        self.assembly = assemble(setup)
        self._heads = self._reward_heads()
        self._encoding = Encoding(
            parts={
                **{
                    name: Real(gene.low, gene.high, scale=gene.scale)
                    for name, gene in self.genes.items()
                },
                "weights": Blob(self._shapes()),
            },
            objectives=self.objectives(),
            descriptors=self.descriptors(),
        )

    def objectives(self) -> tuple[Objective, ...]:
        """Return what is searched for; :meth:`price` measures it."""
        return (Objective("score", "maximize"),)

    def descriptors(self) -> tuple[Descriptor, ...]:
        """Return what is told of a player besides its objectives; :meth:`price` measures it."""
        return ()

    def price(self, result: EvaluationResult) -> tuple[dict[str, float], dict[str, float]]:
        """Return objectives and descriptors of measured games, by name."""
        return {"score": result.main_score()}, {}

    def _shapes(self) -> dict[str, tuple[tuple[int, ...], str]]:
        arrays = self.weights_of(self.learners(self.assembly, self.task.algorithm, 0))
        return {name: (array.shape, array.dtype.name) for name, array in arrays.items()}

    def _reward_heads(self) -> tuple[str, ...]:
        """Return the reward heads that weights are for. Raises ConfigError for a strange one."""
        weights = [name for name in self.genes if name.startswith(REWARD_WEIGHT)]
        heads = {role.rewards for role in map(self.assembly.roles.get, self._learners()) if role}
        if weights and len(heads) > 1:
            raise ConfigError(
                "training.genes.reward_weights: the trained roles have different reward heads; "
                "train one of them with learn"
            )
        known = next(iter(heads))
        for name in weights:
            head = name.removeprefix(REWARD_WEIGHT)
            if head not in known:
                raise ConfigError(
                    f"training.genes.{name}: the role has no reward head {head!r}"
                    f"{nearest(head, known) or ';'} heads: {', '.join(known)}"
                )
        return known

    def _learners(self) -> tuple[str, ...]:
        return tuple(self.assembly.seating.learners)

    def describe(self) -> Encoding:
        return self._encoding

    def initialize(self, rng: np.random.Generator) -> Decision:
        """Draw genes within their ranges and weights as the network itself begins."""
        decision: Decision = {
            name: part.sample(rng)
            for name, part in self._encoding.parts.items()
            if isinstance(part, Real)
        }
        seed = int(rng.integers(2**31))
        assembly = assemble(msgspec.structs.replace(self.setup, seed=seed))
        decision["weights"] = self.weights_of(self.learners(assembly, self.task.algorithm, seed))
        return decision

    def evaluate(self, decision: Decision, rng: np.random.Generator) -> Outcome:
        """Train from the inherited weights for the budget, then play whole games."""
        seed = int(rng.integers(2**31))
        algorithm = self.algorithm_of(decision)
        setup = msgspec.structs.replace(self.setup, algorithm=algorithm, seed=seed)
        assembly = assemble(setup)
        learners = self.learners(assembly, algorithm, seed)
        weights = decision["weights"]
        assert isinstance(weights, dict)
        self.inherit(learners, weights)
        collector = assembly.make_collector(algorithm.num_games, seeding.derive(seed, "actor", 0))
        metrics: dict[str, float] = {}
        try:
            while collector.num_frames < self.task.frames:
                for group, trajectory in collector.collect().items():
                    guard(trajectory, game=setup.game, on_bad_data=setup.on_bad_data)
                    metrics |= learners[group].update(trajectory)
            frames = collector.num_frames
        finally:
            collector.close()
        result = assembly.evaluate(
            num_episodes=self.task.episodes, seed=self.measuring_seed, greedy=self.task.greedy
        )
        return self.outcome(result, learners, metrics, frames)

    @property
    def measuring_seed(self) -> int:
        """Seed of the games played to measure: everybody plays the same ones."""
        return seeding.derive(self.setup.seed, "evaluation")

    @property
    def can_group(self) -> bool:
        """Whether members can be trained together as one computation (``evorl/population.py``)."""
        from lamarckian.evorl.population import misfits

        return not misfits(self.assembly, self.task.algorithm)

    def evaluate_group(
        self, decisions: Sequence[Decision], streams: Sequence[np.random.Generator]
    ) -> list[Outcome]:
        """Train several members as one batched computation; then each plays its games."""
        from lamarckian.evorl.population import train_together

        return train_together(self, decisions, [int(rng.integers(2**31)) for rng in streams])

    # The steps of an evaluation.

    def algorithm_of(self, decision: Decision) -> PPO:
        """Return the settings with the genes of ``decision`` in force."""
        genes: dict[str, Any] = {name: float(np.asarray(decision[name])) for name in self.genes}
        weights = {
            name.removeprefix(REWARD_WEIGHT): genes.pop(name)
            for name in self.genes
            if name.startswith(REWARD_WEIGHT)
        }
        if weights:
            given = self.task.algorithm.reward_weights or (1.0,) * len(self._heads)
            genes["reward_weights"] = tuple(
                weights.get(head, weight) for head, weight in zip(self._heads, given, strict=True)
            )
        return msgspec.structs.replace(self.task.algorithm, **genes)

    def learners(self, assembly: Assembly, algorithm: PPO, seed: int) -> dict[str, PPOLearner]:
        """Return one learner per group of policies."""
        return {
            group: algorithm.make_learner(policy, seeding.derive(seed, "learner", group))
            for group, policy in assembly.policies.items()
        }

    def inherit(self, learners: Mapping[str, PPOLearner], weights: BlobValue) -> None:
        """Load inherited weights, then put the heir's own settings in force.

        Raises EvaluatorError if a setting in force is not the heir's.
        """
        for group, learner in learners.items():
            prefix = f"policy/{group}/"
            learner.policy.load_arrays(below(prefix, weights))
            moments = below(f"optimiser/{group}/", weights)
            for name, array in moments.items():
                if name.startswith(("exp_avg_sq/", "step/")):
                    moments[name] = np.asarray(np.maximum(array, 0.0))  # a search may add noise
            learner.optimiser.load_state(
                {"num_skipped": 0, "in_a_row": 0, "learning_rate": 0.0}, moments
            )
            learner.optimiser.set_learning_rate(learner.settings.learning_rate)
            wanted = learner.settings.learning_rate
            if learner.optimiser.learning_rate != wanted:
                raise EvaluatorError(
                    f"learning rate in force is {learner.optimiser.learning_rate}, the "
                    f"individual's gene says {wanted}"
                )

    def player(self, weights: BlobValue) -> Assembly:
        """Return game, seating and policies with ``weights``, ready to play and not to learn."""
        assembly = assemble(self.setup)
        for group, policy in assembly.policies.items():
            policy.load_arrays(below(f"policy/{group}/", weights))
            policy.eval()
        return assembly

    def weights_of(self, learners: Mapping[str, PPOLearner]) -> BlobValue:
        """Return weights and, if they are inherited, optimiser moments as named arrays."""
        arrays: BlobValue = {}
        for group, learner in learners.items():
            for name, array in learner.policy.arrays().items():
                if name != "version":
                    arrays[f"policy/{group}/{name}"] = array
            if not self.task.inherit_optimiser:
                continue
            _, moments = learner.optimiser.state()
            if not moments:
                moments = fresh_moments(learner)
            arrays |= {f"optimiser/{group}/{name}": array for name, array in moments.items()}
        return arrays

    def outcome(
        self,
        result: EvaluationResult,
        learners: Mapping[str, PPOLearner],
        metrics: Mapping[str, float],
        frames: int,
    ) -> Outcome:
        """Return the outcome of the measured games, with the trained weights."""
        learner = next(iter(learners.values()))
        statistics = {
            "frames": float(frames),
            **{name: value for name, value in result.metrics().items() if np.isfinite(value)},
            **{
                name: metrics[name]
                for name in ("entropy", "approximate_kl", "explained_variance")
                if name in metrics
            },
            # As they were in force during the last update, to be compared with the genes.
            "in_force/learning_rate": learner.optimiser.learning_rate,
            **{
                f"in_force/{name}": self._in_force(learner, name)
                for name in self.genes
                if name != "learning_rate"
            },
        }
        objectives, descriptors = self.price(result)
        return self._encoding.outcome(
            objectives,
            descriptors=descriptors,
            statistics=statistics,
            decision={"weights": self.weights_of(learners)},
        )

    def _in_force(self, learner: PPOLearner, gene: str) -> float:
        if gene.startswith(REWARD_WEIGHT):
            head = self._heads.index(gene.removeprefix(REWARD_WEIGHT))
            return float(learner.reward_weights[head])
        return float(getattr(learner.settings, gene))


def fresh_moments(learner: PPOLearner) -> dict[str, Array]:
    """Return the moments of an optimiser that has not taken a step: zeros."""
    moments: dict[str, Array] = {}
    for name, parameter in learner.policy.named_parameters():
        if parameter.requires_grad:
            shape = tuple(parameter.shape)
            moments[f"step/{name}"] = np.zeros((), np.float32)
            moments[f"exp_avg/{name}"] = np.zeros(shape, np.float32)
            moments[f"exp_avg_sq/{name}"] = np.zeros(shape, np.float32)
    return moments


def _check(task: RLTask) -> None:
    """Refuse genes that are no settings, ranges the settings do not allow, and idle settings."""
    if task.algorithm.learning_rate_schedule != "constant":
        raise ConfigError(
            "training.algorithm.learning_rate_schedule: has no effect in an evolution, where the "
            "learning rate is a gene or constant within an evaluation"
        )
    for name, gene in task.genes.evolving().items():
        if name.startswith(REWARD_WEIGHT):
            continue  # any number may be a weight; its head is checked against the game's
        for bound in (gene.low, gene.high):
            plain = {**msgspec.to_builtins(task.algorithm), name: bound}
            try:
                msgspec.convert(plain, PPO)
            except msgspec.ValidationError as error:
                raise ConfigError(f"training.genes.{name}: {bound}: {error}") from None
