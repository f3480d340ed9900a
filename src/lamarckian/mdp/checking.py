"""Checking a game before anything is trained on it: what it declares against what it does.

The game is played at random, legally, and everything it returns is compared with its roles. Nothing here
trusts the game: it runs in a thread of its own under a deadline, so that a call that never returns is
named and not waited for.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lamarckian.errors import LamarckianError
from lamarckian.mdp.adapters.gymnasium import GymnasiumGame
from lamarckian.mdp.batch_game import BatchGame, RowStep
from lamarckian.mdp.catalogue import make_game
from lamarckian.mdp.checking_foreign import examine_environment
from lamarckian.mdp.checking_matches import check_match
from lamarckian.mdp.checking_values import Findings, check_observation, describe_role
from lamarckian.mdp.core import MDP, Arrays, random_actions

NUM_GAMES = 4


@dataclass(slots=True)
class CheckReport:
    """What was found. ``problems`` must be mended; ``notes`` are worth knowing.

    ``decisions_per_second`` counts random play in one thread, checks included for coroutines only.
    """

    game: str
    kind: str
    roles: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    episodes: int = 0
    decisions: int = 0
    decisions_per_second: float = 0.0
    deterministic: bool | None = None
    exact_state: bool | None = None

    @property
    def ok(self) -> bool:
        return not self.problems

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-compatible data."""
        return {"ok": self.ok, **asdict(self)}


class Progress:
    """Where the checked game is now, and since when."""

    def __init__(self) -> None:
        self.where = "making it"
        self.since = time.monotonic()

    def at(self, where: str) -> None:
        self.where = where
        self.since = time.monotonic()


def check_game(
    reference: str,
    options: Mapping[str, Any] | None = None,
    *,
    episodes: int = 3,
    max_ticks: int = 2000,
    seed: int = 0,
    deadline: float = 10.0,
) -> CheckReport:
    """Check any game the catalogue can build; returns a report and never raises for a broken game.

    ``episodes`` to finish, ``max_ticks`` at most, ``deadline`` in seconds for a single call. Raises
    UnknownName, ConfigError and MissingDependency if the game cannot be found or built at all.
    """
    progress = Progress()
    report = CheckReport(reference, "unknown")
    box: list[BaseException] = []

    def work() -> None:
        try:
            game = make_game(reference, 1, options)
            if isinstance(game, BatchGame):
                game.close()
                report.kind = "batch"
                _check_batch(reference, options, report, progress, episodes, max_ticks, seed)
            else:
                report.kind = "mdp"
                _check_mdp(game[0], report, progress, episodes, max_ticks, seed, deadline)
        except BaseException as error:
            box.append(error)

    thread = threading.Thread(target=work, name="check-game", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.05)
        stuck = time.monotonic() - progress.since
        # A coroutine has a deadline of its own and names the player; this one is for calls that block.
        if thread.is_alive() and stuck > deadline * 1.5:
            report.problems.append(f"{progress.where}: did not return within {deadline:g} s")
            return report
    if box:
        _note_failure(box[0], report, progress)
    return report


def _note_failure(error: BaseException, report: CheckReport, progress: Progress) -> None:
    if isinstance(error, LamarckianError):
        if report.kind == "unknown":
            raise error
        report.problems.append(str(error))
    elif isinstance(error, Exception):
        report.problems.append(f"{progress.where}: raised {type(error).__name__}: {error}")
    else:
        raise error


# ---------------------------------------------------------------------------------------------
# batch games


def _check_batch(
    reference: str,
    options: Mapping[str, Any] | None,
    report: CheckReport,
    progress: Progress,
    episodes: int,
    max_ticks: int,
    seed: int,
) -> None:
    def new() -> BatchGame:
        progress.at("making it")
        game = make_game(reference, NUM_GAMES, options)
        assert isinstance(game, BatchGame)
        return game

    findings = Findings(report.problems, report.notes)
    game = new()
    report.roles = {name: describe_role(role) for name, role in game.roles.items()}
    if game.num_games != NUM_GAMES:
        findings.problem(f"num_games: expected {NUM_GAMES}, got {game.num_games}")
    seeds = np.arange(seed, seed + NUM_GAMES)
    first = _play_checked(game, seeds, report, progress, findings, episodes, max_ticks, seed)
    if report.problems:
        game.close()
        return
    _check_frame(lambda: game.frame(0), findings, progress)
    other = new()
    ticks = min(len(first), 200)
    second = _play(other, seeds, ticks, seed, progress)
    report.deterministic = all(_equal(a, b) for a, b in zip(first, second, strict=False))
    if not report.deterministic:
        findings.note(
            "equal seeds do not give equal matches: runs cannot be repeated, and a resume is not exact"
        )
    changed = _play(other, seeds + 1000, ticks, seed, progress)
    if all(_equal(a, b) for a, b in zip(second, changed, strict=False)):
        findings.note("the seed changes nothing: every match is the same")
    report.exact_state = bool(game.exact_state)
    if game.exact_state:
        _check_state(game, other, findings, progress, seed)
    else:
        findings.note("its state cannot be saved: a resumed run begins new episodes")
    game.close()
    other.close()
    if isinstance(game, GymnasiumGame):
        lone = make_game(reference, 1, options)
        assert isinstance(lone, GymnasiumGame)
        progress.at("examining one environment by hand")
        examine_environment(lone, findings, seed, on_step=lambda: progress.at("step()"))
        lone.close()
    report.decisions_per_second = _throughput(new(), seeds, progress, seed)


def _play_checked(
    game: BatchGame,
    seeds: NDArray[np.int64],
    report: CheckReport,
    progress: Progress,
    findings: Findings,
    episodes: int,
    max_ticks: int,
    seed: int,
) -> list[Any]:
    """Play with every return value checked; return what :func:`_play` returns."""
    rng = np.random.default_rng(seed)
    record: list[Any] = []
    progress.at("reset()")
    game.reset(seeds)
    for tick in range(max_ticks):
        actions: dict[str, Arrays] = {}
        shown: dict[str, Any] = {}
        alive: dict[str, Any] = {}
        for name, role in game.roles.items():
            rows = game.num_games * role.seats
            progress.at(f"tick {tick}, role {name}, observe()")
            seen = game.observe(name)
            alive[name] = np.array(game.alive(name))
            where = f"tick {tick}, role {name}"
            if alive[name].shape != (rows,) or alive[name].dtype != bool:
                findings.problem(f"{where}: alive(): expected bool ({rows},)")
                return record
            if not check_observation(where, role, seen, rows, alive[name], findings):
                return record
            shown[name] = {k: np.array(v) for k, v in seen.inputs.items()}
            actions[name] = random_actions(role, seen.legal, rows, rng)
        progress.at(f"tick {tick}, step()")
        steps = game.step(actions)
        for name in game.roles:
            if not _check_step(
                f"tick {tick}, role {name}", game, name, steps, alive[name], findings
            ):
                return record
            report.decisions += int(alive[name].sum())
            over = int((steps[name].terminated | steps[name].truncated).sum())
            report.episodes += over
        record.append((shown, {n: s.rewards.copy() for n, s in steps.items()}))
        if report.episodes >= episodes * NUM_GAMES and tick >= 50:
            break
    if not report.episodes:
        findings.note(f"no episode ended within {max_ticks} ticks of random play")
    return record


def _check_step(
    where: str,
    game: BatchGame,
    name: str,
    steps: Mapping[str, RowStep],
    alive: NDArray[np.bool_],
    findings: Findings,
) -> bool:
    role = game.roles[name]
    rows = game.num_games * role.seats
    before = len(findings.problems)
    if name not in steps:
        findings.problem(f"{where}: step() returned nothing for this role")
        return False
    step = steps[name]
    rewards = np.asarray(step.rewards)
    if rewards.shape != (rows, role.num_rewards) or rewards.dtype != np.float32:
        findings.problem(
            f"{where}: rewards: expected float32 ({rows}, {role.num_rewards}), "
            f"got {rewards.dtype} {rewards.shape}"
        )
    elif not np.isfinite(rewards).all():
        findings.problem(f"{where}: rewards hold NaN or infinity")
    for key in ("terminated", "truncated"):
        flags = np.asarray(getattr(step, key))
        if flags.shape != (rows,) or flags.dtype != bool:
            findings.problem(
                f"{where}: {key}: expected bool ({rows},), got {flags.dtype} {flags.shape}"
            )
    if len(findings.problems) > before:
        return False
    if (step.terminated & step.truncated).any():
        findings.problem(f"{where}: a row is both terminated and truncated")
    if ((step.terminated | step.truncated) & ~alive).any():
        findings.problem(f"{where}: a row that was out ended again")
    wanted = np.flatnonzero(step.truncated)
    if not np.array_equal(np.asarray(step.final_rows), wanted):
        findings.problem(
            f"{where}: final_rows: expected the truncated rows {wanted.tolist()}, "
            f"got {np.asarray(step.final_rows).tolist()}"
        )
    elif len(wanted):
        if step.final is None:
            findings.problem(f"{where}: truncated rows have no final observation")
        else:
            check_observation(
                f"{where}, final", role, step.final, len(wanted), None, findings, masks=False
            )
    for key, values in step.outcomes.items():
        if np.asarray(values).shape != (rows,):
            findings.problem(f"{where}: outcome {key!r}: expected shape ({rows},)")
    return len(findings.problems) == before


def _play(
    game: BatchGame, seeds: NDArray[np.int64], ticks: int, seed: int, progress: Progress
) -> list[Any]:
    progress.at("reset()")
    game.reset(seeds)
    return _advance(game, ticks, np.random.default_rng(seed), progress)


def _advance(
    game: BatchGame, ticks: int, rng: np.random.Generator, progress: Progress
) -> list[Any]:
    record = []
    for tick in range(ticks):
        shown, actions = {}, {}
        for name, role in game.roles.items():
            seen = game.observe(name)
            shown[name] = {k: np.array(v) for k, v in seen.inputs.items()}
            actions[name] = random_actions(role, seen.legal, game.num_games * role.seats, rng)
        progress.at(f"tick {tick}, step()")
        steps = game.step(actions)
        record.append((shown, {n: s.rewards.copy() for n, s in steps.items()}))
    return record


def _equal(left: Any, right: Any) -> bool:
    return all(
        np.array_equal(left[0][role][key], right[0][role][key])
        for role in left[0]
        for key in left[0][role]
    ) and all(np.array_equal(left[1][role], right[1][role]) for role in left[1])


def _check_state(
    game: BatchGame, other: BatchGame, findings: Findings, progress: Progress, seed: int
) -> None:
    progress.at("state()")
    data, arrays = game.state()
    try:
        data = json.loads(json.dumps(data))
    except (TypeError, ValueError) as error:
        findings.problem(f"state(): its data are not JSON-compatible: {error}")
        return
    arrays = {name: np.array(array) for name, array in arrays.items()}
    want = _advance(game, 30, np.random.default_rng(seed + 1), progress)
    progress.at("load_state()")
    other.reset(np.zeros(other.num_games, np.int64))
    other.load_state(data, arrays)
    got = _advance(other, 30, np.random.default_rng(seed + 1), progress)
    if not all(_equal(a, b) for a, b in zip(want, got, strict=True)):
        findings.problem(
            "state(): play does not continue the same after load_state(); mend it, or declare "
            "exact_state = False"
        )


def _check_frame(
    frame: Callable[[], dict[str, Any] | None], findings: Findings, progress: Progress
) -> None:
    progress.at("frame()")
    shown = frame()
    if shown is None:
        findings.note("frame() is None: a viewer has nothing to draw")
        return
    try:
        json.dumps(shown, allow_nan=False)
    except (TypeError, ValueError) as error:
        findings.problem(f"frame(): its data are not JSON-compatible: {error}")


def _throughput(game: BatchGame, seeds: NDArray[np.int64], progress: Progress, seed: int) -> float:
    progress.at("reset()")
    game.reset(seeds)
    rng = np.random.default_rng(seed)
    actions = {
        name: random_actions(role, game.observe(name).legal, game.num_games * role.seats, rng)
        for name, role in game.roles.items()
    }
    rows = sum(game.num_games * role.seats for role in game.roles.values())
    ticks = 0
    start = time.perf_counter()
    while time.perf_counter() - start < 0.3:
        progress.at("step()")
        if any(role.masked for role in game.roles.values()):
            for name, role in game.roles.items():
                legal = game.observe(name).legal
                actions[name] = random_actions(role, legal, game.num_games * role.seats, rng)
        game.step(actions)
        ticks += 1
    seconds = time.perf_counter() - start
    game.close()
    return ticks * rows / seconds


# ---------------------------------------------------------------------------------------------
# coroutine games


def _check_mdp(
    game: MDP,
    report: CheckReport,
    progress: Progress,
    episodes: int,
    max_ticks: int,
    seed: int,
    deadline: float,
) -> None:
    findings = Findings(report.problems, report.notes)
    report.roles = {name: describe_role(role) for name, role in game.roles.items()}
    records = []
    start = time.perf_counter()
    for episode in range(episodes):
        match = check_match(
            game, seed + episode, findings, progress.at, max_decisions=max_ticks, deadline=deadline
        )
        report.decisions += match.decisions
        report.episodes += match.lives
        records.append(match.record)
        if report.problems:
            return
    report.decisions_per_second = report.decisions / (time.perf_counter() - start)
    _check_frame(game.frame, findings, progress)
    again = check_match(
        game, seed, findings, progress.at, max_decisions=max_ticks, deadline=deadline
    )
    report.deterministic = again.record == records[0]
    if not report.deterministic:
        findings.note("equal seeds do not give equal matches: runs cannot be repeated")
    game.close()
