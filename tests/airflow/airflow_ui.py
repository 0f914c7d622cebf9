"""The UI of Airflow 3 in a real browser, which clicks and keeps screenshots.

The screenshots are in ``artifacts/ui`` of the checkout. Elements are found by visible roles, labels and texts only.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

from dev.browser import chromium
from dev.waiting import wait_until

if TYPE_CHECKING:
    from types import TracebackType

    from playwright.sync_api import FrameLocator, Locator

PICTURES = Path(__file__).resolve().parents[2] / "artifacts" / "ui"

PATIENCE = 120_000
"""Milliseconds that a page may take on a busy machine."""


class Ui:
    """Airflow's UI in a browser; a context manager."""

    def __init__(self, url: str) -> None:
        """Describe it; entering the context opens the browser.

        Args:
            url: of Airflow, without a slash at the end.
        """
        self._url = url
        self._opened = contextlib.ExitStack()

    def __enter__(self) -> Self:
        """Open the browser."""
        from playwright.sync_api import expect

        PICTURES.mkdir(parents=True, exist_ok=True)
        expect.set_options(timeout=PATIENCE)
        browser = self._opened.enter_context(chromium())
        self.page = browser.new_page(viewport={"width": 1400, "height": 1000}, locale="en-US", timezone_id="UTC")
        self.page.set_default_timeout(PATIENCE)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it; after an error keep a screenshot first."""
        if error is not None:
            self.picture("failed")
        self._opened.close()

    def picture(self, name: str) -> None:
        """Keep a picture of the page."""
        self.page.screenshot(path=PICTURES / f"{name}.png")

    # -- pages --------------------------------------------------------------------------------------------------------

    def open_task(self, dag_id: str, run_id: str, task_id: str, tab: str = "") -> None:
        """Open the page of a task instance: its log, or ``tab`` (``rendered_templates``, ``xcom``, ``details``)."""
        end = f"/{tab}" if tab else ""
        self.page.goto(f"{self._url}/dags/{dag_id}/runs/{quote(run_id)}/tasks/{task_id}{end}")
        self.page.get_by_text("KafkaToS3Operator").first.wait_for()

    def open_menu(self, menu: str, entry: str) -> None:
        """Open an entry of a menu of the navigation."""
        self.page.goto(self._url)
        self.page.get_by_role("button", name=menu, exact=True).click()
        self.page.get_by_role("menuitem", name=entry, exact=True).click()

    def open_tab(self, dag_id: str, tab: str) -> None:
        """Open a tab of a DAG."""
        self.page.goto(f"{self._url}/dags/{dag_id}")
        self.page.get_by_role("link", name=tab, exact=True).click()

    def frame(self) -> FrameLocator:
        """The page of a plugin, inside of Airflow's."""
        return self.page.frame_locator("iframe")

    def wait_for_state(self, state: str) -> None:
        """Wait until the page of a task instance shows a state, such as ``Success``."""
        self.page.get_by_test_id("state-badge").filter(has_text=state).first.wait_for()

    def wait_for_text(self, text: str) -> None:
        """Wait until the page shows a text."""
        self.page.get_by_text(text).first.wait_for()

    def link(self, name: str) -> str:
        """The URL behind a button of a task instance, once it is enabled."""
        return self.page.get_by_role("link", name=name, exact=True).first.get_attribute("href") or ""

    def text(self) -> str:
        """The content of the page: its text, without the boundaries between coloured words, and its source."""
        return (self.page.locator("body").text_content() or "") + self.page.content()

    # -- actions ------------------------------------------------------------------------------------------------------

    def trigger(self, dag_id: str, run_id: str, date: str, conf: dict[str, Any]) -> None:
        """Trigger a run with a run id, a logical date (``YYYY/MM/DD``, midnight) and a conf."""
        dialog = self._open_dialog(dag_id)
        self._enter_date(dialog.get_by_text(", 20").first, date)
        self._enter_conf(dialog, conf)
        dialog.locator("input[name=dagRunId]").fill(run_id)
        self.picture("trigger")
        self._confirm(dialog, dialog.get_by_test_id("trigger-dag-submit"))
        self.page.wait_for_url(f"**/runs/{run_id}*")

    def backfill_again(self, dag_id: str, date: str, conf: dict[str, Any]) -> None:
        """Backfill one logical date once more although there is a run, which gets another conf and is cleared."""
        dialog = self._open_dialog(dag_id)
        dialog.get_by_text("Backfill", exact=True).click()
        for _ in range(2):
            self._enter_date(dialog.get_by_text("Select date and time").first, date)
        dialog.get_by_text("All Runs", exact=True).click()
        dialog.get_by_text("Override parameters on existing runs").click()
        self._enter_conf(dialog, conf)
        self.picture("backfill-again")
        self._confirm(dialog, dialog.get_by_role("button", name="Run Backfill"))

    def clear(self, dag_id: str, run_id: str, task_id: str) -> None:
        """Clear a task instance."""
        self.open_task(dag_id, run_id, task_id)
        self.page.get_by_role("button", name="Press shift+c to clear").click()
        dialog = self.page.get_by_role("dialog")
        dialog.get_by_text("Affected Tasks: 1").wait_for()
        self._confirm(dialog, dialog.get_by_role("button", name="Confirm"))

    def mark_failed(self, dag_id: str, run_id: str, task_id: str) -> None:
        """Mark a task instance as failed."""
        self.open_task(dag_id, run_id, task_id)
        self.page.get_by_role("button", name="Mark Task Instance as...").click()
        self.page.get_by_role("menuitem", name="Failed").click()
        dialog = self.page.get_by_role("dialog")
        dialog.get_by_text("Affected Tasks: 1").wait_for()
        self._confirm(dialog, dialog.get_by_role("button", name="Confirm"))

    def _open_dialog(self, dag_id: str) -> Locator:
        self.page.goto(f"{self._url}/dags/{dag_id}")
        self.page.get_by_test_id("trigger-dag-button").click()
        dialog = self.page.get_by_role("dialog").first
        dialog.wait_for()
        return dialog

    @staticmethod
    def _confirm(dialog: Locator, button: Locator) -> None:
        """Click the button until the dialog has closed: Airflow keeps it open if SQLite was locked at that moment."""
        from playwright.sync_api import TimeoutError as PlaywrightTimeout

        def is_accepted() -> bool:
            with contextlib.suppress(PlaywrightTimeout):  # disabled while a request is under way
                button.click(timeout=5_000)
            with contextlib.suppress(PlaywrightTimeout):
                dialog.wait_for(state="hidden", timeout=15_000)
            return not dialog.is_visible()

        wait_until(is_accepted, "a dialog of Airflow to be accepted", timeout=PATIENCE / 1_000)

    def _enter_date(self, field: Locator, date: str) -> None:
        field.click()
        for hint, value in (("YYYY/MM/DD", date), ("HH:mm", "00:00")):
            box = self.page.get_by_placeholder(hint)
            box.fill(value)
            box.press("Enter")
        self.page.keyboard.press("Escape")
        self.page.get_by_placeholder("YYYY/MM/DD").wait_for(state="hidden")

    def _enter_conf(self, dialog: Locator, conf: dict[str, Any]) -> None:
        dialog.get_by_role("button", name="Advanced Options").click()
        dialog.locator(".monaco-editor").first.click()
        self.page.keyboard.press("Control+A")
        self.page.keyboard.insert_text(json.dumps(conf))
        # The editor has closed brackets and quotes on its own.
        self.page.keyboard.press("Control+Shift+End")
        self.page.keyboard.press("Delete")
        # The value is set when the editor loses the focus.
        dialog.get_by_role("heading").first.click()
