"""Entry points by name: what runs in a worker is ``"package.module:function"`` plus plain data."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import msgspec

from lamarckian.distributed.layout import to_plain
from lamarckian.errors import ConfigError


def entry_name(entry: str | Callable[..., Any]) -> str:
    """Return the name of an entry point; a module-level function may be given instead of its name.

    Raises ConfigError for lambdas, nested functions and functions of ``__main__``: another process
    cannot find those.
    """
    if isinstance(entry, str):
        module, _, function = entry.partition(":")
        if not module or not function or "<" in entry:
            raise ConfigError(f"entry point: expected 'package.module:function', got {entry!r}")
    else:
        module = getattr(entry, "__module__", "") or ""
        function = getattr(entry, "__qualname__", "")
        if not module or not function or "<" in function:
            raise ConfigError(
                f"entry point: {function or entry!r} is a lambda or a function inside a function, "
                "which another process cannot find; define it at the top of a module"
            )
    if module == "__main__":
        raise ConfigError(
            f"entry point: {function!r} is defined in the script or notebook itself, which another "
            "process cannot import; move it to a module and name it 'module:function'"
        )
    return f"{module}:{function}"


def load_entry(name: str) -> Callable[..., Any]:
    """Import and return the function called ``name``. Raises ConfigError if it is not there."""
    module_name, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name + ".").startswith(error.name + "."):
            raise ConfigError(
                f"entry point {name!r}: no module called {error.name!r}; workers search the same "
                "sys.path as the process that starts them"
            ) from error
        raise
    for part in path.split("."):
        if not hasattr(found, part):
            raise ConfigError(f"entry point {name!r}: module {module_name!r} has no {part!r}")
        found = getattr(found, part)
    if not callable(found):
        raise ConfigError(f"entry point {name!r}: it is a {type(found).__name__}, not a function")
    return found  # type: ignore[no-any-return]


def pack_config(config: object, where: str) -> bytes:
    """Return ``config`` as bytes; raises ConfigError unless it is plain data."""
    try:
        return msgspec.msgpack.encode(config, enc_hook=to_plain)
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(
            f"{where}: the configuration must be plain data (numbers, strings, lists, dicts): "
            f"it goes to another process: {error}; give the name 'module:function' instead of a "
            "function"
        ) from error


def unpack_config(data: bytes) -> Any:
    """Return the plain data of :func:`pack_config`."""
    return msgspec.msgpack.decode(data)
