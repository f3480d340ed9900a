"""What the guide and the example show runs as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_snippet_of_the_guide_runs() -> None:
    text = (ROOT / "docs" / "evolution.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) >= 6
    subprocess.run([sys.executable, "-c", "\n".join(blocks)], check=True, timeout=60)


def test_the_example_runs_and_its_problem_is_under_thirty_lines() -> None:
    example = ROOT / "examples" / "own_problem.py"
    subprocess.run([sys.executable, str(example)], check=True, timeout=90)
    lines = example.read_text().split("class Transmitter")[1].split("if __name__")[0].splitlines()
    assert len([line for line in lines if line.strip()]) < 30
