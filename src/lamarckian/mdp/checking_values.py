"""What a checked game shows, against what its roles declare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lamarckian.mdp.core import (
    Array,
    Continuous,
    Discrete,
    Input,
    Observation,
    Part,
    Role,
    mask_size,
)


@dataclass(slots=True)
class Findings:
    """Problems and notes, each said once."""

    problems: list[str]
    notes: list[str]

    def problem(self, text: str) -> None:
        if text not in self.problems:
            self.problems.append(text)

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def describe_role(role: Role) -> dict[str, Any]:
    """Return a role as JSON-compatible text."""
    return {
        "seats": role.seats,
        "inputs": {name: describe_input(item) for name, item in role.inputs.items()},
        "actions": {
            name: describe_part(part) + (", masked" if name in role.masked else "")
            for name, part in role.actions.items()
        },
        "rewards": list(role.rewards),
        "state": {name: describe_input(item) for name, item in role.state.items()},
    }


def describe_input(item: Input) -> str:
    """Return e.g. ``image uint8 [4, 84, 84] CHW``."""
    extra = {"image": f" {item.layout}", "category": f" of {item.num_categories}"}.get(
        item.kind, ""
    )
    return f"{item.kind} {item.dtype} {list(item.shape)}{extra}"


def describe_part(part: Part) -> str:
    """Return e.g. ``discrete 6`` or ``continuous 2 in [-1, 1]``."""
    if isinstance(part, Discrete):
        return f"discrete {part.num}"
    if isinstance(part, Continuous):
        bounds = sorted(set(zip(part.low, part.high, strict=True)))
        text = ", ".join(f"[{low:g}, {high:g}]" for low, high in bounds[:3])
        return f"continuous {part.size} in {text}"
    return f"multi-discrete {list(part.nums)}"


def check_observation(
    where: str,
    role: Role,
    seen: Observation,
    rows: int | None,
    alive: NDArray[np.bool_] | None,
    findings: Findings,
    masks: bool = True,
) -> bool:
    """Compare an observation with its role; ``rows`` None for a single player. True if it may be used."""
    before = len(findings.problems)
    lead = () if rows is None else (rows,)
    if not isinstance(seen, Observation):
        findings.problem(f"{where}: expected an Observation, got {type(seen).__name__}")
        return False
    for kind, declared, arrays in (
        ("input", role.inputs, seen.inputs),
        ("state", role.state, seen.state if masks or seen.state else None),
    ):
        if arrays is None:
            continue
        for name, item in declared.items():
            if name not in arrays:
                findings.problem(f"{where}: {kind} {name!r} is missing; got {sorted(arrays)}")
                continue
            _check_array(f"{where}, {kind} {name!r}", item, arrays[name], lead, findings)
        for name in arrays:
            if name not in declared:
                findings.note(f"{kind} {name!r} is shown but not declared, and is ignored")
    for name in role.masked if masks else ():
        if name not in seen.legal:
            findings.problem(f"{where}: the legal mask of {name!r} is missing")
            continue
        mask = np.asarray(seen.legal[name])
        size = mask_size(role.actions[name])
        if mask.shape != (*lead, size) or mask.dtype != bool:
            findings.problem(
                f"{where}: the legal mask of {name!r}: expected bool {(*lead, size)}, "
                f"got {mask.dtype} {mask.shape}"
            )
            continue
        _check_legal(where, name, role.actions[name], mask, alive, findings)
    return len(findings.problems) == before


def _check_legal(
    where: str,
    name: str,
    part: Part,
    mask: Array,
    alive: NDArray[np.bool_] | None,
    findings: Findings,
) -> None:
    nums = (part.num,) if isinstance(part, Discrete) else getattr(part, "nums", ())
    flat = mask.reshape(-1, mask.shape[-1])
    start = 0
    for num in nums:
        nothing = ~flat[:, start : start + num].any(axis=1)
        start += num
        if alive is not None:
            nothing = nothing & alive
        if nothing.any():
            findings.note(
                f"{where}: a player has no legal action of {name!r}; it then draws from all of them"
            )


def _check_array(
    where: str, item: Input, value: Any, lead: tuple[int, ...], findings: Findings
) -> None:
    array = np.asarray(value)
    shape = (*lead, *item.shape)
    if array.shape != shape or str(array.dtype) != item.dtype:
        findings.problem(f"{where}: expected {item.dtype} {shape}, got {array.dtype} {array.shape}")
        return
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        findings.problem(f"{where}: holds NaN or infinity")
    if item.kind == "category" and ((array < 0) | (array >= item.num_categories)).any():
        findings.problem(f"{where}: holds a category outside [0, {item.num_categories - 1}]")
