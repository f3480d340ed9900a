"""The catalogue of metrics is complete in itself."""

from lamarckian.metrics import METRICS, unknown_metrics


def test_every_metric_says_what_it_is() -> None:
    for name, metric in METRICS.items():
        assert name == metric.name
        assert name == name.lower()
        assert metric.what
        assert not metric.what.endswith(".")


def test_the_three_counts_are_three_metrics() -> None:
    assert {"frames", "decisions", "samples"} <= METRICS.keys()
    assert len({METRICS[name].what for name in ("frames", "decisions", "samples")}) == 3


def test_unknown_names_are_found_and_roles_are_allowed() -> None:
    assert unknown_metrics(["return_mean/red", "entropy", "lag"]) == ["lag"]
