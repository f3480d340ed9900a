"""Checkpoints: whole or absent, checked when read, small on disk.

A checkpoint is a manifest ``checkpoints/<step>.json`` and the blobs it names,
``blobs/<sha256>.safetensors``. Arrays are named ``part/name`` (``policy/actor.0.weight``); each
part is one blob, so equal parts are stored once and one part can be read alone. A part of several
words ends with two slashes (``player/replay/3//reward``). No pickle: state is
JSON, arrays are safetensors, the schema has a version.

Blobs are written and synced before the manifest that names them, and the manifest appears by one
rename; whatever the moment of a kill, every manifest present names blobs that are complete. Each
blob is verified by its hash, each manifest by its own, so a file damaged later is found, and the
newest whole checkpoint is used instead.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import re
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from lamarckian.errors import CheckpointError, nearest
from lamarckian.runs.durable import sweep, write_file

SCHEMA = 1
BLOBS, MANIFESTS = "blobs", "checkpoints"
_HASH = re.compile(r"[0-9a-f]{64}")
_ROOM = 1 << 20  # spare bytes asked of the disk beyond the arrays themselves


class BlobInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a checkpoint: the hash and size of its file, and what is inside."""

    sha256: str
    bytes: int
    arrays: dict[str, tuple[str, list[int]]]


class CheckpointInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The manifest without its state. ``bytes`` is the size of all its blobs."""

    step: int
    sequence: int
    score: float | None
    time: float
    version: str
    schema: int
    state_keys: list[str]
    parts: dict[str, BlobInfo]
    seconds: float = 0.0

    @property
    def bytes(self) -> int:
        return sum(blob.bytes for blob in self.parts.values())


@dataclass(slots=True)
class Checkpoint:
    """A checkpoint read back. ``warnings`` tells which newer ones were damaged."""

    info: CheckpointInfo
    state: dict[str, Any]
    arrays: dict[str, NDArray[Any]]
    warnings: list[str] = field(default_factory=list)


class Keep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which checkpoints stay on disk."""

    last: Annotated[
        int, msgspec.Meta(ge=2, description="Newest ones kept; the second is for a damaged first.")
    ] = 2
    best: Annotated[int, msgspec.Meta(ge=0, description="Best ones kept, by score.")] = 1
    every: Annotated[
        int, msgspec.Meta(ge=0, description="Also keep those whose step it divides; 0: none.")
    ] = 0


def save(
    folder: Path,
    step: int,
    state: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    *,
    score: float | None = None,
    sequence: int = 0,
    keep: Keep | None = None,
    pinned: Iterable[str] = (),
) -> CheckpointInfo:
    """Write one checkpoint into the run ``folder``, then drop those that ``keep`` does not want.

    ``state`` is JSON data (integers of any size, floats that may be nan or inf; tuples come back as
    lists), ``arrays`` maps ``part/name`` to arrays of any shape of bool, integer or float dtype.
    ``sequence`` is the number the journal gives the event of this checkpoint: it orders checkpoints
    in time, also when a resume went back to an earlier step. ``pinned`` are hashes of blobs that
    stay whatever happens.

    Raises CheckpointError if the disk is full (estimated before the first byte, and checked as it
    goes) or if something is not storable; every earlier checkpoint is intact then.
    """
    from lamarckian.version import __version__

    started = time.perf_counter()
    parts: dict[str, dict[str, NDArray[Any]]] = {}
    for name, array in arrays.items():
        part, inner = _part_of(name)
        parts.setdefault(part, {})[inner] = _storable(name, array)
    plain = _to_json(dict(state), "state")
    need = sum(each.nbytes for part in parts.values() for each in part.values()) + _ROOM
    try:
        for name in (BLOBS, MANIFESTS):
            (folder / name).mkdir(exist_ok=True)
        free = shutil.disk_usage(folder).free
        if need > free:
            raise OSError(errno.ENOSPC, f"about {_size(need)} needed, {_size(free)} free")
        info = CheckpointInfo(
            step=step,
            sequence=sequence,
            score=float(score) if score is not None and math.isfinite(score) else None,
            time=time.time(),
            version=__version__,
            schema=SCHEMA,
            state_keys=sorted(plain),
            parts={name: write_blob(folder, part) for name, part in parts.items()},
            seconds=round(time.perf_counter() - started, 4),
        )
        document = {"info": msgspec.to_builtins(info), "state": plain}
        body = json.dumps(document, allow_nan=False, separators=(",", ":")).encode()
        seal = hashlib.sha256(body).hexdigest().encode()
        # One line of JSON, and on the next line its hash.
        write_file(_manifest(folder, step), body + b"\n" + seal + b"\n")
    except OSError as error:
        what = "the disk is full" if error.errno == errno.ENOSPC else "cannot write"
        raise CheckpointError(
            f"checkpoint of step {step} in {folder}: {what} ({error.strerror}); "
            "earlier checkpoints are intact"
        ) from error
    with contextlib.suppress(OSError):
        prune(folder, keep or Keep(), pinned)
    return info


def load(
    folder: Path,
    which: int | Literal["last", "best"] = "last",
    *,
    require: Iterable[str] = (),
    parts: Sequence[str] | None = None,
) -> Checkpoint:
    """Read a checkpoint: the newest whole one, the best by score, or that of a step.

    ``require`` names the state keys and array parts that must be there; ``parts`` limits which
    array parts are read. With ``"last"`` and ``"best"`` a damaged checkpoint is passed over with a
    warning and the next one is taken; a damaged step asked for by number raises.

    Raises CheckpointError naming what is missing or damaged.
    """
    steps = _steps(folder)
    if not steps:
        raise CheckpointError(f"{folder}: there is no checkpoint in this run yet")
    if isinstance(which, int):
        if which not in steps:
            known = ", ".join(map(str, steps))
            raise CheckpointError(f"{folder}: no checkpoint of step {which}; there are {known}")
        return _read(folder, which, tuple(require), parts)
    warnings: list[str] = []
    good: list[CheckpointInfo] = []
    for step in steps:
        try:
            good.append(_read_manifest(folder, step)[0])
        except CheckpointError as error:
            warnings.append(str(error))
    order = sorted(good, key=_age, reverse=True)
    if which == "best":
        scored = [info for info in order if info.score is not None]
        order = sorted(scored, key=lambda info: -float(info.score or 0.0)) or order
    for info in order:
        try:
            checkpoint = _read(folder, info.step, tuple(require), parts)
        except _DamagedError as error:
            warnings.append(str(error))
            continue
        checkpoint.warnings = warnings
        return checkpoint
    raise CheckpointError(f"{folder}: every checkpoint is damaged: {'; '.join(warnings)}")


def available(folder: Path) -> list[CheckpointInfo]:
    """Return what the readable manifests say, the oldest first. Blobs are not checked."""
    found = []
    for step in _steps(folder):
        with contextlib.suppress(CheckpointError):
            found.append(_read_manifest(folder, step)[0])
    return sorted(found, key=_age)


def rehearse(
    folder: Path, state: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> CheckpointInfo:
    """Save and load once, before training, so that a first save cannot fail hours later.

    Leaves the checkpoint of step 0. Raises CheckpointError naming what does not come back equal.
    """
    info = save(folder, 0, state, arrays)
    back = load(folder, 0)
    returned = _to_json(back.state, "state")
    for name, value in _to_json(dict(state), "state").items():
        if json.dumps(returned.get(name), sort_keys=True) != json.dumps(value, sort_keys=True):
            raise CheckpointError(f"checkpoint: state '{name}' does not come back as it was saved")
    for name, array in arrays.items():
        one, other = _storable(name, array), back.arrays[name]
        if one.dtype != other.dtype or one.shape != other.shape or one.tobytes() != other.tobytes():
            raise CheckpointError(f"checkpoint: array '{name}' does not come back as it was saved")
    return info


def prune(folder: Path, keep: Keep, pinned: Iterable[str] = ()) -> int:
    """Remove the checkpoints ``keep`` does not want and the blobs nobody names; return how many.

    A blob named in a file under ``individuals/`` or in ``pinned`` stays.
    """
    infos = available(folder)
    wanted = {info.step for info in infos[-keep.last :]}
    scored = sorted((i for i in infos if i.score is not None), key=lambda i: -(i.score or 0.0))
    wanted |= {info.step for info in scored[: keep.best]}
    if keep.every:
        wanted |= {info.step for info in infos if info.step % keep.every == 0}
    gone = [info for info in infos if info.step not in wanted]
    # The manifest goes first: a kill in between leaves blobs nobody names, never the reverse.
    for info in gone:
        _manifest(folder, info.step).unlink(missing_ok=True)
    candidates = {blob.sha256 for info in gone for blob in info.parts.values()}
    _remove_blobs(folder, candidates, pinned)
    return len(gone)


def collect_garbage(folder: Path, pinned: Iterable[str] = ()) -> None:
    """Remove what killed writers left: temporary files, and blobs nobody names.

    Only for the owner of the run's lock. Does nothing to blobs if a manifest is unreadable, since
    what it names is unknown then.
    """
    for name in (BLOBS, MANIFESTS, "individuals"):
        sweep(folder / name)
    if len(available(folder)) == len(_steps(folder)):
        present = {path.stem for path in (folder / BLOBS).glob("*.safetensors")}
        _remove_blobs(folder, present, pinned)


def write_blob(folder: Path, arrays: Mapping[str, NDArray[Any]]) -> BlobInfo:
    """Store named arrays under the hash of their bytes; nothing is written if they are there.

    Raises OSError (disk full, not writable).
    """
    from safetensors.numpy import save as serialize

    stored = {name: _storable(name, array) for name, array in sorted(arrays.items())}
    data = serialize(stored)
    digest = hashlib.sha256(data).hexdigest()
    path = blob_path(folder, digest)
    path.parent.mkdir(exist_ok=True)
    # What is there is compared and not trusted: it may be the damaged copy of what is saved again.
    if not (path.exists() and path.stat().st_size == len(data) and path.read_bytes() == data):
        write_file(path, data)
    described = {name: (str(each.dtype), list(each.shape)) for name, each in stored.items()}
    return BlobInfo(sha256=digest, bytes=len(data), arrays=described)


def read_blob(folder: Path, digest: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of the blob with that hash, as fresh writable copies.

    Raises CheckpointError if it is missing or its bytes do not have that hash.
    """
    from safetensors.numpy import load as deserialize

    path = blob_path(folder, digest)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _DamagedError(f"{path}: cannot read the stored arrays: {error.strerror}") from None
    if hashlib.sha256(data).hexdigest() != digest:
        raise _DamagedError(f"{path}: damaged: its content does not have the hash of its name")
    return {name: np.array(array, copy=True) for name, array in deserialize(data).items()}


def blob_path(folder: Path, digest: str) -> Path:
    """Return where the blob with that hash is stored in a run folder."""
    return folder / BLOBS / f"{digest}.safetensors"


class _DamagedError(CheckpointError):
    """Bytes are missing or wrong, so that an older checkpoint may still do."""


def _age(info: CheckpointInfo) -> tuple[int, int]:
    return info.sequence, info.step


def _manifest(folder: Path, step: int) -> Path:
    return folder / MANIFESTS / f"{step}.json"


def _steps(folder: Path) -> list[int]:
    names = (path.stem for path in (folder / MANIFESTS).glob("*.json"))
    return sorted(int(name) for name in names if name.isdigit())


def _read_manifest(folder: Path, step: int) -> tuple[CheckpointInfo, dict[str, Any]]:
    path = _manifest(folder, step)
    try:
        body, _, seal = path.read_bytes().rpartition(b"\n")[0].rpartition(b"\n")
    except OSError as error:
        raise _DamagedError(f"{path}: cannot read the checkpoint: {error.strerror}") from None
    if hashlib.sha256(body).hexdigest().encode() != seal:
        raise _DamagedError(f"{path}: damaged: its content does not match its checksum")
    document = json.loads(body)
    schema = document["info"]["schema"]
    if schema > SCHEMA:
        raise CheckpointError(
            f"{path}: written by release {document['info']['version']} (schema {schema}); "
            f"this release reads schemas up to {SCHEMA}: upgrade lamarckian"
        )
    return msgspec.convert(document["info"], CheckpointInfo), _from_json(document["state"])


def _read(
    folder: Path, step: int, require: tuple[str, ...], parts: Sequence[str] | None
) -> Checkpoint:
    info, state = _read_manifest(folder, step)
    where = _manifest(folder, step)
    present = [*info.state_keys, *info.parts]
    missing = [name for name in (*require, *(parts or ())) if name not in present]
    missing += [name for name in info.state_keys if name not in state]
    if missing:
        raise CheckpointError(
            f"{where}: the checkpoint lacks {', '.join(repr(name) for name in missing)}"
            f"{nearest(missing[0], present) or ';'} it holds {', '.join(present)}"
        )
    arrays: dict[str, NDArray[Any]] = {}
    for part, blob in info.parts.items():
        if parts is not None and part not in parts:
            continue
        content = read_blob(folder, blob.sha256)
        lost = [name for name in blob.arrays if name not in content]
        if lost:
            raise _DamagedError(f"{where}: part '{part}' lacks the arrays {', '.join(lost)}")
        arrays |= {f"{part}/{name}" if part else name: each for name, each in content.items()}
    return Checkpoint(info, state, arrays)


def _remove_blobs(folder: Path, candidates: set[str], pinned: Iterable[str]) -> None:
    for info in available(folder):
        candidates = candidates - {blob.sha256 for blob in info.parts.values()}
    candidates = candidates - set(pinned)
    if candidates:
        for path in (folder / "individuals").glob("*.json"):
            candidates = candidates - set(_HASH.findall(path.read_text(encoding="utf-8")))
    for digest in candidates:
        blob_path(folder, digest).unlink(missing_ok=True)


def _part_of(name: str) -> tuple[str, str]:
    """Return the part an array belongs to and its name inside; both joined by ``/`` give ``name``."""
    if "//" in name:
        part, _, inner = name.partition("//")
        return f"{part}/", inner
    part, slash, inner = name.partition("/")
    return (part, inner) if slash else ("", part)


def _storable(name: str, array: Any) -> NDArray[Any]:
    value = np.asarray(array)
    if value.dtype.kind not in "biuf" or value.dtype.itemsize > 8:
        raise CheckpointError(
            f"checkpoint: array '{name}' has dtype {value.dtype}; "
            "expected bool, an integer or a float of at most 64 bits"
        )
    return np.asarray(value.astype(value.dtype.newbyteorder("="), copy=False), order="C")


def _to_json(value: Any, where: str) -> Any:
    """Return ``value`` as strict JSON; floats that are not finite become ``{"$float": ..}``."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, (float, np.floating)):
        number = float(value)
        return number if math.isfinite(number) else {"$float": str(number)}
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str) or key == "$float":
                raise CheckpointError(f"checkpoint: {where} has the key {key!r}; expected a text")
        return {key: _to_json(each, f"{where}.{key}") for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_json(each, f"{where}[{index}]") for index, each in enumerate(value)]
    raise CheckpointError(
        f"checkpoint: {where} is a {type(value).__name__}, which is not JSON data; "
        "arrays belong among the arrays"
    )


def _from_json(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"$float"}:
            return float(value["$float"])
        return {key: _from_json(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_from_json(each) for each in value]
    return value


def _size(count: int) -> str:
    return f"{count / 2**20:.0f} MB"
