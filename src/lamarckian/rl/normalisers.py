"""Running statistics that belong to a policy: of its inputs, and of its value targets.

Moments are float64 and merged exactly (Chan, Golub and LeVeque 1979); what the network applies are
float32 copies. Values come in two types that a type checker keeps apart: :data:`RawValues` in units
of reward, and :data:`NormalisedValues`, which is what a critic puts out. Only
:class:`ValueNormaliser` converts between them.
"""

from __future__ import annotations

from typing import NewType

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

RawValues = NewType("RawValues", Tensor)
NormalisedValues = NewType("NormalisedValues", Tensor)

CLIP = 10.0
EPSILON = 1e-8


class RunningNormaliser(nn.Module):
    """Scales an input to mean 0 and deviation 1 by all it has been shown, clipped to +-10.

    ``shape`` is the shape of one observation (of one entity, for entity lists). Until the first
    update it only clips nothing: the input passes unchanged.
    """

    shift: Tensor
    scale: Tensor

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        # Not buffers: they stay float64 on the processor wherever the network goes.
        self.count = torch.zeros((), dtype=torch.float64)
        self.mean = torch.zeros(shape, dtype=torch.float64)
        self.squares = torch.zeros(shape, dtype=torch.float64)
        self.register_buffer("shift", torch.zeros(shape), persistent=False)
        self.register_buffer("scale", torch.ones(shape), persistent=False)
        self.ready = False

    def moments(self) -> dict[str, Tensor]:
        """Return the statistics themselves, by name; call :meth:`refresh` after changing them."""
        return {"count": self.count, "mean": self.mean, "squares": self.squares}

    def forward(self, values: Tensor) -> Tensor:
        """Normalise float32 ``[..., *shape]``."""
        if not self.ready:
            return values
        return ((values - self.shift) * self.scale).clamp(-CLIP, CLIP)

    def update(self, values: NDArray[np.generic]) -> None:
        """Merge ``values`` ``[B, *shape]``; rows with a non-finite number are left out."""
        rows = np.asarray(values, np.float64).reshape(len(values), -1)
        finite = np.isfinite(rows).all(axis=1)
        rows = rows if finite.all() else rows[finite]
        if not len(rows):
            return
        number = float(len(rows))
        shape = tuple(self.mean.shape)
        mean = rows.mean(axis=0)
        squares = np.square(rows - mean).sum(axis=0)
        before = float(self.count)
        delta = mean - self.mean.numpy().reshape(-1)
        total = before + number
        new_mean = self.mean.numpy().reshape(-1) + delta * (number / total)
        new_squares = (
            self.squares.numpy().reshape(-1) + squares + delta**2 * (before * number / total)
        )
        self.count.fill_(total)
        self.mean.copy_(torch.from_numpy(new_mean.reshape(shape)))
        self.squares.copy_(torch.from_numpy(new_squares.reshape(shape)))
        self.refresh()

    def refresh(self) -> None:
        """Rebuild the float32 copies after the moments have changed."""
        self.ready = float(self.count) > 0
        if self.ready:
            variance = self.squares / self.count
            self.shift.copy_(self.mean)
            self.scale.copy_((variance + EPSILON).rsqrt())


class ValueNormaliser(nn.Module):
    """Keeps critic targets near mean 0 and deviation 1 for each of ``K`` heads.

    Exponential averages with a debiasing term, as ValueNorm of MAPPO (Yu et al. 2022): before the
    first update it is the identity. With ``preserve_outputs`` (PopArt, van Hasselt et al. 2016) the
    critic's last layer is rescaled at every update so that denormalised outputs stay what they
    were.
    """

    shift: Tensor
    scale: Tensor

    def __init__(self, num_heads: int, decay: float = 0.99999) -> None:
        super().__init__()
        self.decay = decay
        self.weight = torch.zeros((), dtype=torch.float64)
        self.mean = torch.zeros(num_heads, dtype=torch.float64)
        self.mean_square = torch.zeros(num_heads, dtype=torch.float64)
        self.register_buffer("shift", torch.zeros(num_heads), persistent=False)
        self.register_buffer("scale", torch.ones(num_heads), persistent=False)

    def moments(self) -> dict[str, Tensor]:
        """Return the statistics themselves, by name; call :meth:`refresh` after changing them."""
        return {"weight": self.weight, "mean": self.mean, "mean_square": self.mean_square}

    def update(self, targets: RawValues, output: nn.Linear | None = None) -> None:
        """Merge ``targets`` ``[B, K]``; ``output`` is rescaled to preserve what it predicts."""
        rows = targets.detach().cpu().reshape(-1, self.mean.shape[0]).to(torch.float64)
        rows = rows[torch.isfinite(rows).all(dim=1)]
        if not len(rows):
            return
        old_shift, old_scale = self._applied()
        self.weight.mul_(self.decay).add_(1.0 - self.decay)
        self.mean.mul_(self.decay).add_((1.0 - self.decay) * rows.mean(dim=0))
        self.mean_square.mul_(self.decay).add_((1.0 - self.decay) * rows.square().mean(dim=0))
        self.refresh()
        if output is not None:
            new_shift, new_scale = self._applied()
            with torch.no_grad():
                ratio = (old_scale / new_scale).unsqueeze(1)
                output.weight.copy_(output.weight.cpu() * ratio)
                bias = output.bias.cpu() * old_scale + old_shift - new_shift
                output.bias.copy_(bias / new_scale)

    def _applied(self) -> tuple[Tensor, Tensor]:
        return self.shift.cpu().to(torch.float64), self.scale.cpu().to(torch.float64)

    def refresh(self) -> None:
        """Rebuild the float32 shift and scale after the averages have changed."""
        if float(self.weight) > 0:
            mean = self.mean / self.weight
            variance = (self.mean_square / self.weight - mean.square()).clamp_min(1e-6)
            self.shift.copy_(mean)
            self.scale.copy_(variance.sqrt())

    def normalise(self, values: RawValues) -> NormalisedValues:
        """Convert ``[..., K]`` from reward units to critic units."""
        return NormalisedValues((values - self.shift) / self.scale)

    def denormalise(self, values: NormalisedValues) -> RawValues:
        """Convert ``[..., K]`` from critic units to reward units."""
        return RawValues(values * self.scale + self.shift)
