"""Print the measured ratios of ``benchmarks/results`` against their targets, as a Markdown table.

python benchmarks/results_table.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def throughput_rows(report: dict[str, Any]) -> list[str]:
    """Return one line for each ratio of a ``ppo_*.json``."""
    case = report["benchmark"].removeprefix("ppo_")
    rows = []
    for row in report["ratios"]:
        unit = {"per_second": "wall second", "per_cpu_second": "CPU second"}[row["unit"]]
        if "ratio" in row:
            found = f"{row['ratio']:.2f} ({row['lowest']:.2f} to {row['highest']:.2f})"
            what = f"{row['of']} / {row['to']}"
        else:
            found, what = f"{row['value']:,} samples", row["of"]
        verdict = "yes" if row["met"] else "**no**"
        rows.append(f"| {case} | {what} | {unit} | {found} | ≥ {row['target']:,g} | {verdict} |")
    return rows


def learning_row(report: dict[str, Any]) -> str:
    """Return the line of a ``learning_*.json``."""
    seeds = len(report["seeds"])
    found = f"{report['mean']:.4g} ({report['low']:.4g} to {report['high']:.4g})"
    return (
        f"| {report['game']}, {report.get('algorithm', 'ppo')} | {report['measured']} | "
        f"{report['frames']:,} | {seeds} | {found} | "
        f"≥ {report['target']:g} | {'yes' if report['met'] else '**no**'} |"
    )


def efficiency_row(report: dict[str, Any]) -> str:
    """Return the line of a ``learning_*_peer.json``."""
    cells = [
        f"{value['mean']:.4g} ({value['low']:.4g} to {value['high']:.4g})"
        for part in ("mean_of_curve", "at_the_end")
        for value in report[part].values()
    ]
    return f"| {report['game']} | {report['frames']:,} | " + " | ".join(cells) + " |"


def read(pattern: str) -> list[dict[str, Any]]:
    """Return the result files that match, by name."""
    return [json.loads(path.read_text()) for path in sorted(RESULTS.glob(pattern))]


def main() -> None:
    print(
        "| case | ratio | per | median (lowest to highest) | target | met |\n|---|---|---|---|---|---|"
    )
    for report in read("ppo_*.json"):
        print("\n".join(throughput_rows(report)))
    print("\n| game | measure | frames | seeds | mean (95 % interval) | target | met |")
    print("|---|---|---|---|---|---|---|")
    comparisons = read("learning_*_peer.json")
    for report in read("learning_*.json"):
        if "measured" in report:
            print(learning_row(report))
    print(
        "\n| game | frames | curve, Lamarckian | curve, Stable-Baselines3 "
        "| end, Lamarckian | end, Stable-Baselines3 |\n|---|---|---|---|---|---|"
    )
    for report in comparisons:
        print(efficiency_row(report))


if __name__ == "__main__":
    main()
