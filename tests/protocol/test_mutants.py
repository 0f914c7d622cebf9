"""The simulation catches a product without one of its safety steps."""

from __future__ import annotations

import pytest

from tests.protocol.mutants import run_mutant
from tests.protocol.mutations import MUTATIONS, Edit, Mutation

SEEDS = 150
"""Seeds within which each mutant has to be caught; most are caught by the first."""


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name)
def test_a_product_without_one_safety_step_is_caught(mutation: Mutation) -> None:
    """Each mutation of the protocol's list breaks an invariant within a few seeds."""
    verdict = run_mutant(mutation, first=mutation.first, seeds=SEEDS, stop_after=1, trim=mutation.trim)
    assert verdict.failed == 1, f"{mutation.description}, and {verdict.tried} seeds did not catch it"


def test_the_unchanged_product_passes_where_mutants_fail() -> None:
    """Without a mutation the same seeds find nothing."""
    assert run_mutant(None, first=0, seeds=10, stop_after=1).failed == 0


def test_a_mutation_that_no_longer_fits_the_source_is_an_error() -> None:
    """A snippet that is missing in the source does not count as a caught mutant."""
    stale = Mutation("stale", "does nothing", (Edit("airflow_provider_kafka_s3/batch/commit.py", "no such line", ""),))
    with pytest.raises(ValueError, match="occurs 0 times"):
        run_mutant(stale, first=0, seeds=1, stop_after=1)


def test_the_list_of_mutations_is_complete() -> None:
    """There are 40 mutations."""
    assert len({m.name for m in MUTATIONS}) == len(MUTATIONS) == 40
