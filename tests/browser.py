"""A real browser for tests of pages: the system's headless Chromium, driven by selenium."""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    "--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)  # fmt: skip
REQUIRED = "VEILBOOST_BROWSER"  # set to "required" where a missing browser is a failure, as in CI
ARTEFACTS = "VEILBOOST_ARTEFACTS"  # a folder where screenshots stay
PATIENCE = 180.0  # seconds, on a machine that is busy with other work too


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

    def __init__(self, driver: Chrome) -> None:
        self._driver = driver

    def open(self, page: Path | str) -> None:
        """Open a file or an address."""
        self._driver.get(page if isinstance(page, str) else page.resolve().as_uri())

    @property
    def address(self) -> str:
        return self._driver.current_url

    @property
    def text(self) -> str:
        """What a person can read."""
        return str(self.run("return document.body.innerText"))

    def run(self, script: str, *arguments: Any) -> Any:
        """What JavaScript returns. It runs as the debugger's, so a page's policy does not stop it."""
        return self._driver.execute_script(script, *arguments)

    def write(self, id: str, text: str) -> None:
        """Type into a field."""
        self._driver.find_element(By.ID, id).send_keys(text)

    def click(self, text: str) -> None:
        """Click the link, button or summary with this text."""
        where = f"//*[self::a or self::button or self::summary][normalize-space()='{text}']"
        element = self._driver.find_element(By.XPATH, where)
        self.run("arguments[0].scrollIntoView({block: 'center'})", element)
        element.click()

    def until(self, true: Callable[[], object], what: str) -> None:
        end = time.monotonic() + PATIENCE
        while not true():
            assert time.monotonic() < end, f"{what}: {self.address}\n{self.text}"
            time.sleep(0.1)

    def until_text(self, text: str) -> None:
        self.until(lambda: text in self.text, text)

    def resize(self, width: int, height: int) -> None:
        self._emulate(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=True
        )

    def dark(self, wanted: bool = True) -> None:
        scheme = "dark" if wanted else "light"
        self._emulate("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def press_tab(self) -> None:
        """Press Tab, with the page in front: on a busy machine a new page may not have the focus yet."""
        self._emulate("Page.bringToFront")
        ActionChains(self._driver).send_keys(Keys.TAB).perform()

    def press_enter(self) -> None:
        ActionChains(self._driver).send_keys(Keys.ENTER).perform()

    def screenshot(self, file: Path) -> Path:
        """The whole page, however long."""
        found = self._emulate("Page.captureScreenshot", format="png", captureBeyondViewport=True, fromSurface=True)
        file.write_bytes(base64.b64decode(found["data"]))
        return file

    def complaints(self) -> list[str]:
        """What the browser's console says of the page."""
        return [entry["message"] for entry in self._driver.get_log("browser")]  # pyright: ignore[reportUnknownMemberType]

    def _emulate(self, command: str, **params: Any) -> Any:
        return self._driver.execute_cdp_cmd(command, params)


@contextlib.contextmanager
def window(profile: Path) -> Generator[Window]:
    """A browser of its own, gone at the end."""
    driver, browser = _programs()
    assert driver
    assert browser
    options = ChromeOptions()
    options.binary_location = browser
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    os.environ.setdefault("NO_PROXY", "localhost,127.0.0.1")  # the driver is on this machine
    opened = Chrome(options, ChromeService(driver))
    try:
        yield Window(opened)
    finally:
        opened.quit()


def _programs() -> tuple[str | None, str | None]:
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    return shutil.which("chromedriver"), browser
