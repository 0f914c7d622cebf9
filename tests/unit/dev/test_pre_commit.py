"""`.pre-commit-config.yaml`: before a commit the same checks run as in `make lint`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[3]


def test_hooks_run_what_make_lint_runs() -> None:
    """The same commands in the same order, of the environment that make installs."""
    (recipe,) = re.findall(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    commands = [line.removeprefix("\t@") for line in recipe.splitlines()]
    expanded = [line.replace("$(RUN)", "$(VENV)/bin/python").replace("$(VENV)", ".venv") for line in commands]

    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    hooks: list[dict[str, Any]] = local["hooks"]

    assert local["repo"] == "local"
    assert [hook["entry"] for hook in hooks] == expanded
    # The tools of the environment, over the whole checkout, as make lint.
    assert {(hook["language"], hook["pass_filenames"]) for hook in hooks} == {("system", False)}
