"""The command line's frame: lazy commands, one message for a mistake, one document for --json."""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any

import pytest

from lamarckian.cli import main as cli
from lamarckian.cli import output
from lamarckian.errors import ConfigError, LamarckianError, RunError
from lamarckian.version import __version__

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def make_command(monkeypatch: pytest.MonkeyPatch, action: Any, settings: bool = True) -> None:
    """Put a command 'probe' in place whose ``run`` is ``action(namespace, extra)``."""
    module = types.ModuleType("lamarckian.cli.probe")

    def add(subparsers: Any) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = subparsers.add_parser("probe")
        parser.add_argument("game", nargs="?")
        parser.add_argument("--run")
        parser.add_argument("--force", action="store_true")
        parser.add_argument("--device", choices=["cpu", "cuda"])
        output.add_options(parser)
        return parser

    module.add = add  # type: ignore[attr-defined]
    module.run = action  # type: ignore[attr-defined]
    module.SETTINGS = settings  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lamarckian.cli.probe", module)
    monkeypatch.setattr(cli, "installed", lambda: {"probe": ("lamarckian.cli.probe", "a probe")})


def test_pitfalls_ins_03_help_needs_no_torch_and_little_time() -> None:
    code = (
        "import sys, time; start = time.perf_counter()\n"
        "import lamarckian\n"
        "from lamarckian.cli.main import main\n"
        "main(['--help'])\n"
        "print(time.perf_counter() - start, file=sys.stderr)\n"
        "heavy = {'torch', 'zmq', 'ray', 'yaml', 'rich', 'gymnasium'} & sys.modules.keys()\n"
        "assert not heavy, heavy\n"
    )
    seconds = []
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.startswith("usage: lamarckian COMMAND")
        seconds.append(float(done.stderr))
    assert min(seconds) < 1.0


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"lamarckian {__version__}\n"
    assert cli.main([]) == 0
    text = capsys.readouterr().out
    for name in cli.installed():
        assert f"\n  {name} " in text


def test_the_version_is_that_of_the_package() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    assert f'\nversion = "{__version__}"\n' in text


@pytest.mark.parametrize("name", sorted(cli.installed()))
def test_every_installed_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([name, "--help"]) == 0
    assert f"usage: lamarckian {name}" in capsys.readouterr().out


def test_pitfalls_cfg_01_unknown_commands_and_options(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_command(monkeypatch, lambda namespace, extra: 0, settings=False)
    for argv, part in [
        (["prob"], "unknown command 'prob'; did you mean 'probe'? known: probe"),
        (["--quiet"], "expected a command before '--quiet'"),
        (["probe", "--forse"], "unknown option '--forse'; did you mean '--force'?"),
        (["probe", "--jso"], "unknown option '--jso'; did you mean '--json'?"),
        (["probe", "a", "b"], "unrecognized arguments: b"),
        (["probe", "--device", "gpu"], "invalid choice: 'gpu'"),
        (["probe", "--run"], "argument --run: expected one argument"),
    ]:
        assert cli.main(argv) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert part in captured.err
        assert captured.err.count("\n") == 1


def test_settings_are_kept_apart_from_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def action(namespace: argparse.Namespace, extra: list[str]) -> int:
        seen.append((namespace.game, namespace.run, namespace.force, extra))
        return 0

    make_command(monkeypatch, action)
    settings = ["--algorithm.learning_rate", "3e-4", "--frames", "-5", "--seed=3"]
    for argv in (
        ["pong", *settings, "--run", "a b", "--force"],
        [*settings, "pong", "--force", "--run", "a b"],
        ["--run=a b", "--force", *settings, "--", "pong"],
    ):
        assert cli.main(["probe", *argv]) == 0
        assert seen.pop()[-1] == settings
    cli.main(["probe", *settings, "--run", "--odd", "--", "--pong"])
    cli.main(["probe", "--run", "x", "--force", *settings, "pong"])
    assert seen.pop() == ("pong", "x", True, settings)


def raising(error: BaseException) -> Any:
    def action(namespace: argparse.Namespace, extra: list[str]) -> int:
        raise error

    return action


@pytest.mark.parametrize(
    ("error", "code"),
    [(ConfigError("a is wrong"), 2), (RunError("no run"), 2), (LamarckianError("disk"), 1)],
)
def test_an_error_is_one_message_and_its_exit_code(
    error: LamarckianError, code: int, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    make_command(monkeypatch, raising(error))
    assert cli.main(["probe"]) == code
    captured = capsys.readouterr()
    assert captured.err == f"lamarckian: {error}\n"
    assert captured.out == ""
    assert cli.main(["probe", "--json"]) == code
    document = json.loads(capsys.readouterr().out)
    assert document["error"] == {
        "type": type(error).__name__, "message": str(error), "exit_code": code,
    }  # fmt: skip


def test_interrupt_is_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_command(monkeypatch, raising(KeyboardInterrupt()))
    assert cli.main(["probe"]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_an_unexpected_error_leaves_a_report_in_the_run_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def action(namespace: argparse.Namespace, extra: list[str]) -> int:
        namespace.run_folder = tmp_path
        raise ZeroDivisionError("boom")

    make_command(monkeypatch, action)
    assert cli.main(["probe"]) == 1
    text = capsys.readouterr().err
    (report,) = tmp_path.glob("crash-*.txt")
    assert "ZeroDivisionError: boom" in text
    assert str(report) in text
    assert "Traceback" in report.read_text()
    assert "test_skeleton.py" in report.read_text()
    assert len(text.splitlines()) == 2


def test_an_unwritable_run_folder_sends_the_report_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def action(namespace: argparse.Namespace, extra: list[str]) -> int:
        namespace.run_folder = tmp_path / "none"
        raise ZeroDivisionError("boom")

    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    make_command(monkeypatch, action)
    assert cli.main(["probe"]) == 1
    assert len(list(tmp_path.glob("crash-*.txt"))) == 1


def test_json_is_one_strict_document(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    np = pytest.importorskip("numpy")

    def action(namespace: argparse.Namespace, extra: list[str]) -> int:
        data = {"a": float("nan"), "b": np.float32(0.5), "c": (1, np.arange(2)), "p": Path("ü")}
        output.emit(namespace, data, "text")
        output.note("not a result")
        return 0

    make_command(monkeypatch, action)
    assert cli.main(["probe", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"a": None, "b": 0.5, "c": [1, [0, 1]], "p": "ü"}
    assert captured.err == "not a result\n"
    assert cli.main(["probe"]) == 0
    assert capsys.readouterr().out == "text\n"


def test_a_closed_pipe_is_quiet() -> None:
    code = (
        "import sys, types, lamarckian.cli.main as cli, lamarckian.cli.output as output\n"
        "module = types.ModuleType('lamarckian.cli.probe')\n"
        "module.add = lambda subparsers: subparsers.add_parser('probe')\n"
        "def run(namespace, extra):\n"
        "    for _ in range(100000): print('line')\n"
        "    return 0\n"
        "module.run = run\n"
        "sys.modules['lamarckian.cli.probe'] = module\n"
        "cli.installed = lambda: {'probe': ('lamarckian.cli.probe', '')}\n"
        "sys.argv[1:] = ['probe']\n"
        "cli.entry()\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code], env=ENVIRONMENT, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    assert child.stdout is not None
    assert child.stderr is not None
    assert child.stdout.readline() == b"line\n"
    child.stdout.close()
    errors = child.stderr.read()
    child.stderr.close()
    assert child.wait() == 141
    assert errors == b""


def test_ctrl_c_of_a_real_process() -> None:
    code = (
        "import sys, time, types, lamarckian.cli.main as cli\n"
        "module = types.ModuleType('lamarckian.cli.probe')\n"
        "module.add = lambda subparsers: subparsers.add_parser('probe')\n"
        "def run(namespace, extra):\n"
        "    print('ready', flush=True); time.sleep(60); return 0\n"
        "module.run = run\n"
        "sys.modules['lamarckian.cli.probe'] = module\n"
        "cli.installed = lambda: {'probe': ('lamarckian.cli.probe', '')}\n"
        "sys.argv[1:] = ['probe']\n"
        "cli.entry()\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code], env=ENVIRONMENT, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=10)
    assert child.returncode == 130
    assert errors == b"lamarckian: interrupted\n"


def test_table_aligns_columns() -> None:
    text = output.table([("a", 1.5), ("long", None)], ("name", "value"))
    assert text.splitlines() == ["name  value", "----  -----", "a     1.5", "long  -"]


def test_doctor_reports_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cores"]["usable"] >= 1
    assert found["packages"]["numpy"]
    assert found["threads"]["actor"] == 1
    assert found["extras"]["wandb"]["install"] == "pip install 'lamarckian[wandb]'"
    assert found["device"]["choice"] in ("cpu", "cuda")
    assert cli.main(["doctor"]) == 0
    assert "shared memory  memfd" in capsys.readouterr().out


def test_doctor_names_a_missing_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from lamarckian.cli import doctor

    monkeypatch.setattr(doctor, "REQUIRED", ("numpy", "no-such-package"))
    assert cli.main(["doctor"]) == 1
    assert "no-such-package is not installed: pip install no-such-package" in (
        capsys.readouterr().out
    )


def test_extras_of_doctor_are_those_of_the_package() -> None:
    import tomllib

    from lamarckian.cli.doctor import EXTRAS, REQUIRED

    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    declared = set(project["optional-dependencies"]) - {"dev", "test"}
    assert declared - {"all", "docs"} == set(EXTRAS)
    needed = {entry.partition(">=")[0].lower() for entry in project["dependencies"]}
    assert needed == set(REQUIRED)
