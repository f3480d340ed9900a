"""What a training needs from the machine, settled before the first step: device and memory."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Literal

import numpy as np
import torch

from lamarckian.errors import ConfigError
from lamarckian.mdp.core import Role, action_shape, mask_size

Device = Literal["auto", "cpu", "cuda"]
_log = logging.getLogger("lamarckian.rl")


def choose_device(wanted: Device, roles: Mapping[str, Role]) -> tuple[torch.device, str]:
    """Return the learner's device and why it was chosen.

    ``auto`` takes CUDA where it is present and a role sees images; for small networks moving batches to
    the device costs more than it gains. Raises ConfigError if ``cuda`` is asked for and absent.
    """
    present = torch.cuda.is_available()
    if wanted == "cuda":
        if not present:
            built = torch.version.cuda
            reason = (
                f"torch is built for CUDA {built} and sees no device"
                if built
                else ("this torch is built for the CPU only")
            )
            raise ConfigError(f"device: cuda was asked for, but {reason}; use --device cpu or auto")
        return torch.device("cuda"), "asked for"
    if wanted == "cpu":
        return torch.device("cpu"), "asked for"
    if not present:
        return torch.device("cpu"), "no CUDA device"
    images = any(item.kind == "image" for role in roles.values() for item in role.inputs.values())
    if images:
        return torch.device("cuda"), "a role sees images and a CUDA device is present"
    return torch.device("cpu"), "small inputs: moving them to the CUDA device would cost more"


def batch_bytes(roles: Mapping[str, Role], num_games: int, fragment_length: int) -> int:
    """Estimate the memory of one collected batch, in bytes."""
    total = 0
    for role in roles.values():
        arrays = [*role.inputs.values(), *role.state.values()]
        row = sum(int(np.prod(item.shape)) * np.dtype(item.dtype).itemsize for item in arrays)
        row += sum(mask_size(role.actions[name]) for name in role.masked)
        row += sum(8 * int(np.prod(action_shape(part))) for part in role.actions.values())
        row += 8 * role.num_rewards + 24
        total += row * role.seats * num_games * fragment_length
    return total


def check_memory(
    needed: int,
    *,
    available: int | None = None,
    what: str = "algorithm: a batch",
    remedy: str = "lower num_games or fragment_length",
    copies: int = 2,
) -> None:
    """Warn if ``what`` takes most of the machine's memory; raise ConfigError if it cannot fit.

    It is held ``copies`` times: the tensors of a batch are of another order than the ``needed`` bytes
    collected.
    """
    have = available if available is not None else _physical_memory()
    if have is None:
        return
    share = copies * needed / have
    size = f"{what} needs about {copies * needed / 1e9:.1f} GB of {have / 1e9:.1f} GB"
    if share > 1.0:
        raise ConfigError(f"{size}; {remedy}, or use smaller observations")
    if share > 0.8:
        _log.warning("%s: the machine may start to swap", size)


def _physical_memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
