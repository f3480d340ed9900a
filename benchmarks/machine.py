"""Facts about the machine and the moment that every result file carries.

A number without them cannot be read: never compare results of two machines, or of one machine under
two loads.
"""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("lamarckian", "numpy", "torch")


def processor() -> str:
    """Return the model name of the processor as the system tells it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def load() -> float:
    """Return the load average of the last minute."""
    return round(os.getloadavg()[0], 2)


def commit() -> str:
    """Return the commit of the source tree, with a plus sign if files differ from it."""
    here = Path(__file__).parent
    try:
        name = _git(here, "rev-parse", "--short=12", "HEAD")
        changed = _git(here, "status", "--porcelain", "--untracked-files=no", "--", "../src")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return name + ("+" if changed else "")


def _git(where: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(where), *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def versions(*packages: str) -> dict[str, str]:
    """Return the versions of the ``packages`` that are installed."""
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def machine_facts(*packages: str) -> dict[str, Any]:
    """Return processor, cores, system, versions, load, date and commit; call it before measuring.

    Store :func:`load` as ``load_average_after`` when the measuring is done.
    """
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": versions(*PACKAGES, *packages),
        "load_average": load(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(),
    }
