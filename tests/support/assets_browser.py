"""Pages in a real browser: what they draw, what they complain about, and what they ask a network for."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tornado.websocket import WebSocketClientConnection, websocket_connect

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
LAPTOP, PHONE = 1366, 390

_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--remote-debugging-port=0", "about:blank",
)  # fmt: skip
_PATIENCE_SECONDS = 60.0

_DRAWN = """(() => {
  const within = (root) => [...root.querySelectorAll("*")].flatMap((one) => [one, ...(one.shadowRoot ? within(one.shadowRoot) : [])]);
  const coloured = (canvas) => {
    if (!canvas.width || !canvas.height) return 0;
    const dots = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    let found = 0;
    for (let at = 0; at < dots.length; at += 4)
      found += dots[at + 3] > 0 && Math.max(dots[at], dots[at + 1], dots[at + 2]) - Math.min(dots[at], dots[at + 1], dots[at + 2]) > 40;
    return found;
  };
  return Object.fromEntries([...document.querySelectorAll(".plot")].map((plot) => [plot.getAttribute("aria-label"),
    Math.max(0, ...within(plot).filter((one) => one.tagName === "CANVAS").map(coloured))]));
})()"""  # noqa: E501
_TOOLTIP = """(() => {
  const within = (root) => [...root.querySelectorAll("*")].flatMap((one) => [one, ...(one.shadowRoot ? within(one.shadowRoot) : [])]);
  const shown = within(document).filter((one) => one.classList.contains("bk-Tooltip")).flatMap((one) => [...(one.shadowRoot ?? one).children]);
  return shown.filter((one) => one.tagName !== "STYLE").map((one) => one.textContent).join(" ");
})()"""  # noqa: E501
_IS_READY = """document.readyState === "complete" && (!document.querySelector(".plot")
  || Boolean(window.Bokeh?.documents.length && Bokeh.documents.every((one) => one.is_idle)))"""
_SPLIT = """[...document.querySelectorAll("code:not(.line)")].filter((code) => {
  const range = document.createRange();
  range.selectNodeContents(code);
  const rows = [...range.getClientRects()];
  let holder = code.parentElement;
  while (getComputedStyle(holder).display === "inline") holder = holder.parentElement;
  const is_split = new Set(rows.map((row) => Math.round(row.top))).size > 1;
  return is_split && rows.reduce((sum, row) => sum + row.width, 0) < 0.95 * holder.clientWidth;
}).map((code) => code.textContent)"""
_CROWDED = """[...document.querySelectorAll("ol + p, ul + p")].filter((after) =>
  after.getBoundingClientRect().top - after.previousElementSibling.getBoundingClientRect().bottom < 12
).map((after) => after.textContent)"""
_NEXT_FRAME = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


@dataclass
class Seen:
    """A page as a browser saw it. drawn: coloured dots of each figure, by its label; widths: of the page's content, by
    that of the window; tooltips: what a mouse brought up; requests: for anything but the page itself; split: code that
    goes on in another line although it would fit in one; crowded: paragraphs close below a list.
    """

    drawn: dict[str, int] = field(default_factory=dict)
    widths: dict[int, int] = field(default_factory=dict)
    tooltips: set[str] = field(default_factory=set)
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    split: set[str] = field(default_factory=set)
    crowded: set[str] = field(default_factory=set)


def render_pages(program: str, pages: Sequence[Path], folder: Path, *, hover: dict[Path, str]) -> dict[Path, Seen]:
    """Opens pages one after the other in one browser. hover: the label of the figure that the mouse moves over."""
    browser = subprocess.Popen(
        [program, f"--user-data-dir={folder}", *_FLAGS], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        return asyncio.run(_looked_at(folder, pages, hover))
    finally:
        browser.kill()
        browser.wait()


async def _looked_at(folder: Path, pages: Sequence[Path], hover: dict[Path, str]) -> dict[Path, Seen]:
    address = folder / "DevToolsActivePort"
    until = time.monotonic() + _PATIENCE_SECONDS
    while not (address.is_file() and len(address.read_text().split()) == 2):
        assert time.monotonic() < until, "the browser did not start"
        await asyncio.sleep(0.02)
    port, path = address.read_text().split()
    tab = _Tab(await websocket_connect(f"ws://127.0.0.1:{port}{path}"))
    target = await tab.call("Target.createTarget", url="about:blank")
    tab.session = (await tab.call("Target.attachToTarget", flatten=True, **target))["sessionId"]
    for domain in ("Page", "Runtime", "Log", "Network"):
        await tab.call(f"{domain}.enable")
    views = {page: await tab.look(page, hover.get(page)) for page in pages}
    tab.socket.close()
    while await tab.socket.read_message() is not None:  # until the browser has closed its end too
        pass
    return views


class _Tab:
    """A tab by the browser's debugging protocol."""

    def __init__(self, socket: WebSocketClientConnection) -> None:
        self.socket, self.session = socket, ""
        self._calls = 0
        self.seen = Seen()

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._calls += 1
        session = {"sessionId": self.session} if self.session else {}
        await self.socket.write_message(json.dumps({"id": self._calls, "method": method, "params": params, **session}))
        while True:
            reply = await self.socket.read_message()
            assert reply is not None, "the browser is gone"
            message = json.loads(reply)
            if message.get("id") == self._calls:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        method, params = message["method"], message["params"]
        loud = method == "Runtime.consoleAPICalled" and params["type"] in {"error", "warning", "assert"}
        if loud or method == "Runtime.exceptionThrown":
            self.seen.complaints.append(json.dumps(params)[:600])
        elif method == "Log.entryAdded" and params["entry"]["level"] in {"error", "warning"}:
            if "getImageData" not in params["entry"]["text"]:  # it is this file that reads the dots
                self.seen.complaints.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent" and params["request"]["url"] != params["documentURL"]:
            self.seen.requests.append(params["request"]["url"])

    async def value(self, script: str) -> Any:
        answer = await self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"]["value"]

    async def wide(self, width: int) -> None:
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=768, deviceScaleFactor=1, mobile=False
        )

    async def look(self, page: Path, hover: str | None) -> Seen:
        self.seen = seen = Seen()
        await self.wide(LAPTOP)
        await self.call("Page.navigate", url=page.as_uri())
        until = time.monotonic() + _PATIENCE_SECONDS
        while not await self.value(_IS_READY):
            assert time.monotonic() < until, f"{page} was not drawn"
            await asyncio.sleep(0.05)
        await self.value(_NEXT_FRAME)
        seen.drawn = await self.value(_DRAWN)
        for width in (LAPTOP, PHONE):
            await self.wide(width)
            await self.value(_NEXT_FRAME)
            seen.widths[width] = await self.value("document.documentElement.scrollWidth")
            seen.split.update(await self.value(_SPLIT))
            seen.crowded.update(await self.value(_CROWDED))
        await self.wide(LAPTOP)
        if hover is not None:
            await self._point_at(hover)
        return seen

    async def _point_at(self, label: str) -> None:
        """The mouse down along a figure's bars, over what they have in common: their left."""
        script = (
            f"(() => {{ const plot = document.querySelector('[aria-label=\"{label}\"]'); plot.scrollIntoView(); "
            "const box = plot.getBoundingClientRect(); return [box.left, box.top, box.width, box.height]; })()"
        )
        left, top, width, height = await self.value(script)
        for part in range(1, 40):
            position = {"x": left + width * 0.45, "y": top + height * part / 40}
            await self.call("Input.dispatchMouseEvent", type="mouseMoved", **position)
            await self.value(_NEXT_FRAME)
            self.seen.tooltips.add(await self.value(_TOOLTIP))
