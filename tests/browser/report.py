"""Opens a report from disk in a browser without a network, light and dark, wide and narrow."""

import json
from pathlib import Path
from typing import Protocol

from axe_playwright_python.sync_playwright import Axe
from PIL import Image
from playwright.sync_api import Browser, Page

SIZES = {"desktop": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 844}}
SCHEMES = ("light", "dark")
COLOURS = 64
"""Of a picture, so that it stays small."""

PICTURES = {("desktop", "light"): "report.png", ("phone", "dark"): "report-phone.png"}
"""The pictures of docs/overnight.md."""


class Watch(Protocol):
    """Collects everything that a page should not do."""

    def watch(self, page: Page) -> None:
        """Watches a page."""


def try_report(browser: Browser, path: Path, watch: Watch, pictures: Path | None) -> None:
    """A report asks for no file but its own, is not wider than the screen, and has nothing serious for axe."""
    axe = Axe()
    for size, viewport in SIZES.items():
        for scheme in SCHEMES:
            context = browser.new_context(viewport=viewport, color_scheme=scheme, offline=True)  # type: ignore[arg-type]
            page = context.new_page()
            watch.watch(page)
            page.goto(path.as_uri())
            assert page.get_by_role("heading", level=1).is_visible()
            width = page.evaluate("document.documentElement.scrollWidth")
            assert width <= viewport["width"], f"report {size}: {width} wide"
            assert page.evaluate("window.struck === undefined"), "text from outside ran"
            if pictures is not None and (size, scheme) in PICTURES:
                picture = pictures / PICTURES[size, scheme]
                page.screenshot(path=picture)
                Image.open(picture).convert("RGB").quantize(COLOURS).save(picture, optimize=True)
            if size == "desktop":
                wide = page.evaluate(
                    "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth).length"
                )
                assert not wide, f"{wide} tables of the report are cut off on a wide screen"
            violations = [
                each for each in axe.run(page).response["violations"] if each["impact"] in {"serious", "critical"}
            ]
            assert not violations, f"report {size} {scheme}: {json.dumps(violations, indent=1)[:4000]}"
            for details in page.locator("details").all():
                details.evaluate("each => each.open = true")
            width = page.evaluate("document.documentElement.scrollWidth")
            assert width <= viewport["width"], f"report {size}, opened: {width} wide"
            context.close()
