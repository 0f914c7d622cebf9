"""Licences of dependencies: their names in an SBOM, and which of them do not go with the licence of this project."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

__all__ = ["ACCEPTED", "license_problems", "of_component"]

_ACCEPTED_LICENSES: Final = frozenset(
    (
        "0BSD",
        "Apache-2.0",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "CC0-1.0",
        "CNRI-Python",
        "ISC",
        "MIT",
        "MIT-0",
        "MPL-2.0",  # its conditions are for changed files of the package itself
        "PSF-2.0",
        "Python-2.0",
        "Unicode-DFS-2016",
        "Unlicense",
        "Zlib",
        "License :: OSI Approved :: Apache Software License",
        "License :: OSI Approved :: BSD License",
        "License :: OSI Approved :: Mozilla Public License 2.0 (MPL 2.0)",
    )
)
"""Those that set no conditions for what is used together with the package: as SPDX ids, or as classifiers of PyPI."""

ACCEPTED: Final[Mapping[str, str]] = {
    "protobuf": "BSD-3-Clause, by the text in its metadata",
    "text-unidecode": "the Artistic License or the GPL, by choice; it is never distributed with this package",
    "thrift": "Apache-2.0, by the text in its metadata",
    "universal_pathlib": "MIT, by the LICENSE in its wheel; the metadata for Airflow 2.11 have none",
}
"""Packages whose metadata do not show that they may be used, and why they may."""


def of_component(component: Mapping[str, Any]) -> list[str]:
    """The licences of a package in an SBOM of CycloneDX: expressions and ids of SPDX, and other names.

    Args:
        component: of the SBOM.
    """
    choices = [choice | choice.get("license", {}) for choice in component.get("licenses", [])]
    return [choice[key] for choice in choices for key in ("expression", "id", "name") if key in choice]


def license_problems(packages: Mapping[str, Sequence[str]]) -> list[str]:
    """Packages whose licence is unknown, or may not go with the Apache License 2.0, and what to do.

    Args:
        packages: the names of the licences of each package.
    """
    remedy = "add the package to ACCEPTED of dev/licenses.py with the reason, or do without it"
    problems = []
    for name, names in sorted(packages.items()):
        refused = [expression for expression in names if not _is_accepted(expression)]
        if name not in ACCEPTED and (refused or not names):
            problems.append(f"{name} has the licence {', '.join(refused) or 'unknown'}: {remedy}")
    return problems + [
        f"{name} is no dependency any more: remove it from ACCEPTED of dev/licenses.py"
        for name in sorted(ACCEPTED.keys() - packages.keys())
    ]


def _is_accepted(expression: str) -> bool:
    """Whether an alternative of an expression may be chosen; a person has to read one with parentheses."""
    return any(_ACCEPTED_LICENSES.issuperset(choice.split(" AND ")) for choice in expression.split(" OR "))
