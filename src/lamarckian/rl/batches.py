"""A trajectory as tensors, cut into minibatches, and the figures every update reports.

Shape letters: ``T`` decisions, ``N`` lanes, ``B`` rows, ``C`` chunks of a lane, ``K`` reward heads.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lamarckian.errors import ConfigError
from lamarckian.mdp.core import Array
from lamarckian.mdp.trajectory import Trajectory
from lamarckian.rl.policy import Evaluation, TorchPolicy


@dataclass(slots=True)
class Batch:
    """Decisions as tensors: leading axes ``[T*N]``, or ``[chunk, C*N]`` (steps, sequences) with memory.

    ``columns`` is what the algorithm itself holds per decision, name -> ``[..., *]``: log-probabilities,
    advantages, targets. ``starts`` is None without memory; ``recurrent`` is the memory before each sequence.
    """

    inputs: dict[str, Tensor]
    legal: dict[str, Tensor]
    state: dict[str, Tensor]
    actions: dict[str, Tensor]
    valid: Tensor
    columns: dict[str, Tensor]
    starts: Tensor | None
    recurrent: dict[str, Tensor]

    @property
    def num_rows(self) -> int:
        """Rows that can be picked: decisions, or sequences where there is a memory."""
        return int(self.valid.shape[-1])

    @property
    def row_length(self) -> int:
        """Decisions in a row: 1, or the length of a sequence."""
        return 1 if self.starts is None else int(self.valid.shape[0])

    def rows(self, index: Tensor | slice) -> Batch:
        """Select rows, or whole sequences where there is a memory."""
        axis = 0 if self.starts is None else 1

        def pick(tensor: Tensor, axis: int = axis) -> Tensor:
            if isinstance(index, slice):
                return tensor[index] if axis == 0 else tensor[:, index]
            return tensor.index_select(axis, index)

        def each(group: dict[str, Tensor], axis: int = axis) -> dict[str, Tensor]:
            return {name: pick(tensor, axis) for name, tensor in group.items()}

        return Batch(
            each(self.inputs),
            each(self.legal),
            each(self.state),
            each(self.actions),
            pick(self.valid),
            each(self.columns),
            None if self.starts is None else pick(self.starts),
            each(self.recurrent, axis=0),
        )

    def minibatches(self, size: int, rng: np.random.Generator) -> Iterator[Batch]:
        """Yield one epoch of minibatches of about ``size`` decisions, shuffled; 0: one of all.

        Whole sequences where there is a memory. The last one takes the remainder rather than making a
        tiny one with a noisy gradient.
        """
        num = self.num_rows
        rows = max(1, size // self.row_length) if size else num
        if rows >= num:
            yield self
            return
        order = torch.from_numpy(rng.permutation(num)).to(self.valid.device)
        edges = [*range(0, num - rows + 1, rows), num]
        for first, last in itertools.pairwise(edges):
            yield self.rows(order[first:last])

    def evaluate(self, policy: TorchPolicy) -> Evaluation:
        """Return the decisions as the present weights see them (see ``evaluate_actions``)."""
        return policy.evaluate_actions(
            self.inputs,
            self.legal,
            self.state,
            self.actions,
            recurrent=self.recurrent or None,
            starts=self.starts,
        )


def sequence_length(trajectory: Trajectory) -> int:
    """Return the decisions per sequence: the trajectory's chunks, or 0 without memory.

    Raises ConfigError if its length is no multiple of theirs.
    """
    length, chunk = len(trajectory.log_prob), trajectory.chunk_length
    if not trajectory.recurrent:
        return 0
    if length % chunk:
        raise ConfigError(
            f"algorithm.fragment_length: expected a multiple of chunk_length ({chunk}) for a "
            f"policy with memory, got {length}"
        )
    return chunk


def to_tensor(trajectory: Trajectory, array: Array, device: torch.device) -> Tensor:
    """Return a column of ``trajectory``, ``[T, N, ...]``, with the leading axes of a :class:`Batch`."""
    length, lanes = trajectory.log_prob.shape
    chunk = sequence_length(trajectory)
    rest = array.shape[2:]
    if chunk:
        steps = array.reshape(length // chunk, chunk, lanes, *rest)
        array = np.moveaxis(steps, 1, 0).reshape(chunk, -1, *rest)
    else:
        array = array.reshape(length * lanes, *rest)
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)


def to_batch(
    trajectory: Trajectory, device: torch.device, columns: Mapping[str, Array] | None = None
) -> Batch:
    """Return ``trajectory`` as tensors on ``device``, with ``columns`` (name -> ``[T, N, ...]``)."""

    def tensor(array: Array) -> Tensor:
        return to_tensor(trajectory, array, device)

    def each(group: Mapping[str, Array]) -> dict[str, Tensor]:
        return {name: tensor(array) for name, array in group.items()}

    has_memory = sequence_length(trajectory) > 0
    return Batch(
        each(trajectory.inputs),
        each(trajectory.legal),
        each(trajectory.state),
        each(trajectory.actions),
        tensor(trajectory.valid),
        each(columns or {}),
        tensor(trajectory.starts) if has_memory else None,
        {
            name: torch.from_numpy(array.reshape(-1, *array.shape[2:])).to(device)
            for name, array in (trajectory.recurrent if has_memory else {}).items()
        },
    )


def time_major(tensor: Tensor, trajectory: Trajectory) -> NDArray[np.float32]:
    """Return a column of :func:`to_batch` as ``[T, N, ...]`` again, without gradient."""
    length, lanes = trajectory.log_prob.shape
    array: NDArray[np.float32] = tensor.detach().cpu().numpy()
    chunk = sequence_length(trajectory)
    if not chunk:
        return array.reshape(length, lanes, *array.shape[1:])
    rest = array.shape[2:]
    steps = array.reshape(chunk, length // chunk, lanes, *rest)
    return np.moveaxis(steps, 0, 1).reshape(length, lanes, *rest)


class Totals:
    """Running means of what the optimiser steps of one update report."""

    def __init__(self) -> None:
        self.sums: dict[str, float] = {}
        self.count = 0

    def add(self, terms: dict[str, float]) -> None:
        """Count one step; figures that are not finite are left out."""
        self.count += 1
        for name, value in terms.items():
            if np.isfinite(value):
                self.sums[name] = self.sums.get(name, 0.0) + value

    def means(self) -> dict[str, float]:
        """Return the mean of each figure."""
        return {name: total / self.count for name, total in self.sums.items()}


def explained_variance(targets: NDArray[np.float32], trajectory: Trajectory) -> float:
    """1 - Var(target - value) / Var(target) over all heads; 0 where targets do not vary."""
    wanted = targets[trajectory.valid]
    variance = float(wanted.var()) if len(wanted) else 0.0
    if variance == 0.0:
        return 0.0
    return 1.0 - float((wanted - trajectory.values[trajectory.valid]).var()) / variance


def staleness(version: int, trajectory: Trajectory) -> dict[str, float]:
    """Return how many versions behind ``version`` the decisions were drawn: mean, p95, max."""
    behind = version - trajectory.policy_version[trajectory.valid]
    return {
        "staleness_mean": float(behind.mean()) if len(behind) else 0.0,
        "staleness_p95": float(np.percentile(behind, 95)) if len(behind) else 0.0,
        "staleness_max": float(behind.max()) if len(behind) else 0.0,
    }
