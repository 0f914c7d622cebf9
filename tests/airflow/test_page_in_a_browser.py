"""The pages in a real browser: small and wide, light and dark. Inside of Airflow they are in the tests of its UI."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Literal

import pytest

from airflow_provider_kafka_s3.ui.server import local_server
from dev.browser import chromium
from dev.screenshots import Lake

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.any_airflow

PAGES: Final = ("", "topic/0/shop/orders", "batch/0/shop/orders/90")
LEAST_CONTRAST: Final = 4.5
"""Of text and its ground, by the level AA of the Web Content Accessibility Guidelines 2.2."""

TEXTS: Final = """() => {
  const rgb = color => color.match(/[\\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => [r, g, b].map(c => c / 255).map(
    c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4
  ).reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = element => {
    for (; element; element = element.parentElement) {
      const color = rgb(getComputedStyle(element).backgroundColor);
      if (color.length === 3 || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  const texts = [...document.querySelectorAll('body *:not(svg):not(svg *):not(script):not(style)')].filter(
    e => [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())
  );
  return texts.map(e => {
    const [a, b] = [luminance(rgb(getComputedStyle(e).color)), luminance(ground(e))].sort((x, y) => y - x);
    return {text: e.textContent.trim().slice(0, 40), contrast: (a + 0.05) / (b + 0.05)};
  });
}"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Of the pages over a bucket that some topics are well in, and others are not."""
    with local_server(Lake().pages, 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium."""
    with chromium() as opened:
        yield opened


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1400])
@pytest.mark.parametrize("path", PAGES, ids=["all topics", "a topic", "a batch"])
def test_a_page_can_be_read_at_any_width_and_in_both_colours(
    address: str, browser: Browser, path: str, width: int, scheme: Literal["light", "dark"]
) -> None:
    """It does not scroll sideways, its ground is that of the scheme, and every text stands out from it."""
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    try:
        answer = page.goto(f"{address}/{path}")
        assert answer is not None
        assert answer.ok
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        (red, *_) = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
        assert (red < 100) == (scheme == "dark")
        texts = page.evaluate(TEXTS)
        assert len(texts) > 20
        assert [text for text in texts if text["contrast"] < LEAST_CONTRAST] == []
    finally:
        page.close()
