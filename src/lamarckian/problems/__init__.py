"""Numeric problems as evaluators: test suites with known optima."""

from lamarckian.problems.base import ArrayProblem
from lamarckian.problems.catalogue import PROBLEMS, make

__all__ = ["PROBLEMS", "ArrayProblem", "make"]
