"""The plain loop: ask, evaluate here and now, tell. For array problems and for small studies."""

from __future__ import annotations

from collections.abc import Callable

from lamarckian import seeding
from lamarckian.ec.core import EC
from lamarckian.evaluator import BatchEvaluator, Evaluator, Outcome


def run(
    search: EC,
    evaluator: Evaluator,
    evaluations: int,
    on_selection: Callable[[EC], None] | None = None,
) -> EC:
    """Evaluate until ``evaluations`` outcomes were told in all; return the search.

    A batch evaluator is called once per ask with a stream named after the first id, any other once
    per individual with the individual's own stream. An exception of ``evaluate`` is recorded as a
    failed outcome; one of ``evaluate_batch`` is raised.
    """
    size = max(search.generation_size, 1)
    while search.evaluations < evaluations:
        num = min(size, evaluations - search.evaluations)
        if isinstance(evaluator, BatchEvaluator):
            batch = search.ask_batch(num)
            rng = seeding.stream(search.seed, "evaluate", int(batch.ids[0]))
            outcomes = evaluator.evaluate_batch(search.layout.stacked(batch.genes), rng)
            selections = search.tell_batch(batch, outcomes)
        else:
            individuals = search.ask(num)
            for individual in individuals:
                rng = seeding.stream(search.seed, "evaluate", individual.id)
                try:
                    individual.outcome = evaluator.evaluate(individual.decision, rng)
                except Exception as error:
                    reason = f"{type(error).__name__}: {error}"
                    individual.outcome = Outcome.failure(reason)
            selections = search.tell(individuals)
        if selections and on_selection is not None:
            on_selection(search)
    return search
