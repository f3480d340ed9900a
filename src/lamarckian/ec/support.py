"""Which search can work on which encoding: declared once, checked before anything starts."""

from __future__ import annotations

import msgspec

from lamarckian.errors import UnsupportedSpace
from lamarckian.evaluator import Encoding, kind_of

_ALL = ("real", "integer", "categorical", "permutation", "blob")


class Support(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Kinds of parts a search varies, whether it takes several objectives, whether it needs
    descriptors."""

    kinds: tuple[str, ...]
    many_objectives: bool = False
    needs_descriptors: bool = False


SUPPORT: dict[str, Support] = {
    "ga": Support(kinds=_ALL),
    "nsga2": Support(kinds=_ALL, many_objectives=True),
    "es": Support(kinds=("real", "blob")),
    "cma-es": Support(kinds=("real", "blob")),
    "pbt": Support(kinds=_ALL),
    "map-elites": Support(kinds=_ALL, needs_descriptors=True),
}


def misfits(search: str, encoding: Encoding) -> list[str]:
    """Return why ``search`` cannot work on ``encoding``, one sentence per reason."""
    support = SUPPORT[search]
    reasons = [
        f"part '{name}' is of kind {kind_of(part)}; {search} works on {', '.join(support.kinds)}"
        for name, part in encoding.parts.items()
        if kind_of(part) not in support.kinds
    ]
    if len(encoding.objectives) > 1 and not support.many_objectives:
        names = [objective.name for objective in encoding.objectives]
        reasons.append(f"there are {len(names)} objectives {names}; {search} takes one")
    if support.needs_descriptors and not encoding.descriptors:
        reasons.append(f"{search} needs descriptors, and the encoding declares none")
    return reasons


def check_support(search: str, encoding: Encoding) -> None:
    """Raise UnsupportedSpace naming what does not fit and the searches that do."""
    reasons = misfits(search, encoding)
    if reasons:
        fitting = [name for name in SUPPORT if not misfits(name, encoding)]
        raise UnsupportedSpace(
            f"{search}: {'; '.join(reasons)}. Searches that fit this encoding: "
            f"{', '.join(fitting) if fitting else 'none'}"
        )
