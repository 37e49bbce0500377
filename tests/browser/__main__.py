"""``make test-browser``: opens each page in headless Chromium, light and dark, wide and narrow, and reviews answers in it.

``--screenshots DIR`` also keeps the pictures of docs/viewer.md.
"""

import argparse
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from axe_playwright_python.sync_playwright import Axe
from PIL import Image
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.browser.answers import ALL, LONG_CLAIMS, WORST, lines, special_lines, write
from tests.browser.report import try_report

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
SIZES = {"desktop": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 844}}
SCHEMES = ("light", "dark")
PICTURES = {
    ("job", "desktop", "light"), ("job", "phone", "dark"), ("review", "desktop", "light"), ("compare", "phone", "light"),
}  # fmt: skip
"""The pictures of the docs."""

SHEETS = ("batches", "batch", "under-way", "ended", "job", "source", "review", "compare", "hostile", "login")
"""The pages that the docs show in each size and colour, a sheet a page."""

SHEET_HEIGHT, SHEET_GAP = 540, 8
"""Of the four pictures of a sheet, side by side."""

COLOURS = 64
"""Of a picture, so that it stays small."""

LONG_PAGE_S = 5.0


@dataclass
class Watched:
    """The pages of a browser, with everything that a page should not do."""

    browser: Browser
    address: str
    faults: list[str] = field(default_factory=list)
    shots: dict[tuple[str, str, str], bytes] = field(default_factory=dict)
    """Pictures of the pages of sheets, by page, size and colour."""

    @contextmanager
    def context(self, **options: Any) -> Iterator[BrowserContext]:
        """A context whose pages are watched."""
        context = self.browser.new_context(**options)
        context.on("page", self.watch)
        try:
            yield context
        finally:
            context.close()

    def watch(self, page: Page) -> None:
        """Notes the page's messages, errors, dialogs and requests to other addresses."""
        page.on(
            "console", lambda message: self._note(page, "console", message.text, message.type in {"error", "warning"})
        )
        page.on("pageerror", lambda error: self._note(page, "error", str(error)))
        page.on("dialog", lambda dialog: self._note(page, "dialog", dialog.message))
        page.on(
            "request",
            lambda request: self._note(page, "outside", request.url, not request.url.startswith(self.address)),
        )

    def _note(self, page: Page, kind: str, text: str, counts: bool = True) -> None:  # noqa: FBT001, FBT002
        if counts:
            self.faults.append(f"{page.url}: {kind}: {text}")


def nightdesk(home: Path, *arguments: str, codes: tuple[int, ...] = (0,)) -> subprocess.CompletedProcess[str]:
    """Runs a command."""
    command = [sys.executable, "-m", "worker.cli", *arguments]
    finished = subprocess.run(command, env=_environment(home), capture_output=True, text=True, check=False, timeout=600)
    assert finished.returncode in codes, finished.stderr
    return finished


def _environment(home: Path) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("NIGHTDESK_")},
        "NIGHTDESK_HOME": str(home),
    }


@contextmanager
def serving(home: Path) -> Iterator[str]:
    """Serves the home on a free port."""
    command = [sys.executable, "-m", "worker.cli", "serve", "--port", "0"]
    with subprocess.Popen(
        command, env=_environment(home), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
            process.wait(60)


def main() -> None:
    """Tries everything; raises at the first thing that is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--screenshots", type=Path, help="directory for the pictures of the docs")
    parser.add_argument("--report", type=Path, help="directory for the pictures of docs/overnight.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nightdesk-browser-") as directory:
        home = Path(directory) / "home"
        try:
            with serving(home) as address:
                batch, special = _fill(home, Path(directory))
                with sync_playwright() as playwright:
                    browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
                    watched = Watched(browser, address)
                    pages = _pages(address, batch, special)
                    _try_pages(watched, pages, options.screenshots)
                    _try_without_scripts(watched, pages)
                    _try_keyboard(watched, pages)
                    _try_long_job(watched, pages)
                    _try_live_progress(watched, home, Path(directory), options.screenshots)
                    _review(watched, batch)
                    reports = _try_reports(browser, home, Path(directory), (batch, special), options.report)
                    _try_login(watched, home, options.screenshots)
                    browser.close()
                if options.screenshots is not None:
                    _save_sheets(watched.shots, options.screenshots)
                assert not watched.faults + reports, "\n".join(watched.faults + reports)
        finally:
            nightdesk(home, "down", codes=(0, 1))
    print("all pages hold")  # noqa: T201 - the result of the command


def _fill(home: Path, directory: Path) -> tuple[str, str]:
    """Checks the answers by the command, with the service running; returns the ids of both batches."""
    ids = []
    for name, rows in (("night", lines()), ("special", special_lines())):
        write(directory / f"{name}.jsonl", rows)
        names = ("--name", "Insurance questions of November" if name == "night" else "Special cases")
        finished = nightdesk(
            home, "check", str(directory / f"{name}.jsonl"), "-o", str(directory / f"{name}.out"), *names, codes=(0, 1)
        )
        match = re.search(r"batch (\S+): ", finished.stderr)
        assert match, f"the run does not name its batch: {finished.stderr}"
        ids.append(match[1])
    return ids[0], ids[1]


def _pages(address: str, batch: str, special: str) -> dict[str, str]:
    with httpx2.Client(base_url=address, timeout=60) as http:
        worst = next(row["custom_id"] for row in lines() if str(row["custom_id"]).startswith("worst"))
        right = next(row["custom_id"] for row in lines() if str(row["custom_id"]).startswith("right"))
        jobs = {
            name: http.get(f"/v1/batches/{of}/jobs/{custom_id}").json()["job_id"]
            for name, of, custom_id in (
                ("job", batch, worst), ("right", batch, right), ("long", special, "long"), ("hostile", special, "hostile"),
            )
        }  # fmt: skip
    return {
        "batches": "/view/",
        "batch": f"/view/batches/{batch}",
        "job": f"/view/jobs/{jobs['job']}",
        "hostile": f"/view/jobs/{jobs['hostile']}",
        "source": f"/view/jobs/{jobs['job']}/sources/1",
        "review": f"/view/review?batch={batch}",
        "compare": f"/view/compare?a={jobs['job']}&b={jobs['right']}",
        "absent": "/view/jobs/019d0000-0000-7000-8000-000000000000",
        "long": f"/view/jobs/{jobs['long']}",
    }


def _try_pages(
    watched: Watched, pages: dict[str, str], pictures: Path | None, open_details: str = "details.none"
) -> None:
    """Each page but the long one, in each size and colour: nothing serious for axe, nothing wider than the screen."""
    axe = Axe()
    for size, viewport in SIZES.items():
        for scheme in SCHEMES:
            with watched.context(viewport=viewport, color_scheme=scheme) as context:
                page = context.new_page()
                for name, path in pages.items():
                    if name == "long":
                        continue
                    page.goto(watched.address + path)
                    page.eval_on_selector_all(open_details, "all => all.forEach(each => (each.open = true))")
                    violations = [
                        each
                        for each in axe.run(page).response["violations"]
                        if each["impact"] in {"serious", "critical"}
                    ]
                    assert not violations, f"{name} {size} {scheme}: {json.dumps(violations, indent=1)[:4000]}"
                    width = page.evaluate("document.documentElement.scrollWidth")
                    assert width <= viewport["width"], f"{name} {size}: {width} wide"
                    assert page.evaluate("window.struck === undefined"), f"{name}: text from outside ran"
                    if pictures is None:
                        continue
                    if os.environ.get("ALL_PICTURES") or (name, size, scheme) in PICTURES:
                        pictures.mkdir(parents=True, exist_ok=True)
                        picture = pictures / f"{name}-{size}-{scheme}.png"
                        page.screenshot(path=picture)
                        Image.open(picture).convert("RGB").quantize(COLOURS).save(picture, optimize=True)
                    if name in SHEETS:
                        watched.shots[name, size, scheme] = page.screenshot()
    # A page that is not there is an error for the console, too.
    watched.faults = [fault for fault in watched.faults if pages.get("absent", "/none") not in fault]


def _save_sheets(shots: dict[tuple[str, str, str], bytes], pictures: Path) -> None:
    """A sheet a page: wide and narrow, light and dark."""
    for name in SHEETS:
        parts = []
        for size in SIZES:
            for scheme in SCHEMES:
                part = Image.open(io.BytesIO(shots[name, size, scheme])).convert("RGB")
                parts.append(part.resize((part.width * SHEET_HEIGHT // part.height, SHEET_HEIGHT)))
        width = sum(part.width + SHEET_GAP for part in parts) - SHEET_GAP
        sheet, at = Image.new("RGB", (width, SHEET_HEIGHT), "#808080"), 0
        for part in parts:
            sheet.paste(part, (at, 0))
            at += part.width + SHEET_GAP
        sheet.quantize(COLOURS).save(pictures / f"sheet-{name}.png", optimize=True)


def _try_login(watched: Watched, home: Path, pictures: Path | None) -> None:
    """The first key closes the pages; it opens them again for the browser that it was given to, by keyboard alone."""
    key = nightdesk(home, "keys", "add", "ada", "--role", "review").stdout.strip()
    with httpx2.Client(base_url=watched.address, timeout=60) as http:
        until = time.monotonic() + 60
        while http.get("/v1/batches").status_code != 401:
            assert time.monotonic() < until, "the service stays open"
            time.sleep(0.5)
    _try_pages(watched, {"login": "/view/"}, pictures)
    with watched.context(viewport=SIZES["phone"]) as context:
        page = context.new_page()
        page.goto(f"{watched.address}/view/review")
        page.get_by_label("API key").focus()
        page.keyboard.type(key)
        page.keyboard.press("Enter")
        page.wait_for_url("**/view/review")
        button = page.get_by_role("button", name="Log out")
        button.wait_for()
        assert "ada" in page.locator(".top").inner_text()
        button.click()
        page.get_by_role("heading", name="Log in").wait_for()


def _try_without_scripts(watched: Watched, pages: dict[str, str]) -> None:
    with watched.context(java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(watched.address + pages["job"])
        for heading in ("Question", "Answer", "Claims", "Sources", "Times and calls", "Audit"):
            assert page.get_by_role("heading", name=heading, exact=True).is_visible(), heading
        page.locator("a.cite").first.click()
        assert "#source-1-" in page.url
        assert page.locator("mark").first.is_visible()


def _try_keyboard(watched: Watched, pages: dict[str, str]) -> None:
    with watched.context(viewport=SIZES["desktop"]) as context:
        page = context.new_page()
        page.goto(watched.address + pages["job"])
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        stops = []
        for _ in range(60):
            page.keyboard.press("Tab")
            stops.append(page.evaluate("document.activeElement.className + '|' + document.activeElement.innerText"))
            if stops[-1].startswith("cite"):
                break
        assert stops[-1].startswith("cite"), stops
        page.keyboard.press("Enter")
        page.wait_for_url("**#source-*")
        place = page.locator(":target + mark, :target + .place + mark").first
        place.wait_for()
        box = place.bounding_box()
        assert box is not None
        assert 0 <= box["y"] <= SIZES["desktop"]["height"], box


def _try_long_job(watched: Watched, pages: dict[str, str]) -> None:
    with watched.context() as context:
        page = context.new_page()
        page.goto(watched.address + pages["long"])
        began = time.monotonic()
        page.goto(watched.address + pages["long"])
        seconds = time.monotonic() - began
        badges = page.locator("a.badge").count()
        assert badges == LONG_CLAIMS, badges
        print(f"a job of {badges:,} claims is there after {seconds:.1f} s, {len(page.content()) / 1e6:.1f} MB")  # noqa: T201
        assert seconds < LONG_PAGE_S
        page.locator("a.badge").nth(700).click()
        page.wait_for_url("**#claim-701")
        assert page.locator("#claim-701").is_visible()


def _try_live_progress(watched: Watched, home: Path, directory: Path, pictures: Path | None) -> None:
    """A batch that no worker takes, and that is cancelled: an open page says so by itself, and another one runs it again."""
    write(
        directory / "waiting.jsonl", [{"query": f"Question {n}?", "context": ["It opens at nine."]} for n in range(3)]
    )
    batch = json.loads(nightdesk(home, "submit", str(directory / "waiting.jsonl"), "--json").stdout)["batch_id"]
    path = f"/view/batches/{batch}"
    with httpx2.Client(base_url=watched.address, timeout=60) as http:
        job = f"/view/jobs/{http.get(f'/v1/batches/{batch}/jobs/0').json()['job_id']}"
    _try_orders(watched, {"under-way": path, "waiting-job": job}, pictures)
    with watched.context() as context:
        page, other = context.new_page(), context.new_page()
        page.goto(watched.address + path)
        assert page.get_by_text("under way", exact=True).is_visible()
        other.goto(watched.address + job)
        other.get_by_role("button", name="Cancel this job").click()
        other.get_by_role("heading", name="Again", exact=True).wait_for()
        page.get_by_text("1 of 3", exact=True).wait_for(timeout=30_000)
        other.goto(watched.address + path)
        other.get_by_text("Cancel this batch").click()
        other.get_by_role("button", name="Cancel them").click()
        page.get_by_text("3 of 3", exact=True).wait_for(timeout=30_000)
        assert page.get_by_text("ended", exact=True).is_visible()
    _try_orders(watched, {"ended": path, "cancelled-job": job}, pictures)
    with watched.context() as context:
        page = context.new_page()
        page.goto(watched.address + path)
        page.get_by_text("Run failed jobs again").click()
        page.get_by_role("button", name="Run them again").click()
        page.get_by_text("under way", exact=True).wait_for()
        assert page.get_by_text("0 of 3", exact=True).is_visible()
    nightdesk(home, "cancel", batch)


def _try_orders(watched: Watched, pages: dict[str, str], pictures: Path | None) -> None:
    """The same pages with their forms open."""
    _try_pages(watched, pages, pictures, open_details="details.order")


def _review(watched: Watched, batch: str) -> None:
    """Judges the queue from the page alone: every claim of the worst, then other answers as a whole."""
    with watched.context(viewport=SIZES["desktop"]) as context:
        page = context.new_page()
        page.goto(f"{watched.address}/view/review?batch={batch}")
        first = page.locator("tbody tr th a").all_inner_texts()[:WORST]
        caught = sum(name.startswith("worst-") for name in first)
        print(f"of the {WORST} worst of {ALL:,} answers {caught} are the first of the queue")  # noqa: T201
        assert caught >= WORST - 1, first
        page.get_by_role("link", name="Begin with the first").click()
        for number in range(WORST):
            claims = page.locator(".claims li").count()
            for claim in range(claims):
                page.locator(".claims li").nth(claim).get_by_role("button", name="Reject").click()
                page.wait_for_load_state()
            pressed = page.locator(".claims button[aria-pressed=true]").count()
            assert pressed == claims, f"answer {number}: {pressed} of {claims} labels show"
            page.get_by_role("link", name="Next answer").first.click()
        page.goto(f"{watched.address}/view/review?batch={batch}")
        sample = [str(link.get_attribute("href")) for link in page.locator("main table").nth(1).locator("th a").all()]
        page.goto(watched.address + sample[0])
        for link in sample:
            assert page.url.startswith(watched.address + link.partition("?")[0]), (
                "the next answer is that of the sample"
            )
            assert page.locator(".claims li").count() > 0, "an answer without doubt shows its claims"
            page.get_by_role("group", name="Your label on the answer").get_by_role("button", name="Accept").click()
            page.wait_for_load_state()
            page.get_by_role("link", name="Next answer").first.click()


def _try_reports(
    browser: Browser, home: Path, directory: Path, batches: tuple[str, ...], pictures: Path | None
) -> list[str]:
    """The reports of both batches, of which one has hostile texts; returns what they should not have done."""
    faults: list[str] = []
    for number, batch in enumerate(batches):
        path = directory / f"report-{number}.html"
        nightdesk(home, "report", batch, "-o", str(path), codes=(0, 1))
        watched = Watched(browser, path.as_uri())
        try_report(browser, path, watched, pictures if number == 0 else None)
        faults += watched.faults
    return faults


if __name__ == "__main__":
    main()
