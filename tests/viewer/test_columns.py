"""Replays packed as columns: what comes back is what went in, in Python and in the page."""

import base64
import gzip
import json
import math
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from handmade_runs import pong_frames
from hypothesis import given, settings
from hypothesis import strategies as st

import lamarckian.viewer
from lamarckian.viewer import Replay, columns
from lamarckian.viewer.replay import MAX_TICKS, pack

PAGE = Path(lamarckian.viewer.__file__).parent / "page"

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.text(max_size=4)
    | st.floats(allow_nan=False, allow_infinity=False, width=32)
)
trees = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


def close(one: Any, other: Any, tolerance: float) -> bool:
    if isinstance(one, (int, float)) and not isinstance(one, bool):
        return type(other) is not bool and math.isclose(one, other, rel_tol=1e-9, abs_tol=tolerance)
    if isinstance(one, list):
        return len(one) == len(other) and all(close(a, b, tolerance) for a, b in zip(one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(close(one[k], other[k], tolerance) for k in one)
    return type(one) is type(other) and one == other


@given(st.lists(trees, max_size=6))
@settings(max_examples=200, deadline=None)
def test_any_json_comes_back(values: list[Any]) -> None:
    numbers = [abs(v) for v in leaves(values) if isinstance(v, float)]
    tolerance = max(numbers, default=0.0) / 2000 + 1e-6
    packed = json.loads(json.dumps(columns.encode(values), allow_nan=False))
    assert close(values, columns.decode(packed, len(values)), tolerance)


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    return [leaf for each in value for leaf in leaves(each)] if isinstance(value, list) else [value]


def test_numbers_are_differences_in_small_units() -> None:
    # span 10: ceil(3.7 - 1) = 3 places, so units of 1/1000
    assert columns.encode([0.0, 0.5, 10.0]) == {"d": [0, 500, 9500], "p": 3}
    assert columns.encode([3, 5, 4]) == {"d": [3, 2, -1], "p": 0}


def test_what_never_changes_is_kept_once_and_types_are_kept_apart() -> None:
    assert columns.encode([[16, 2.5]] * 9) == {"c": [16, 2.5]}
    assert columns.decode(columns.encode([True, 1, True, 0]), 4) == [True, 1, True, 0]


def test_numbers_that_are_not_finite_become_null() -> None:
    assert columns.decode(columns.encode([1.0, math.nan, math.inf]), 3) == [1.0, None, None]


def test_units_that_die_change_the_length_of_a_list() -> None:
    frames = [{"units": [[tick, place, 1.5] for place in range(4 - tick)]} for tick in range(4)]
    assert columns.decode(columns.encode(frames), 4) == frames


def test_images_come_back_exactly() -> None:
    images = np.random.default_rng(1).integers(0, 256, (5, 20, 24)).tolist()
    packed = columns.encode([{"image": image} for image in images])
    assert "g" in packed["o"]["image"]
    assert [frame["image"] for frame in columns.decode(packed, 5)] == images


def test_what_is_not_json_is_refused() -> None:
    with pytest.raises(TypeError, match="holds a object"):
        columns.encode([{"ball": object()}])


def node(source: str, *arguments: str) -> str:
    program = shutil.which("node")
    if program is None:
        pytest.skip("node is not installed")
    done = subprocess.run(
        [program, "-e", source, "--", *arguments], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("count", [3, 1200])
def test_the_page_decodes_what_python_encodes(tmp_path: Path, count: int) -> None:
    frames = pong_frames(count)
    for tick, frame in enumerate(frames):
        frame["units"] = [[tick, place] for place in range(tick % 4)]
        frame["word"] = "left" if tick % 3 else "right"
        frame["odd"] = [None, {"a": tick}, "x"][tick % 3]
        frame["image"] = [[(tick + y * x) % 256 for x in range(16)] for y in range(16)]
    packed = pack([Replay("one", "pong", frames, {"score": 0.5})], 10**7)
    assert packed is not None
    assert ("plain" in packed) == (count == 3)
    file = tmp_path / "packed.json"
    file.write_text(json.dumps(packed))
    script = (
        "const C = require(process.argv[1]); const fs = require('fs');"
        "C.unpack(JSON.parse(fs.readFileSync(process.argv[2]))).then((items) => {"
        "const plain = (k, v) => (v instanceof Uint8Array ? Array.from(v) : v);"
        "fs.writeFileSync(1, JSON.stringify(items, plain)); });"
    )
    [item] = json.loads(node(script, str(PAGE / "decode.js"), str(file)))
    assert item["count"] == len(item["frames"]) == count
    assert close(frames, item["frames"], 0.02)


def test_scripts_are_valid() -> None:
    program = shutil.which("node")
    if program is None:
        pytest.skip("node is not installed")
    for script in sorted(PAGE.glob("*.js")):
        done = subprocess.run([program, "--check", str(script)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_a_long_match_is_cut_and_says_so() -> None:
    packed = pack([Replay("long", "pong", pong_frames(MAX_TICKS + 10))], 10**7)
    assert packed is not None
    [item] = unpack(packed)
    assert (item["count"], item["cut"], item["stride"]) == (MAX_TICKS, 10, 1)


def test_replays_are_thinned_until_they_fit_and_keep_their_end() -> None:
    rng = np.random.default_rng(0)
    frames = [{"noise": rng.integers(0, 256, (20, 20)).tolist(), "tick": t} for t in range(200)]
    packed = pack([Replay("noise", "x", frames)], 30_000)
    assert packed is not None
    assert len(json.dumps(packed)) < 31_000
    [item] = unpack(packed)
    assert item["stride"] > 1
    last = columns.decode(item["frames"], item["count"])[-1]
    assert last["tick"] == 199


def unpack(packed: dict[str, Any]) -> list[dict[str, Any]]:
    if "plain" in packed:
        return list(packed["plain"])
    return list(json.loads(gzip.decompress(base64.b64decode(packed["gzip"]))))


def test_pixels_of_adapted_games_become_images() -> None:
    planes = np.random.default_rng(2).integers(0, 256, (4, 12, 30), dtype=np.uint8)
    frames = [
        {"pixels": {"width": 30, "height": 12, "data": base64.b64encode(plane.tobytes()).decode()}}
        for plane in planes
    ]
    back = columns.decode(columns.encode(frames), 4)
    assert [frame["pixels"] for frame in back] == planes.tolist()
