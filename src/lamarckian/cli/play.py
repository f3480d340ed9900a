"""``lamarckian play``: watch a match, or take part in one."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from lamarckian.cli import output
from lamarckian.cli.evaluate import add_checkpoint, which
from lamarckian.errors import ConfigError, RunError, UnknownName, nearest

if TYPE_CHECKING:
    from lamarckian.mdp.core import Bot, Role
    from lamarckian.mdp.policy import Policy
    from lamarckian.rl.assembly import Assembly
    from lamarckian.viewer.keyboard import Person
    from lamarckian.viewer.matches import MatchRecord, Side

MAX_TICKS = 10_000
Show = Callable[[Mapping[str, Any]], None]


def add(subparsers: Any) -> argparse.ArgumentParser:
    """Add the parser of this command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "play",
        help="watch a trained policy, or play against it",
        description="Play one match and show it: drawn in a terminal, one JSON line a tick elsewhere. "
        "The argument is a run folder, or a game whose bots play. Keys while watching: q quits, space "
        "pauses, + and - change the speed.",
    )
    parser.add_argument("what", metavar="RUN_OR_GAME", help="run folder, or a game")
    parser.add_argument("--against", choices=("me",), help="take a seat yourself, at the keyboard")
    parser.add_argument("--role", help="your role; without --against me the role of the policy")
    parser.add_argument(
        "--opponent", help="bot of the other roles (default: as trained; for a game: its first bot)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the match (default 0)")
    parser.add_argument(
        "--individual", help="of an evolution: who plays, a number or front:N (default front:0)"
    )
    add_checkpoint(parser)
    parser.add_argument(
        "--stochastic", action="store_true", help="draw actions instead of the most likely one"
    )
    parser.add_argument(
        "--speed",
        type=float,
        help="times the game's own pace (default 1 in a terminal, else as fast as it goes)",
    )
    parser.add_argument(
        "--max-ticks", type=int, default=MAX_TICKS, help=f"cut the match there ({MAX_TICKS})"
    )
    parser.add_argument(
        "--frames", metavar="FILE", help="write the frames as JSON lines instead of drawing"
    )
    output.add_options(parser)
    return parser


def run(namespace: argparse.Namespace, extra: list[str]) -> int:
    """Play and print how it ended. Raises ConfigError, UnknownName, RunError or GameError."""
    from lamarckian.runs.interrupts import interrupts

    _check(namespace)
    table = _table(namespace)
    person = None
    with ExitStack() as stack:
        if namespace.against == "me":
            person = _person(table, namespace.role, stack)
        sides = choose_sides(table, namespace.role, namespace.opponent, person)
        asked = stack.enter_context(interrupts())
        record = _play(namespace, table, sides, person, asked, stack)
    document = {
        "game": table.game,
        "seed": namespace.seed,
        "ticks": record.ticks,
        "finished": record.finished,
        "players": [asdict(player) for player in record.players],
    }
    if namespace.json or sys.stdout.isatty() or namespace.frames not in (None, "-"):
        output.emit(namespace, document, _text(record))
    else:
        output.note(_text(record))  # standard output holds the frames
    return 128 + signal.Signals[asked[0]] if asked else 0


@dataclass(slots=True)
class Table:
    """A game and who may sit down at it: bots by name, and of a run the policies and bots by role."""

    game: str
    options: Mapping[str, Any]
    roles: Mapping[str, Role]
    bots: Mapping[str, Bot]
    policies: dict[str, Policy] = field(default_factory=dict)
    trained_with: dict[str, str] = field(default_factory=dict)

    def policy_for(self, role: str) -> Policy | None:
        """The policy trained in ``role``, or one that sees and does the same things."""
        if role in self.policies:
            return self.policies[role]
        wanted = self.roles[role]
        for policy in self.policies.values():
            # The state is the critic's alone; a player needs none.
            if policy.role.same_spaces(replace(wanted, state=policy.role.state)):
                return policy
        return None


def choose_sides(
    table: Table, role: str | None, opponent: str | None, person: Person | None
) -> dict[str, Side]:
    """Decide who plays which role. Raises ConfigError for a role or a bot the game does not have."""
    from lamarckian.mdp.collector import bot_for
    from lamarckian.viewer.matches import Side

    main = role or (_own_role(table) if person is not None else next(iter(table.policies), None))
    main = main or next(iter(table.roles))
    if main not in table.roles:
        raise ConfigError(
            f"--role: the game has no role {main!r}{nearest(main, table.roles)}; "
            f"roles: {', '.join(table.roles)}"
        )
    if opponent is not None and len(table.roles) == 1:
        raise ConfigError(f"--opponent: has no effect, {table.game} has a single role")
    default = next(iter(table.bots), "random")
    sides: dict[str, Side] = {}
    for name, seat in table.roles.items():
        bot = opponent if name != main else None
        may_be_policy = name == main or name in table.policies or person is not None
        policy = table.policy_for(name) if bot is None and may_be_policy else None
        if policy is not None:
            sides[name] = Side(f"policy version {policy.version}", policy)
        else:
            bot = bot or table.trained_with.get(name) or default
            sides[name] = Side(bot, bot_for(bot, table.bots, seat))
    if person is not None:
        sides[main].person = person
    return sides


def _own_role(table: Table) -> str:
    """Where a person sits who did not say: at a place no policy was trained for."""
    free = [name for name in table.roles if name not in table.policies]
    return free[0] if free else list(table.roles)[-1]


def _check(namespace: argparse.Namespace) -> None:
    if namespace.max_ticks < 1:
        raise ConfigError(f"--max-ticks: expected at least 1, got {namespace.max_ticks}")
    if namespace.seed < 0:
        raise ConfigError(f"--seed: expected at least 0, got {namespace.seed}")
    if namespace.speed is not None and not 0 < namespace.speed < float("inf"):
        raise ConfigError(f"--speed: expected a number above 0, got {namespace.speed}")
    if namespace.json and namespace.frames == "-":
        raise ConfigError("--frames -: --json prints the result there; name a file instead")


def _table(namespace: argparse.Namespace) -> Table:
    """Find the run or the game."""
    from lamarckian.mdp import catalogue
    from lamarckian.mdp.batch_game import BatchGame

    path = Path(namespace.what).expanduser()
    if path.is_dir():
        assembly = _assembly(namespace, path)
        training, seating = assembly.training, assembly.seating
        table = Table(training.game, training.game_options, assembly.roles, {})
        table.policies = {role: seating.policies[key] for role, key in seating.learners.items()}
        table.trained_with = {role: name for role, (name, _) in seating.opponents.items()}
    else:
        for option, given in (
            ("--checkpoint", namespace.checkpoint != "last"),
            ("--stochastic", namespace.stochastic),
            ("--individual", namespace.individual is not None),
        ):
            if given:
                raise ConfigError(f"{option}: has no effect on a game; name a run folder")
        table = Table(namespace.what, {}, {}, {})
        try:
            catalogue.resolve(table.game)
        except UnknownName as error:
            if "/" in table.game and ":" not in table.game:
                raise RunError(f"{path}: there is no such run folder, and no such game") from None
            raise UnknownName(f"there is no run folder {table.game!r}, and {error}") from None
    made = catalogue.make_game(table.game, 1, table.options)
    game = made if isinstance(made, BatchGame) else made[0]
    table.roles, table.bots = game.roles, game.bots
    game.close()
    return table


def _assembly(namespace: argparse.Namespace, path: Path) -> Assembly:
    """Return the policies of a training's checkpoint, or of an individual of an evolution."""
    from lamarckian.runs.evolution import is_evolution, load_settings
    from lamarckian.runs.folder import Run
    from lamarckian.runs.players import identifier_of, load_player
    from lamarckian.runs.training import load_policies

    run = Run.open(path)
    if is_evolution(run):
        if namespace.checkpoint != "last":
            raise ConfigError("--checkpoint: has no effect on an evolution; choose --individual")
        plain = load_settings(run).training_data() or {}
        namespace.stochastic |= not plain.get("greedy", True)  # it plays as it was measured
        return load_player(run, identifier_of(run, namespace.individual or "front:0"))
    if namespace.individual is not None:
        raise ConfigError("--individual: this run is a training; choose with --checkpoint")
    return load_policies(run, which(namespace))


def _person(table: Table, role: str | None, stack: ExitStack) -> Person:
    """Take the keyboard. Raises ConfigError without a terminal, or if the game has no keys."""
    from lamarckian.viewer.keyboard import Keyboard, Person, controls_for

    seat = table.roles.get(role or _own_role(table))
    if seat is None:
        choose_sides(table, role, None, None)  # names what is wrong with the role
        raise ConfigError(f"--role: the game has no role {role!r}")
    controls = controls_for(table.game.partition("?")[0], seat)
    return Person(stack.enter_context(Keyboard()), controls, seat)


def _play(
    namespace: argparse.Namespace,
    table: Table,
    sides: Mapping[str, Side],
    person: Person | None,
    asked: list[str],
    stack: ExitStack,
) -> MatchRecord:
    from lamarckian.mdp import catalogue
    from lamarckian.mdp.batch_game import BatchGame
    from lamarckian.mdp.guarded import GuardedGame
    from lamarckian.viewer.keyboard import DEFAULT_TICKS_PER_SECOND, TICKS_PER_SECOND, Keyboard
    from lamarckian.viewer.matches import Watch, play_match
    from lamarckian.viewer.terminal import Screen

    games = catalogue.make_game(table.game, 1, table.options)
    if isinstance(games, BatchGame):
        games = GuardedGame(games, table.game)
    game = games if isinstance(games, BatchGame) else games[0]
    stack.callback(game.close)
    drawn = person is not None or (
        sys.stdout.isatty() and not namespace.json and namespace.frames is None
    )
    watch = Watch(max_ticks=namespace.max_ticks, leave=lambda: bool(asked))
    if drawn or namespace.speed is not None:
        rate = TICKS_PER_SECOND.get(table.game.partition("?")[0], DEFAULT_TICKS_PER_SECOND)
        watch.seconds = 1.0 / (rate * (namespace.speed or 1.0))
    if namespace.frames is not None or not (drawn or namespace.json):
        watch.shows.append(_frame_writer(namespace.frames or "-", stack))
    if drawn:
        watched_keys = person is None and sys.stdin.isatty()
        keyboard = stack.enter_context(Keyboard()) if watched_keys else None
        screen = stack.enter_context(Screen())
        stage = _Stage(screen, watch, sides, getattr(game, "drawing", None), person, keyboard)
        watch.shows.append(stage.show)
        watch.leave = lambda: bool(asked) or stage.leaves()
    return play_match(games, sides, watch, seed=namespace.seed, greedy=not namespace.stochastic)


def _frame_writer(name: str, stack: ExitStack) -> Show:
    """Write each frame as one line of JSON."""
    from lamarckian.viewer.columns import plain

    stream: IO[str] = sys.stdout
    if name != "-":
        try:
            stream = open(name, "w", encoding="utf-8")  # noqa: SIM115 - closed by the stack
        except OSError as error:
            raise ConfigError(f"--frames {name}: cannot write it: {error.strerror}") from None
        stack.callback(stream.close)

    def write(frame: Mapping[str, Any]) -> None:
        stream.write(json.dumps(plain(frame), allow_nan=False, ensure_ascii=False) + "\n")

    return write


class _Stage:
    """The match on the screen, and the keys of who watches."""

    def __init__(
        self,
        screen: Any,
        watch: Any,
        sides: Mapping[str, Side],
        drawing: Mapping[str, Any] | None,
        person: Person | None,
        keyboard: Any,
    ) -> None:
        self._screen = screen
        self._watch = watch
        self._drawing = drawing
        self._person = person
        self._keyboard = keyboard
        who = [f"{role}: {'you' if side.person else side.name}" for role, side in sides.items()]
        self._who = "   ".join(who)
        self._keys = "q: quit   space: pause   + -: speed"
        if person is not None:
            self._keys = f"{person.controls.help}   q: quit"

    def show(self, frame: Mapping[str, Any]) -> None:
        self._screen.show(
            frame, self._drawing, [f"{self._who}   tick {self._watch.ticks}", self._keys]
        )

    def leaves(self) -> bool:
        """Act on what was pressed; True if the match should end."""
        if self._person is not None:
            return self._person.quits
        paused = False
        while self._keyboard is not None:
            for key in self._keyboard.pressed():
                if key in ("q", "escape"):
                    return True
                if key == "space":
                    paused = not paused
                elif key in ("+", "="):
                    self._watch.seconds /= 1.5
                elif key == "-":
                    self._watch.seconds *= 1.5
            if not paused:
                break
            self._watch.rest()
        return False


def _text(record: MatchRecord) -> str:
    rows = [
        (
            player.role if player.role == player.player else f"{player.role} {player.player}",
            player.played_by,
            sum(player.returns),
            player.score,
            {1: "won", 0: "drew", -1: "lost", None: None}.get(player.result),
        )
        for player in record.players
    ]
    how = "match over" if record.finished else "match cut"
    return f"{how} after {record.ticks} ticks\n" + output.table(
        rows, ("role", "played by", "return", "score", "result")
    )
