from __future__ import annotations

import sys
from pathlib import Path

# Evaluators of the tests are named "evaluators:Name", here and in worker processes.
sys.path.insert(0, str(Path(__file__).parent))
