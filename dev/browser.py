"""Chromium, for the tests of Airflow's UI and for the screenshots of the documentation."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["chromium", "find_chromium"]


def find_chromium() -> str:
    """Path of the browser: ``CHROMIUM``, or the first one on ``PATH``.

    Raises:
        RuntimeError: there is none; the message has the remedy.
    """
    names = [os.environ["CHROMIUM"]] if os.environ.get("CHROMIUM") else ["chromium", "chromium-browser"]
    for name in names:
        if path := shutil.which(name):
            return path
    raise RuntimeError("there is no Chromium: run `make browser` as root, install it, or set CHROMIUM to its path")


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """The browser, open inside the context.

    Raises:
        RuntimeError: there is none; the message has the remedy.
    """
    from playwright.sync_api import sync_playwright

    path = find_chromium()
    with sync_playwright() as playwright:
        # Chromium has no sandbox for root, and it opens only pages of this machine.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()
