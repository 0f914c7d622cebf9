"""The commands of Airflow in the documentation are those of its command line."""

from __future__ import annotations

from importlib.metadata import version

import pytest

from tests.documentation import ROOT, blocks, commands

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
OTHER = "Airflow 3" if version("apache-airflow").startswith("2.") else "Airflow 2"
COMMANDS = {
    tuple(words[1:])
    for page in PAGES
    for block in blocks(page)
    # A section may be for one version.
    if block.language == "sh" and OTHER not in block.heading
    for words in commands(block.code)
    if words[0] == "airflow"
}


@pytest.mark.parametrize("command", sorted(COMMANDS), ids=" ".join)
def test_airflow_takes_the_command(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """Its parser knows the subcommand and all options."""
    from airflow.cli.cli_parser import get_parser

    try:
        arguments = get_parser().parse_args(command)
    except SystemExit:
        pytest.fail(capsys.readouterr().err)
    assert callable(arguments.func)
