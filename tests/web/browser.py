"""Chromium for the tests of the viewer, where there is one; and the service to look at."""

import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SIZES = {"desktop": (1280, 850), "phone": (390, 800)}


@contextmanager
def chromium() -> Iterator[object]:
    """A browser, or a skipped test."""
    playwright = pytest.importorskip("playwright.sync_api")
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
    with playwright.sync_playwright() as started:
        try:
            browser = started.chromium.launch(executable_path=found, args=["--no-sandbox"])
        except playwright.Error as problem:
            pytest.skip(f"no Chromium: {str(problem).splitlines()[0]}")
        yield browser
        browser.close()


@contextmanager
def service(app: object) -> Iterator[str]:
    """Address of an application that listens on this machine."""
    import uvicorn

    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    while not server.started and thread.is_alive():
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def watched(browser, size: str, **options):
    """Page that fails a test on any error or refused resource, at a size."""
    width, height = SIZES[size]
    page = browser.new_page(
        viewport={"width": width, "height": height}, has_touch=size == "phone", **options
    )
    troubles: list[str] = []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("console", lambda said: said.type == "error" and troubles.append(said.text))
    page.troubles = troubles
    return page


def no_overflow(page) -> bool:
    wide = "document.documentElement.scrollWidth <= window.innerWidth"
    return bool(page.evaluate(wide))


def screenshot(page, name: str, folder: Path) -> None:
    page.screenshot(path=folder / f"{name}.png")
