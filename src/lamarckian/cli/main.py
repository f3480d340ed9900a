"""The command line: ``lamarckian COMMAND ...``.

A command is one module with

- ``add(subparsers)``: add its parser (``subparsers.add_parser(NAME, ...)``) and return it;
- ``run(namespace, extra) -> int``: do it and return the exit code;
- ``SETTINGS = True`` if it understands dotted settings (``--algorithm.learning_rate 3e-4``), which
  arrive untouched in ``extra`` for :func:`lamarckian.config.overrides`. Without it any unknown
  option is an error.

Only the module of the command that was asked for is imported. A command that makes a run folder
sets ``namespace.run_folder``, so that a crash report lands there.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import logging
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from lamarckian.errors import ConfigError, LamarckianError, UnknownName, nearest
from lamarckian.version import __version__

# command -> (module in lamarckian.cli, what it does). Listed if the module is installed.
COMMANDS: dict[str, tuple[str, str]] = {
    "train": ("train", "learn to play a game"),
    "resume": ("resume", "continue a run that was stopped or killed"),
    "evaluate": ("evaluate", "measure a trained policy"),
    "play": ("play", "watch a trained policy, or play against it"),
    "evolve": ("evolve", "search with evolution, training each candidate"),
    "balance": ("balance", "search a game's lineups for imbalance and who is to blame"),
    "front": ("front", "list the best individuals of an evolution"),
    "lineage": ("lineage", "show where an individual comes from"),
    "search-spaces": ("search_spaces", "list what evolves in each problem and game"),
    "view": ("view", "watch runs in the browser"),
    "report": ("report", "write a run as one HTML page"),
    "export": ("export", "write a policy for use in a game (ONNX)"),
    "demo": ("demo", "learn Pong in about 90 seconds and write a report to watch"),
    "games": ("games", "list the games"),
    "algorithms": ("algorithms", "list the algorithms"),
    "config": ("config", "list every setting with its default, range and meaning"),
    "check-game": ("check_game", "check a game and name what is wrong with it"),
    "doctor": ("doctor", "check this machine and installation"),
}
INTERRUPTED = 130
BROKEN_PIPE = 141


class Parser(argparse.ArgumentParser):
    """argparse that reports a mistake as one line, and takes no abbreviations."""

    def __init__(self, *args: object, **options: object) -> None:
        options.setdefault("allow_abbrev", False)
        super().__init__(*args, **options)  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; see '{self.prog} --help'")


def installed() -> dict[str, tuple[str, str]]:
    """Return the commands whose module exists, without importing any."""
    return {
        name: (f"lamarckian.cli.{module}", text)
        for name, (module, text) in COMMANDS.items()
        if importlib.util.find_spec(f"lamarckian.cli.{module}") is not None
    }


def entry() -> NoReturn:
    """The console script: run the command in ``sys.argv`` and exit with its code."""
    raise SystemExit(main(sys.argv[1:]))


def main(argv: Sequence[str]) -> int:
    """Run one command and return its exit code; no exception leaves this function."""
    namespace = argparse.Namespace()
    try:
        code = _dispatch(list(argv), namespace)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader of the pipe went away. The interpreter flushes once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except KeyboardInterrupt:
        _say("interrupted")
        return INTERRUPTED
    except SystemExit as stop:  # argparse after --help
        return stop.code if isinstance(stop.code, int) else 0
    except LamarckianError as error:
        return _fail(argv, str(error), type(error).__name__, error.exit_code)
    except Exception as error:
        where = _save_traceback(getattr(namespace, "run_folder", None), argv)
        message = (
            f"{type(error).__name__}: {error}\n"
            f"This is a fault in lamarckian or in code it runs. Traceback: {where}"
        )
        return _fail(argv, message, type(error).__name__, 1)


def _dispatch(argv: list[str], namespace: argparse.Namespace) -> int:
    known = installed()
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(_overview(known))
        return 0
    if argv[0] in ("-V", "--version"):
        print(f"lamarckian {__version__}")
        return 0
    name = argv[0]
    if name.startswith("-"):
        raise ConfigError(f"expected a command before '{name}'; see 'lamarckian --help'")
    if name not in known:
        raise UnknownName(
            f"unknown command '{name}'{nearest(name, known) or ';'} known: {', '.join(known)}"
        )
    module = importlib.import_module(known[name][0])
    parser = Parser(prog="lamarckian")
    command = module.add(parser.add_subparsers(dest="command"))
    rest, extra = split(argv[1:], command)
    parser.parse_args([name, *rest], namespace)
    if extra and not getattr(module, "SETTINGS", False):
        option = extra[0].partition("=")[0]
        raise ConfigError(
            f"unknown option '{option}'{nearest(option, command._option_string_actions) or ';'} "
            f"see 'lamarckian {name} --help'"
        )
    _set_up_logging(namespace)
    return _run(module, namespace, extra)


def _run(module: ModuleType, namespace: argparse.Namespace, extra: list[str]) -> int:
    code = module.run(namespace, extra)
    if not isinstance(code, int):
        raise TypeError(f"{module.__name__}.run returned {code!r}; expected an exit code")
    return code


def split(argv: Sequence[str], parser: argparse.ArgumentParser) -> tuple[list[str], list[str]]:
    """Separate what ``parser`` declares from settings: ``(rest, extra)``.

    An option ``--name`` that the parser does not declare is a setting and takes the token after it
    as its value (unless written ``--name=value``). argparse alone would hand that value to a
    positional argument.
    """
    declared = parser._option_string_actions
    rest: list[str] = []
    extra: list[str] = []
    position = 0
    while position < len(argv):
        token = argv[position]
        position += 1
        if token == "--":
            rest += argv[position - 1 :]
            break
        name, equals, _ = token.partition("=")
        if not token.startswith("--") or name in declared:
            rest.append(token)
            action = declared.get(name)
            if action is not None and not equals and action.nargs is None and position < len(argv):
                rest.append(argv[position])
                position += 1
            continue
        extra.append(token)
        if not equals and position < len(argv) and not argv[position].startswith("--"):
            extra.append(argv[position])
            position += 1
    return rest, extra


def _overview(known: dict[str, tuple[str, str]]) -> str:
    width = max((len(name) for name in known), default=0)
    lines = [f"  {name.ljust(width)}  {text}" for name, (_, text) in known.items()]
    return "\n".join(
        [
            "usage: lamarckian COMMAND ...",
            "",
            "Evolutionary reinforcement learning for games that do not wait.",
            "",
            "commands:",
            *lines,
            "",
            "'lamarckian COMMAND --help' tells more; 'lamarckian --version' tells the release.",
            "Settings are given as --group.key value, e.g. --algorithm.learning_rate 3e-4.",
        ]
    )


def _set_up_logging(namespace: argparse.Namespace) -> None:
    level = logging.WARNING
    if getattr(namespace, "verbose", False):
        level = logging.INFO
    elif getattr(namespace, "quiet", False):
        level = logging.ERROR
    logger = logging.getLogger("lamarckian")
    logger.setLevel(level)
    for old in [each for each in logger.handlers if getattr(each, "of_command_line", False)]:
        logger.removeHandler(old)
    handler = logging.StreamHandler(sys.stderr)
    handler.of_command_line = True  # type: ignore[attr-defined]
    handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    logger.addHandler(handler)


def _say(message: str) -> None:
    try:
        print(f"lamarckian: {message}", file=sys.stderr, flush=True)
    except OSError:
        return  # nobody reads it


def _fail(argv: Sequence[str], message: str, kind: str, code: int) -> int:
    _say(message)
    if "--json" in argv:
        from lamarckian.cli.output import to_json

        error = {"error": {"type": kind, "message": message, "exit_code": code}}
        print(to_json(error), flush=True)
    return code


def _save_traceback(run_folder: str | Path | None, argv: Sequence[str]) -> Path | None:
    text = (
        f"lamarckian {__version__}, Python {sys.version.split()[0]}, {sys.platform}\n"
        f"{time.strftime('%Y-%m-%d %H:%M:%S')}  lamarckian {' '.join(argv)}\n\n"
        f"{traceback.format_exc()}"
    )
    name = f"crash-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    for folder in (run_folder, tempfile.gettempdir(), "."):
        if folder is None:
            continue
        path = Path(folder) / name
        try:
            path.write_text(text, encoding="utf-8")
        except OSError:
            continue
        return path
    traceback.print_exc()
    return None
