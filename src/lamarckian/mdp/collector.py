"""What a learner asks for experience, whatever kind of game it comes from, and who plays which role."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from lamarckian.errors import ConfigError, nearest
from lamarckian.mdp.core import Arrays, Bot, Role, random_actions
from lamarckian.mdp.policy import Policy
from lamarckian.mdp.trajectory import EpisodeRecord, Trajectory


@dataclass(slots=True)
class Seating:
    """Who plays which role.

    ``policies``   the training policies by group name.
    ``learners``   training role -> group: roles with equal spaces may share a policy.
    ``opponents``  every other role -> (name, bot or frozen policy); these never return experience.
    """

    policies: Mapping[str, Policy]
    learners: Mapping[str, str]
    opponents: Mapping[str, tuple[str, Bot | Policy]] = field(default_factory=dict)

    def roles_of(self, group: str) -> list[str]:
        return [role for role, owner in self.learners.items() if owner == group]

    def opponent_name(self, role: str) -> str:
        """Label of who sits opposite ``role``: the opponents' names, or ``self``."""
        names = sorted({name for other, (name, _) in self.opponents.items() if other != role})
        if names:
            return ",".join(names)
        return "self" if len(self.learners) > 1 else ""


class Collector(Protocol):
    """Plays games and hands out rectangles of experience."""

    @property
    def num_decisions(self) -> int:
        """Decisions by training players so far (also those kept out of the learning data)."""
        ...

    @property
    def num_frames(self) -> int:
        """Ticks of the underlying games behind them (more than decisions under frame skip)."""
        ...

    @property
    def seconds(self) -> Mapping[str, float]:
        """Time spent so far, by ``game`` and ``policy``."""
        ...

    def collect(self, between: Callable[[], None] | None = None) -> dict[str, Trajectory]:
        """Return one trajectory ``[T, N, ...]`` per group of policies.

        ``between`` is called between decisions and may change the policies' weights; every decision
        is kept with the version that drew it.
        """
        ...

    def take_episodes(self) -> list[EpisodeRecord]:
        """Return the lives that ended since the last call."""
        ...

    def longest_running(self) -> int:
        """Length so far of the longest life still going on (decisions)."""
        ...

    def metrics(self) -> dict[str, float]:
        """Return what else there is to tell: lateness, players gone, failed matches."""
        ...

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return all that the next ``collect`` depends on, but for the policies."""
        ...

    def load_state(self, data: dict[str, Any], arrays: Arrays) -> None: ...

    def restart(self) -> None:
        """Begin all episodes anew, from the collector's own random stream."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class CollectorSettings:
    """The rectangle and its surroundings.

    ``fragment_length`` T; ``discounts`` gives a role's discount per reward head, used where one recorded
    decision spans several acts; ``chunk_length`` decisions between stored memories of recurrent policies
    (0: no memory).
    """

    num_games: int
    fragment_length: int
    discounts: Callable[[Role], tuple[float, ...]]
    seed: int
    chunk_length: int = 0


def group_roles(
    roles: Mapping[str, Role], learn: Sequence[str], *, share: bool = True
) -> dict[str, str]:
    """Put the roles of ``learn`` that have equal spaces into one group, named after the first.

    ``share`` False gives each role a group of its own. Raises ConfigError for a role the game lacks.
    """
    groups: dict[str, str] = {}
    for role in learn:
        if role not in roles:
            raise ConfigError(
                f"learn: the game has no role {role!r}{nearest(role, roles)}; roles: {', '.join(roles)}"
            )
        alike = [group for other, group in groups.items() if roles[other].same_spaces(roles[role])]
        groups[role] = alike[0] if share and alike else role
    return groups


def bot_for(name: str, bots: Mapping[str, Bot], role: Role) -> Bot:
    """Return the named rule player of a game; ``random`` is known for every game."""
    if name in bots:
        return bots[name]
    if name == "random":

        def random_bot(inputs: Arrays, legal: Arrays, rng: Any) -> Arrays:
            num = len(next(iter(inputs.values())))
            return random_actions(role, legal, num, rng)

        return random_bot
    known = [*bots, "random"]
    raise ConfigError(
        f"opponent: the game has no bot {name!r}{nearest(name, known)}; bots: {', '.join(known)}"
    )
