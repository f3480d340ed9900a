"""Joint action distributions: masked choices, Gaussians, and any mixture of them.

A policy head puts out one row of numbers per controller; :class:`ActionDistribution` knows which
columns belong to which action part. Samples are a deterministic function of the caller's noise, so
training, evaluation, bundles and ONNX files agree. Raw continuous numbers are what is stored and
what the log-probability refers to; see :func:`lamarckian.mdp.core.to_game_action` for the way to
the game.

Shape letters: ``B`` batch, ``P`` head outputs, ``A`` actions of one choice, ``S`` continuous
numbers,
``Z`` noise columns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from lamarckian.errors import UnsupportedSpace
from lamarckian.mdp.core import Bounds, Continuous, Discrete, MultiDiscrete, Role, to_game_action

LOG_TWO_PI = math.log(2.0 * math.pi)
QUADRATURE_NODES = 48


@dataclass(frozen=True, slots=True)
class Choice:
    """One categorical draw: columns of the head, of the part's mask, and of the noise."""

    name: str
    index: int | None  # component of a multi-discrete part, None for a discrete one
    start: int
    size: int
    mask_start: int
    masked: bool
    noise: int


@dataclass(frozen=True, slots=True)
class Gaussian:
    """One diagonal Gaussian part: ``size`` means and as many log standard deviations."""

    name: str
    part: Continuous
    start: int  # of the means
    log_std: int  # start of the log standard deviations, behind all means of all parts
    size: int
    noise: int


@dataclass(frozen=True, slots=True)
class ChoiceTerms:
    """Log-probabilities ``[B, A]`` of one choice; ``any_legal`` ``[B, 1]`` or None if unmasked."""

    log_probs: Tensor
    allowed: Tensor | None
    any_legal: Tensor | None


def masked_log_softmax(logits: Tensor, legal: Tensor | None) -> ChoiceTerms:
    """Return log-probabilities ``[B, A]`` where illegal actions have no part in the normaliser.

    ``logits`` float32 ``[B, A]``, ``legal`` bool ``[B, A]`` or None. Illegal entries get the lowest
    finite number, never ``-inf``: multiplied by a zero probability that would be NaN. A row without
    a legal action becomes the uniform distribution and is cut from the gradient.
    """
    if legal is None:
        return ChoiceTerms(functional.log_softmax(logits, dim=-1), None, None)
    any_legal = legal.any(dim=-1, keepdim=True)
    allowed = legal | ~any_legal
    lowest = torch.finfo(logits.dtype).min
    chosen = torch.where(any_legal, logits, torch.zeros_like(logits))
    log_probs = functional.log_softmax(torch.where(allowed, chosen, lowest), dim=-1)
    # The maximum shift can push an illegal entry to -inf; select it back to a finite number.
    return ChoiceTerms(torch.where(allowed, log_probs, lowest), allowed, any_legal)


def choose(terms: ChoiceTerms, uniform: Tensor | None) -> Tensor:
    """Return int64 ``[B]``: the inverse CDF at ``uniform`` ``[B]``, or the mode."""
    if uniform is None:
        return terms.log_probs.argmax(dim=-1)
    probabilities = terms.log_probs.exp()
    if terms.allowed is not None:
        probabilities = torch.where(terms.allowed, probabilities, torch.zeros_like(probabilities))
    edges = probabilities.cumsum(dim=-1)
    total = edges[:, -1:].contiguous()
    drawn = torch.searchsorted(edges, uniform.unsqueeze(-1) * total, right=True)
    # Rounding may carry uniform * total to total itself: stop at the last action with a share. A row
    # of NaN still gives an index that exists, so that a guard meets NaN and not an index error.
    last = torch.searchsorted(edges, total).clamp_max_(edges.shape[-1] - 1)
    return torch.minimum(drawn, last).squeeze(-1)


def explore(terms: ChoiceTerms, epsilon: Tensor) -> ChoiceTerms:
    """Return the epsilon-greedy choice around the largest log-probability, as terms ``[B, A]``.

    With ``epsilon`` (scalar in [0, 1]) one of the legal actions is drawn uniformly, else the best one.
    """
    best = torch.zeros_like(terms.log_probs)
    best.scatter_(1, terms.log_probs.argmax(dim=-1, keepdim=True), 1.0)
    allowed = torch.ones_like(best) if terms.allowed is None else terms.allowed.float()
    shares = epsilon * allowed / allowed.sum(dim=-1, keepdim=True) + (1.0 - epsilon) * best
    lowest = torch.finfo(shares.dtype).min
    log_probs = torch.where(shares > 0, shares.log(), lowest)
    return ChoiceTerms(log_probs, terms.allowed, terms.any_legal)


def choice_entropy(terms: ChoiceTerms) -> Tensor:
    """Return the entropy ``[B]``, nats; a row without a legal action contributes nothing."""
    probabilities = terms.log_probs.exp()
    products = probabilities * terms.log_probs
    if terms.allowed is None or terms.any_legal is None:
        return -products.sum(dim=-1)
    kept = torch.where(terms.allowed & terms.any_legal, products, torch.zeros_like(products))
    return -kept.sum(dim=-1)


def choice_kl(first: ChoiceTerms, second: ChoiceTerms) -> Tensor:
    """Return KL(first, second) ``[B]`` from log-probabilities, finite at probability zero."""
    difference = first.log_probs - second.log_probs
    products = first.log_probs.exp() * difference
    if first.allowed is not None:
        products = torch.where(first.allowed, products, torch.zeros_like(products))
    return products.sum(dim=-1).clamp_min(0.0)


def limit_log_std(raw: Tensor, low: float, high: float, soft: bool) -> Tensor:
    """Keep ``raw`` within ``[low, high]``: by softplus on both sides, or by clamping."""
    if not soft:
        return raw.clamp(low, high)
    upper = high - functional.softplus(high - raw)
    return low + functional.softplus(upper - low)


def unlimited_log_std(value: float, low: float, high: float, soft: bool) -> float:
    """Return the raw number that :func:`limit_log_std` maps to ``value``."""
    if not soft:
        return value
    upper = low + _softplus_inverse(value - low)
    return high - _softplus_inverse(high - upper)


def _softplus_inverse(value: float) -> float:
    return value + math.log(-math.expm1(-value))


def gaussian_log_prob(mean: Tensor, log_std: Tensor, raw: Tensor) -> Tensor:
    """Return the log-density ``[B]`` of ``raw`` ``[B, S]`` under independent Gaussians."""
    scaled = (raw - mean) * torch.exp(-log_std)
    return (-0.5 * scaled.square() - log_std).sum(dim=-1) - 0.5 * LOG_TWO_PI * mean.shape[-1]


def gaussian_kl(mean: Tensor, log_std: Tensor, mean2: Tensor, log_std2: Tensor) -> Tensor:
    """Return KL ``[B]`` between two diagonal Gaussians, all arguments ``[B, S]``."""
    ratio = torch.exp(2.0 * (log_std - log_std2))
    shift = ((mean - mean2) * torch.exp(-log_std2)).square()
    return (log_std2 - log_std + 0.5 * (ratio + shift - 1.0)).sum(dim=-1)


def log_tanh_slope(raw: Tensor) -> Tensor:
    """Return ``log(1 - tanh(raw)^2)`` without overflow or cancellation."""
    return 2.0 * (math.log(2.0) - raw - functional.softplus(-2.0 * raw))


class ActionDistribution:
    """The joint distribution over a role's action parts, given head outputs ``[B, P]``.

    The first ``num_locations`` columns are logits and means in the order of the role's parts; the
    log standard deviations of all continuous parts follow.

    For ``bounds="tanh"`` the log-probability of bounded numbers is the density of the game's action
    (Jacobian of tanh and of the scaling included); for ``clip`` it is the density of the raw number
    before clipping. Unbounded numbers are plain Gaussians.

    Raises UnsupportedSpace for an action part of an unknown type.
    """

    def __init__(self, role: Role, bounds: Bounds) -> None:
        self.bounds: Bounds = bounds
        self.choices: list[Choice] = []
        self.gaussians: list[Gaussian] = []
        self.parts = dict(role.actions)
        column = noise = spread = 0
        located: list[tuple[str, Continuous, int, int, int]] = []
        for name, part in role.actions.items():
            if isinstance(part, Continuous):
                located.append((name, part, column, spread, noise))
                column += part.size
                spread += part.size
                noise += part.size
            elif isinstance(part, Discrete | MultiDiscrete):
                sizes = (part.num,) if isinstance(part, Discrete) else part.nums
                mask_start = 0
                for index, size in enumerate(sizes):
                    which = None if isinstance(part, Discrete) else index
                    masked = name in role.masked
                    self.choices.append(
                        Choice(name, which, column, size, mask_start, masked, noise)
                    )
                    column += size
                    noise += 1
                    mask_start += size
            else:
                raise UnsupportedSpace(
                    f"action part {name!r}: expected Discrete, MultiDiscrete or Continuous, "
                    f"got {type(part).__name__}"
                )
        self.num_locations = column
        self.num_outputs = column + spread
        self.num_noise = noise
        for name, part, start, offset, first in located:
            self.gaussians.append(Gaussian(name, part, start, column + offset, part.size, first))
        self._squashed = {
            item.name: torch.from_numpy(item.part.bounded)
            for item in self.gaussians
            if bounds == "tanh" and item.part.bounded.any()
        }
        self._log_scale = {
            item.name: torch.from_numpy(_log_half_width(item.part)) for item in self.gaussians
        }
        nodes, weights = np.polynomial.hermite_e.hermegauss(QUADRATURE_NODES)
        self._nodes = torch.from_numpy(nodes.astype(np.float32))
        self._weights = torch.from_numpy((weights / math.sqrt(2 * math.pi)).astype(np.float32))

    def segments(self) -> list[tuple[str, int, int]]:
        """Return ``(label, start, size)`` of the head's columns, for the naming of weights."""
        found = [
            (
                item.name if item.index is None else f"{item.name}.{item.index}",
                item.start,
                item.size,
            )
            for item in self.choices
        ]
        for item in self.gaussians:
            found.append((f"{item.name}.mean", item.start, item.size))
            found.append((f"{item.name}.log_std", item.log_std, item.size))
        return sorted(found, key=lambda entry: entry[1])

    def terms(self, choice: Choice, outputs: Tensor, legal: Mapping[str, Tensor]) -> ChoiceTerms:
        """Return the log-probabilities of one choice."""
        logits = outputs[:, choice.start : choice.start + choice.size]
        mask = None
        if choice.masked:
            mask = legal[choice.name][:, choice.mask_start : choice.mask_start + choice.size]
        return masked_log_softmax(logits, mask)

    def sample(
        self,
        outputs: Tensor,
        legal: Mapping[str, Tensor],
        noise: Tensor | None,
        epsilon: Tensor | None = None,
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Return raw actions (part -> ``[B, ...]``) and their joint log-probability ``[B]``.

        ``noise`` float32 ``[B, Z]`` as drawn by :func:`lamarckian.mdp.policy.draw_noise`; None asks
        for the most likely action. With ``epsilon`` the outputs are action values: choices are
        epsilon-greedy, and None asks for the best action.
        """
        columns: dict[str, list[Tensor]] = {}
        total: Tensor | None = None
        for choice in self.choices:
            terms = self.terms(choice, outputs, legal)
            uniform = None if noise is None else noise[:, choice.noise]
            best = choose(terms, None) if uniform is None else None
            if epsilon is not None:
                terms = explore(terms, epsilon)
            drawn = choose(terms, uniform) if best is None else best
            log_prob = terms.log_probs.gather(1, drawn.unsqueeze(1)).squeeze(1)
            total = log_prob if total is None else total + log_prob
            columns.setdefault(choice.name, []).append(drawn)
        actions: dict[str, Tensor] = {}
        for name, part in self.parts.items():
            if name in columns:
                drawn_columns = columns[name]
                discrete = isinstance(part, Discrete)
                actions[name] = drawn_columns[0] if discrete else torch.stack(drawn_columns, dim=1)
        for item in self.gaussians:
            mean, log_std = self._moments(item, outputs)
            raw = mean
            if noise is not None:
                raw = mean + log_std.exp() * noise[:, item.noise : item.noise + item.size]
            log_prob = self._gaussian_log_prob(item, mean, log_std, raw)
            total = log_prob if total is None else total + log_prob
            actions[item.name] = raw
        assert total is not None  # a role has at least one part
        return actions, total

    def log_prob(
        self, outputs: Tensor, legal: Mapping[str, Tensor], actions: Mapping[str, Tensor]
    ) -> Tensor:
        """Return the joint log-probability ``[B]`` of stored raw actions."""
        return self.evaluate(outputs, legal, actions, with_entropy=False)[0]

    def evaluate(
        self,
        outputs: Tensor,
        legal: Mapping[str, Tensor],
        actions: Mapping[str, Tensor],
        with_entropy: bool = True,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return joint log-probability, entropy (nats) and ``no_legal``, all ``[B]``."""
        total = outputs.new_zeros(outputs.shape[0])
        entropy = outputs.new_zeros(outputs.shape[0])
        no_legal = torch.zeros(outputs.shape[0], dtype=torch.bool, device=outputs.device)
        for choice in self.choices:
            terms = self.terms(choice, outputs, legal)
            stored = actions[choice.name]
            if choice.index is not None:
                stored = stored[:, choice.index]
            total = total + terms.log_probs.gather(1, stored.unsqueeze(1)).squeeze(1)
            if with_entropy:
                entropy = entropy + choice_entropy(terms)
            if terms.any_legal is not None:
                no_legal = no_legal | ~terms.any_legal.squeeze(1)
        for item in self.gaussians:
            mean, log_std = self._moments(item, outputs)
            total = total + self._gaussian_log_prob(item, mean, log_std, actions[item.name])
            if with_entropy:
                entropy = entropy + self._gaussian_entropy(item, mean, log_std)
        return total, entropy, no_legal

    def entropy(self, outputs: Tensor, legal: Mapping[str, Tensor]) -> Tensor:
        """Return the joint entropy ``[B]``, nats (sum over parts)."""
        entropy = outputs.new_zeros(outputs.shape[0])
        for choice in self.choices:
            entropy = entropy + choice_entropy(self.terms(choice, outputs, legal))
        for item in self.gaussians:
            entropy = entropy + self._gaussian_entropy(item, *self._moments(item, outputs))
        return entropy

    def kl(self, first: Tensor, second: Tensor, legal: Mapping[str, Tensor]) -> Tensor:
        """Return KL(first, second) ``[B]`` between two head outputs under the same masks."""
        total = first.new_zeros(first.shape[0])
        for choice in self.choices:
            total = total + choice_kl(
                self.terms(choice, first, legal), self.terms(choice, second, legal)
            )
        for item in self.gaussians:
            total = total + gaussian_kl(*self._moments(item, first), *self._moments(item, second))
        return total

    def game_actions(self, actions: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Map raw numpy actions to what the game receives."""
        result = dict(actions)
        for item in self.gaussians:
            result[item.name] = to_game_action(item.part, actions[item.name], self.bounds)
        return result

    def _moments(self, item: Gaussian, outputs: Tensor) -> tuple[Tensor, Tensor]:
        return (
            outputs[:, item.start : item.start + item.size],
            outputs[:, item.log_std : item.log_std + item.size],
        )

    def _gaussian_log_prob(
        self, item: Gaussian, mean: Tensor, log_std: Tensor, raw: Tensor
    ) -> Tensor:
        log_prob = gaussian_log_prob(mean, log_std, raw)
        squashed = self._squashed.get(item.name)
        if squashed is None:
            return log_prob
        squashed = squashed.to(raw.device)
        jacobian = log_tanh_slope(raw) + self._log_scale[item.name].to(raw.device)
        return log_prob - torch.where(squashed, jacobian, torch.zeros_like(jacobian)).sum(dim=-1)

    def _gaussian_entropy(self, item: Gaussian, mean: Tensor, log_std: Tensor) -> Tensor:
        entropy = log_std.sum(dim=-1) + 0.5 * (1.0 + LOG_TWO_PI) * item.size
        squashed = self._squashed.get(item.name)
        if squashed is None:
            return entropy
        # H(game action) = H(raw) + E[log |d action / d raw|], the mean by Gauss-Hermite quadrature.
        device = mean.device
        points = mean.unsqueeze(-1) + log_std.exp().unsqueeze(-1) * self._nodes.to(device)
        slope = (log_tanh_slope(points) * self._weights.to(device)).sum(dim=-1)
        slope = slope + self._log_scale[item.name].to(device)
        return entropy + torch.where(squashed.to(device), slope, torch.zeros_like(slope)).sum(
            dim=-1
        )


def _log_half_width(part: Continuous) -> np.ndarray:
    width = np.asarray(part.high, np.float64) - np.asarray(part.low, np.float64)
    return np.log(np.where(part.bounded, width, 2.0) / 2.0).astype(np.float32)
