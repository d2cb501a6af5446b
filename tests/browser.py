"""A real browser for tests of pages: headless Chromium, driven by its own driver over plain HTTP on this machine."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Generator
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    "--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND",
)  # fmt: skip
REQUIRED = "VEILBOOST_BROWSER"  # set to "required" where a missing browser is a failure, as in CI
ARTEFACTS = "VEILBOOST_ARTEFACTS"  # a folder where screenshots stay


def missing() -> str | None:
    """Why there is no browser; None if there is one."""
    driver, browser = _programs()
    if driver and browser:
        return None
    return "no Chromium with its driver: apt-get install chromium chromium-driver"


def required() -> bool:
    return os.environ.get(REQUIRED) == "required"


def artefacts(otherwise: Path) -> Path:
    folder = Path(os.environ.get(ARTEFACTS) or otherwise)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class Window:
    """One browser window."""

    def __init__(self, address: str, session: str) -> None:
        self._base = f"{address}/session/{session}"

    def open(self, file: Path) -> None:
        _post(f"{self._base}/url", {"url": file.resolve().as_uri()})

    def run(self, script: str, *arguments: Any) -> Any:
        """What JavaScript returns. It runs as the debugger's, so a page's policy does not stop it."""
        return _post(f"{self._base}/execute/sync", {"script": script, "args": list(arguments)})

    def resize(self, width: int, height: int) -> None:
        self._emulate(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=True
        )

    def dark(self) -> None:
        self._emulate("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])

    def press_tab(self) -> None:
        """Press Tab, with the page in front: on a busy machine a new page may not have the focus yet."""
        self._emulate("Page.bringToFront")
        keys = [{"type": kind, "value": "\ue004"} for kind in ("keyDown", "keyUp")]
        _post(f"{self._base}/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": keys}]})

    def screenshot(self, file: Path) -> Path:
        """The whole page, however long."""
        found = self._emulate("Page.captureScreenshot", format="png", captureBeyondViewport=True, fromSurface=True)
        file.write_bytes(base64.b64decode(found["data"]))
        return file

    def complaints(self) -> list[str]:
        """What the browser's console says of the page."""
        return [entry["message"] for entry in _post(f"{self._base}/se/log", {"type": "browser"})]

    def _emulate(self, command: str, **params: Any) -> Any:
        return _post(f"{self._base}/goog/cdp/execute", {"cmd": command, "params": params})


@contextlib.contextmanager
def window(profile: Path) -> Generator[Window]:
    """A browser of its own, gone at the end."""
    driver, browser = _programs()
    assert driver
    assert browser
    process = subprocess.Popen([driver, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    try:
        port = next(
            found[1] for line in process.stdout if (found := re.search(r"started successfully on port (\d+)", line))
        )
        address = f"http://127.0.0.1:{port}"
        options = {"binary": browser, "args": [*FLAGS, f"--user-data-dir={profile}"]}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        session = _post(f"{address}/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
        try:
            yield Window(address, session)
        finally:
            _call(f"{address}/session/{session}", None, "DELETE")
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()


def _programs() -> tuple[str | None, str | None]:
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    return shutil.which("chromedriver"), browser


def _post(url: str, body: dict[str, Any]) -> Any:
    return _call(url, body, "POST")


def _call(url: str, body: dict[str, Any] | None, method: str) -> Any:
    data = None if body is None else json.dumps(body).encode()
    # Never through a proxy: the driver is on this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)  # noqa: S310
    with opener.open(request, timeout=60) as answer:
        return json.loads(answer.read())["value"]
