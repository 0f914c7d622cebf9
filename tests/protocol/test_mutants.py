"""The simulation catches a product without one of its safety steps."""

from __future__ import annotations

import pytest

from tests.protocol.mutants import ROOT, require_fits, run_mutant, run_unit_test
from tests.protocol.mutations import MUTATIONS, Edit, Mutation
from tests.protocol.unit_mutations import UNIT_MUTATIONS

SEEDS = 150
"""Seeds within which each mutant has to be caught; most are caught by the first."""


@pytest.mark.parametrize("mutation", MUTATIONS[::4], ids=lambda m: m.name)
def test_a_product_without_one_safety_step_is_caught(mutation: Mutation) -> None:
    """Each fourth mutation of the protocol's list breaks an invariant within a few seeds; `make mutants` has all."""
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
    """There are 54 mutations."""
    assert len({m.name for m in MUTATIONS}) == len(MUTATIONS) == 54


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name)
def test_a_mutation_of_the_list_fits_the_source(mutation: Mutation) -> None:
    """So `make mutants` runs it."""
    require_fits(mutation)


@pytest.mark.parametrize("mutation", UNIT_MUTATIONS, ids=lambda m: m.name)
def test_a_mutation_that_a_unit_test_catches_fits_the_source_and_has_its_test(mutation: Mutation) -> None:
    """`make mutants` runs all of these tests, which takes minutes."""
    require_fits(mutation)
    file, _, name = mutation.test.partition("::")
    assert f"def {name}(" in (ROOT / file).read_text()


def test_the_unit_test_of_a_mutation_fails_with_it_and_passes_without() -> None:
    """One of them: the way in which all of them are run."""
    (one,) = (m for m in UNIT_MUTATIONS if m.name == "window-below-log")
    assert run_unit_test(one).failed == 1
    assert run_unit_test(Mutation("none", "changes nothing", (), test=one.test)).failed == 0


def test_the_names_of_all_mutations_differ() -> None:
    """`--only` takes them."""
    names = [m.name for m in (*MUTATIONS, *UNIT_MUTATIONS)]
    assert len({*names}) == len(names)
