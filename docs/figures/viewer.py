"""Recording of the viewer as an animated picture, docs/figures/viewer.webp.

python docs/figures/viewer.py

A browser clicks through `icgi serve`: observe, undo, soft evidence, exclude, a joint table, the
most probable configuration, an elimination, another engine.
Needs playwright, a Chromium and Pillow.
"""

import io
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from PIL import Image
from playwright.sync_api import sync_playwright

import icgi
from icgi.cli.demo import travel
from icgi.web.app import Served, create_app
from icgi.web.limits import Limits

SIZE = (1000, 760)
FRAME = 90  # milliseconds between frames of a movement
POINTER = """() => {
  const mark = document.createElement("div");
  mark.id = "pointer";
  mark.style.cssText = "position:fixed;z-index:99;width:22px;height:22px;margin:-11px;" +
    "opacity:.75;border-radius:50%;background:#f5a623;border:2px solid #fff;left:70%;top:90%;" +
    "pointer-events:none";
  document.body.append(mark);
  const place = (e) => { mark.style.left = e.clientX + "px"; mark.style.top = e.clientY + "px"; };
  document.addEventListener("pointermove", place, true);
  document.addEventListener("pointerdown", () => { mark.style.background = "#d0021b"; }, true);
  document.addEventListener("pointerup", () => { mark.style.background = "#f5a623"; }, true);
}"""


@contextmanager
def service() -> Iterator[str]:
    """Address of the viewer with the network of `icgi demo`."""
    with tempfile.TemporaryDirectory() as folder:
        icgi.save(travel(), Path(folder, "travel.bif"))
        content = Path(folder, "travel.bif").read_bytes()
        limits = Limits(usual_seconds=2.0)  # of an approximation, which a spectator waits for
        app = create_app([Served("travel", ".bif", content)], Path(folder, "store.sqlite"), limits)
        listening = socket.create_server(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


class Recording:
    """What a page looks like from moment to moment."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.frames: list[tuple[bytes, int]] = []
        self.at = (SIZE[0] * 0.7, SIZE[1] * 0.9)

    def look(self, milliseconds: int = FRAME) -> None:
        """One frame; nothing new makes the last one longer."""
        image = self.page.screenshot()
        if self.frames and self.frames[-1][0] == image:
            self.frames[-1] = (image, self.frames[-1][1] + milliseconds)
        else:
            self.frames.append((image, milliseconds))

    def move(self, x: float, y: float, steps: int = 5) -> None:
        """Move the pointer there."""
        for k in range(1, steps + 1):
            here = [a + (b - a) * k / steps for a, b in zip(self.at, (x, y), strict=True)]
            self.page.mouse.move(*here)
            self.look()
        self.at = (x, y)

    def middle(self, place: Any, across: float = 0.5) -> tuple[float, float]:
        """Point of an element."""
        place.evaluate("node => node.closest('header') || node.scrollIntoView({block: 'center'})")
        box = place.bounding_box()
        return box["x"] + across * box["width"], box["y"] + box["height"] / 2

    def click(self, place: Any, pause: int = 1400) -> None:
        """Click it, and look at what comes of it."""
        self.move(*self.middle(place))
        self.page.mouse.down()
        self.look(2 * FRAME)
        self.page.mouse.up()
        self.settle(pause)

    def drag(self, track: Any, begin: float, end: float) -> None:
        """Drag along a bar."""
        self.move(*self.middle(track, begin))
        self.page.mouse.down()
        self.look(2 * FRAME)
        self.move(*self.middle(track, end), steps=8)
        self.page.mouse.up()
        self.settle(2000)

    def settle(self, pause: int) -> None:
        """Frames until the answer is there, then a pause."""
        until = time.monotonic() + 20
        while time.monotonic() < until:
            self.look()
            if self.page.locator(".icgi[aria-busy=false]").count():
                break
        time.sleep(0.4)
        self.look(pause)


def tour(page: Any) -> list[tuple[bytes, int]]:
    """The clicks."""
    page.wait_for_selector(".icgi[aria-busy=false] .variable .bar", timeout=60_000)
    page.evaluate(POINTER)
    made = Recording(page)

    def bar(variable: str, state: str) -> Any:
        return page.get_by_role("button", name=f"{variable} = {state}, ")

    made.look(2200)
    made.click(bar("connection", "missed"), 2400)
    made.click(bar("storm", "yes"), 2400)
    made.click(page.get_by_role("button", name="Undo"))
    made.drag(bar("announcement", "heard").locator(".track"), 0.5, 0.92)
    made.click(page.get_by_role("button", name="exclude delay = long"), 2400)
    made.click(page.get_by_role("button", name="take back delay ≠ long"))
    made.click(page.get_by_role("tab", name="joint"))
    page.get_by_label("Variable 1 of the joint").select_option("storm")
    page.get_by_label("Variable 2 of the joint").select_option("works")
    made.click(page.get_by_role("button", name="Joint table"), 2600)
    made.click(page.get_by_role("button", name="Most probable configuration"), 2600)
    made.click(page.get_by_role("tab", name="elimination"))
    page.locator(".elimination .node").first.wait_for(timeout=60_000)
    for _ in range(6):
        made.click(page.get_by_role("button", name="Next step"), 1400)
    made.look(1500)
    made.click(page.get_by_role("tab", name="graph"))
    page.get_by_label("Engine").select_option("pt")
    made.settle(3000)
    made.click(page.get_by_role("button", name="Reset"), 2000)
    return made.frames


def main() -> None:
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
    with service() as address, sync_playwright() as started:
        browser = started.chromium.launch(executable_path=found, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": SIZE[0], "height": SIZE[1]})
        page.goto(address)
        frames = tour(page)
        browser.close()
    images = [Image.open(io.BytesIO(image)).convert("RGB") for image, _ in frames]
    path = Path(__file__).with_suffix(".webp")
    images[0].save(
        path, save_all=True, append_images=images[1:], duration=[ms for _, ms in frames],
        loop=0, lossless=True, method=4,
    )  # fmt: skip
    seconds = sum(ms for _, ms in frames) / 1000
    print(f"{len(frames)} frames, {seconds:.0f} s, {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
