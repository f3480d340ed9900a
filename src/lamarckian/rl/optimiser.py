"""Adam with a guard: a step that is not finite is skipped and counted, never applied (NUM-02)."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from lamarckian.errors import NumericsError
from lamarckian.mdp.core import Arrays

MAX_SKIPPED_IN_A_ROW = 10


class GuardedAdam:
    """Adam over all trainable parameters of a module, gradients clipped to a global norm.

    Raises NumericsError after ``MAX_SKIPPED_IN_A_ROW`` steps in a row that were not finite.
    """

    def __init__(
        self, module: nn.Module, *, learning_rate: float, epsilon: float, max_gradient_norm: float
    ) -> None:
        self._named = [(n, p) for n, p in module.named_parameters() if p.requires_grad]
        self._parameters = [parameter for _, parameter in self._named]
        self._adam = torch.optim.Adam(self._parameters, lr=learning_rate, eps=epsilon, fused=True)
        self._max_gradient_norm = max_gradient_norm
        self.num_skipped = 0
        self._in_a_row = 0

    @property
    def learning_rate(self) -> float:
        """The step size in force."""
        return float(self._adam.param_groups[0]["lr"])

    def set_learning_rate(self, learning_rate: float) -> None:
        self._adam.param_groups[0]["lr"] = learning_rate

    def zero_gradients(self) -> None:
        self._adam.zero_grad(set_to_none=True)

    def step(self, loss: Tensor) -> Tensor:
        """Clip and apply the gradients; return their norm before clipping, a scalar."""
        norm = nn.utils.clip_grad_norm_(self._parameters, self._max_gradient_norm)
        if math.isfinite(float(norm)) and math.isfinite(float(loss)):
            self._adam.step()
            self._in_a_row = 0
            return norm
        self.num_skipped += 1
        self._in_a_row += 1
        if self._in_a_row >= MAX_SKIPPED_IN_A_ROW:
            wrong = [
                name
                for name, parameter in self._named
                if parameter.grad is not None and not torch.isfinite(parameter.grad).all()
            ]
            raise NumericsError(
                f"{self._in_a_row} optimiser steps in a row were not finite (loss {float(loss)}, "
                f"gradient norm {float(norm)}, first bad gradients: {', '.join(wrong[:5]) or 'none'}); "
                "the weights are those of the last good step: lower the learning rate, or look for "
                "extreme rewards or observations"
            )
        return norm

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return counters and moment arrays, by parameter name."""
        arrays: Arrays = {}
        for name, parameter in self._named:
            for key, value in self._adam.state.get(parameter, {}).items():
                arrays[f"{key}/{name}"] = value.detach().cpu().numpy().copy()
        data = {
            "num_skipped": self.num_skipped,
            "in_a_row": self._in_a_row,
            "learning_rate": self.learning_rate,
        }
        return data, arrays

    def load_state(self, data: dict[str, Any], arrays: Arrays) -> None:
        """Continue exactly where :meth:`state` was taken."""
        self._adam.state.clear()
        for name, parameter in self._named:
            moments = {
                # To the parameter's own device: a state saved on another one must fit (EVO-07).
                key: torch.from_numpy(array.copy()).to(parameter.device)
                for full, array in arrays.items()
                for key, _, rest in [full.partition("/")]
                if rest == name
            }
            if moments:
                self._adam.state[parameter] = moments
        self.num_skipped = int(data["num_skipped"])
        self._in_a_row = int(data["in_a_row"])
        self.set_learning_rate(float(data["learning_rate"]))
