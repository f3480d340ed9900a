"""``lamarckian doctor``: what this machine and this installation can do."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import platform
import shutil
from pathlib import Path
from typing import Any

from lamarckian.cli import output
from lamarckian.distributed.process import available_cores
from lamarckian.version import __version__

REQUIRED = ("msgspec", "numpy", "pyyaml", "rich", "safetensors", "torch")
# extra -> (what it is for, modules it brings)
EXTRAS: dict[str, tuple[str, tuple[str, ...]]] = {
    "gymnasium": ("Gymnasium environments", ("gymnasium",)),
    "atari": ("Atari games", ("ale_py", "gymnasium")),
    "pettingzoo": ("PettingZoo games", ("pettingzoo",)),
    "mpe": ("the particle games of mpe2, tick by tick", ("mpe2", "pettingzoo")),
    "smax": ("the StarCraft-like battles of JaxMARL", ("jax", "jaxmarl")),
    "onnx": ("export of policies", ("onnx", "onnxruntime")),
    "tensorboard": ("TensorBoard curves", ("tensorboard",)),
    "wandb": ("Weights & Biases", ("wandb",)),
    "fast": ("compiled selection and variation, sorting of large fronts", ("moocore", "numba")),
    "cluster": ("data between hosts", ("zmq",)),
    "viewer": ("the live page of runs", ("starlette", "uvicorn", "websockets")),
}
_SMALL_SHM = 64 << 20


def add(subparsers: Any) -> argparse.ArgumentParser:
    """Add the parser of this command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "doctor",
        help="check this machine and installation",
        description="Check this machine and installation. Exit code 1 if something is missing that "
        "training needs.",
    )
    output.add_options(parser)
    return parser


def run(namespace: argparse.Namespace, extra: list[str]) -> int:
    """Print what was found; return 1 if training cannot work here."""
    found = examine(Path.cwd())
    output.emit(namespace, found, _text(found))
    return 1 if found["problems"] else 0


def examine(folder: Path) -> dict[str, Any]:
    """Return the facts as plain data; sizes in bytes. ``folder`` is where runs would be kept."""
    versions = {name: _version(name) for name in REQUIRED}
    extras = {
        name: {
            "for": purpose,
            "installed": all(importlib.util.find_spec(module) for module in modules),
            "install": f"pip install 'lamarckian[{name}]'",
        }
        for name, (purpose, modules) in EXTRAS.items()
    }
    cores = available_cores()
    memory = _memory()
    shm = shutil.disk_usage("/dev/shm").free if Path("/dev/shm").is_dir() else None
    memfd = _memfd_works()
    torch = _torch_facts()
    facts: dict[str, Any] = {
        "lamarckian": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "packages": versions,
        "extras": extras,
        "cores": {"usable": cores, "present": os.cpu_count() or 1},
        "memory": memory,
        "disk": {"folder": str(folder), "free": shutil.disk_usage(folder).free},
        "shared_memory": {"dev_shm_free": shm, "memfd": memfd},
        "threads": {
            "learner": cores,
            "actor": 1,
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS"),
        },
        "device": torch,
        "writable": os.access(folder, os.W_OK),
    }
    facts["problems"], facts["advice"] = _judge(facts)
    return facts


def _judge(facts: dict[str, Any]) -> tuple[list[str], list[str]]:
    problems = [
        f"{name} is not installed: pip install {name}"
        for name, version in facts["packages"].items()
        if version is None
    ]
    advice = []
    if not facts["writable"]:
        advice.append(f"{facts['disk']['folder']} is not writable; give runs a place with --run")
    if facts["disk"]["free"] < 1 << 30:
        advice.append("less than 1 GB of disk is free here; checkpoints may not fit")
    shm = facts["shared_memory"]
    if not shm["memfd"]:
        advice.append("memfd is not available; actors send data through sockets, which is slower")
        if shm["dev_shm_free"] is not None and shm["dev_shm_free"] < _SMALL_SHM:
            advice.append("/dev/shm is small; in a container start it with --shm-size=256m")
    if facts["cores"]["usable"] < facts["cores"]["present"]:
        advice.append(
            f"this process may use {facts['cores']['usable']} of {facts['cores']['present']} cores"
        )
    return problems, advice


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _memory() -> dict[str, int | None]:
    facts: dict[str, int | None] = {"total": None, "available": None, "limit": None}
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            name, _, rest = line.partition(":")
            if name in ("MemTotal", "MemAvailable"):
                key = "total" if name == "MemTotal" else "available"
                facts[key] = int(rest.split()[0]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        facts["limit"] = None if limit == "max" else int(limit)
    except (OSError, ValueError):
        pass
    return facts


def _memfd_works() -> bool:
    create = getattr(os, "memfd_create", None)
    if create is None:
        return False
    try:
        os.close(create("lamarckian-doctor"))
    except OSError:
        return False
    return True


def _torch_facts() -> dict[str, Any]:
    try:
        import torch
    except (ImportError, OSError) as error:
        return {"choice": None, "why": f"torch cannot be imported: {error}", "cuda": []}
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        return {"choice": "cuda", "why": "CUDA devices are present", "cuda": names}
    built = torch.version.cuda
    why = (
        f"torch is built for CUDA {built} and sees no device" if built else "torch is built for CPU"
    )
    return {"choice": "cpu", "why": why, "cuda": []}


def _text(found: dict[str, Any]) -> str:
    memory, shm = found["memory"], found["shared_memory"]
    packages = ", ".join(
        f"{name} {version or 'missing'}" for name, version in found["packages"].items()
    )
    device = found["device"]
    rows: list[tuple[str, str]] = [
        ("lamarckian", found["lamarckian"]),
        ("Python", f"{found['python']} on {found['system']}"),
        ("packages", packages),
        ("cores", f"{found['cores']['usable']} usable of {found['cores']['present']}"),
        ("threads", f"learner {found['threads']['learner']}, each actor 1"),
        ("memory", f"{_gb(memory['available'])} available of {_gb(memory['total'])}"),
        ("disk", f"{_gb(found['disk']['free'])} free in {found['disk']['folder']}"),
        (
            "shared memory",
            f"memfd {'works' if shm['memfd'] else 'is missing'}, "
            f"/dev/shm {_gb(shm['dev_shm_free'])} free",
        ),
        ("device", f"{device['choice']} ({device['why']})"),
    ]
    rows += [
        (f"[{name}]", f"{each['for']}: " + ("installed" if each["installed"] else each["install"]))
        for name, each in found["extras"].items()
    ]
    lines = [output.table(rows)]
    lines += [f"problem: {line}" for line in found["problems"]]
    lines += [f"note: {line}" for line in found["advice"]]
    return "\n".join(lines)


def _gb(size: int | None) -> str:
    return "unknown" if size is None else f"{size / 2**30:.1f} GB"
