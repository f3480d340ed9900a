"""``lamarckian view``: watch runs in the browser."""

from __future__ import annotations

import argparse
import ipaddress
import secrets
import socket
import webbrowser
from pathlib import Path
from typing import Any

from lamarckian.cli import output
from lamarckian.errors import ConfigError

PORT = 8321


def add(subparsers: Any) -> argparse.ArgumentParser:
    """Add the parser of this command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "view",
        help="watch runs in the browser",
        description="Show runs, running or finished, on a page of this machine that follows them as "
        "they go on. The address holds a token; only who has it gets in. Ctrl-C ends it.",
    )
    parser.add_argument(
        "runs",
        metavar="RUN",
        nargs="*",
        type=Path,
        help="run folders, or folders that hold runs (default: runs)",
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen on (default 127.0.0.1, which only this machine reaches)",
    )
    parser.add_argument(
        "--port", type=int, help=f"port (default {PORT}, or a free one if that is taken; 0: any)"
    )
    parser.add_argument("--open", action="store_true", help="open the page in the browser")
    output.add_options(parser)
    return parser


def run(namespace: argparse.Namespace, extra: list[str]) -> int:
    """Serve until interrupted. Raises ConfigError or RunError."""
    try:
        import uvicorn

        from lamarckian.viewer.server import MAX_MESSAGE, make_app
    except ImportError as error:
        raise ConfigError(
            f"view: needs the package '{error.name}'; install it with "
            "pip install 'lamarckian[viewer]'"
        ) from None
    from lamarckian.viewer.hub import find_runs

    places = namespace.runs or [Path("runs")]
    if not namespace.runs:
        places[0].mkdir(exist_ok=True)
    found = find_runs(places)
    listener = _listen(namespace.host, namespace.port)
    port = listener.getsockname()[1]
    token = secrets.token_urlsafe(24)
    host = namespace.host
    shown = "127.0.0.1" if host in ("0.0.0.0", "") else "[::1]" if host == "::" else host
    address = (
        f"http://{f'[{shown}]' if ':' in shown and shown[0] != '[' else shown}:{port}/{token}/"
    )
    document = {"address": address, "runs": list(found), "port": port}
    output.emit(namespace, document, f"{len(found)} runs at {address}")
    if not _is_loopback(host):
        output.note(
            f"Whoever reaches {host} and knows the address can watch and stop these runs; what is sent "
            "is not encrypted. An SSH tunnel to 127.0.0.1 is safer."
        )
    print("", end="", flush=True)
    if namespace.open:
        webbrowser.open(address)
    config = uvicorn.Config(
        make_app(places, token=token, host=host),
        log_level="info" if namespace.verbose else "warning",
        access_log=False,
        ws="websockets-sansio",
        ws_max_size=MAX_MESSAGE,
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=1,
        server_header=False,
    )
    try:
        uvicorn.Server(config).run(sockets=[listener])
    except KeyboardInterrupt:
        return 0  # that is how one leaves
    finally:
        listener.close()
    return 0


def _listen(host: str, port: int | None) -> socket.socket:
    """Take the port. Raises ConfigError if it is taken or the address is not this machine's."""
    if port is not None and not 0 <= port < 65536:
        raise ConfigError(f"--port: expected 0 to 65535, got {port}")
    wanted = [PORT, 0] if port is None else [port]
    problem = ""
    for number in wanted:
        try:
            family = socket.getaddrinfo(host or None, number, type=socket.SOCK_STREAM)[0][0]
            listener = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            raise ConfigError(f"--host {host}: {error.strerror}") from None
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, number))
            listener.listen(64)
        except OSError as error:
            listener.close()
            problem = error.strerror or str(error)
            continue
        return listener
    raise ConfigError(
        f"cannot listen on {host} port {wanted[-1]}: {problem}; choose another --port"
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
