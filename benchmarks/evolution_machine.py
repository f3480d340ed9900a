"""Facts about the machine that every result file carries."""

from __future__ import annotations

import datetime
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any


def machine_facts(*packages: str) -> dict[str, Any]:
    """Return processor model, cores, interpreter, package versions, load and date."""
    model = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "python": platform.python_version(),
        "packages": {package: version(package) for package in packages},
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
    }
