"""Curves made shorter keep their extremes, their ends and their gaps; intervals by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamarckian.viewer.figures import short, ticks
from lamarckian.viewer.intervals import interval, wilson
from lamarckian.viewer.sampling import significant, thin
from lamarckian.viewer.sections import duration

values = st.lists(
    st.none() | st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=300
)


@given(values, st.integers(4, 60))
def test_thinning_keeps_extremes_and_ends(curve: list[float | None], limit: int) -> None:
    kept = thin(curve, limit).tolist()
    assert kept == sorted(set(kept))
    assert len(kept) <= limit
    assert {0, len(curve) - 1} <= set(kept)
    finite = [v for v in curve if v is not None and math.isfinite(v)]
    if finite:
        shown = [v for i in kept if (v := curve[i]) is not None and math.isfinite(v)]
        assert max(shown) == max(finite)
        assert min(shown) == min(finite)


def test_a_long_gap_stays_a_gap() -> None:
    curve = [1.0] * 100 + [math.nan] * 100 + [1.0] * 100
    assert any(100 <= index < 200 for index in thin(curve, 20))


def test_a_limit_too_small_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 4, got 3"):
        thin([1.0], 3)


def test_significant_digits() -> None:
    assert significant(0.123456789) == 0.12346
    assert significant(3.0) == 3
    assert significant(math.nan) is None


def test_wilson_by_hand() -> None:
    # 8 of 10, z^2 = 3.8415: centre (0.8 + 0.19207) / 1.38415 = 0.71674,
    # half 1.95996 * sqrt(0.016 + 0.0096037) / 1.38415 = 0.22657
    assert wilson(0.8, 10) == pytest.approx((0.49017, 0.94331), abs=1e-4)
    assert wilson(1.0, 10)[1] == pytest.approx(1.0)
    assert wilson(0.0, 10)[0] == pytest.approx(0.0)


def test_an_interval_is_taken_as_recorded_first() -> None:
    metrics = {"score_low": 0.4, "score_high": 0.6, "score_std": 9.0}
    assert interval(metrics, "score", 0.5, 10) == (0.4, 0.6)
    assert interval({}, "score", 0.5, 10) is None
    assert interval({"score_std": 1.0}, "score", 0.5, 4) == (0.0, 1.0)
    assert interval({}, "win_rate", math.nan, 10) is None


def test_axes_have_round_numbers() -> None:
    assert ticks(0.0, 1.0) == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert ticks(-3.0, 3.0) == [-3, -2, -1, 0, 1, 2, 3]
    assert ticks(5.0, 5.0) == [5.0]
    assert [short(v) for v in (0.25, 1500.0, 2e6, -3e9)] == ["0.25", "1.5k", "2M", "-3G"]


def test_durations_read_well() -> None:
    assert [duration(s) for s in (0.25, 48, 720, 11100)] == [
        "0.25 s",
        "48 s",
        "12 min",
        "3 h 05 min",
    ]
