"""A real browser for tests: Debian's Chromium without a screen."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from waiting import WITHIN

if TYPE_CHECKING:  # selenium is slow to import
    from selenium.webdriver import Chrome

needs_browser = pytest.mark.skipif(
    not (shutil.which("chromium") and shutil.which("chromedriver")),
    reason="chromium and chromedriver are not on the PATH",
)


class Browser:
    """A browser with one page."""

    def __init__(self, driver: "Chrome") -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        """Open a page."""
        self.driver.get(url)

    @property
    def text(self) -> str:
        """Return the text that the page shows."""
        # Between two pages there is no body.
        return str(self.driver.execute_script("return document.body?.innerText ?? ''"))

    def wait_for(self, *texts: str, without: str = "") -> str:
        """Return the page's text when it shows all of these texts, and does not show one."""
        from selenium.common.exceptions import TimeoutException
        from selenium.webdriver.support.wait import WebDriverWait

        shown = ""

        def there(_: object) -> bool:
            nonlocal shown
            shown = self.text
            return all(each in shown for each in texts) and not (without and without in shown)

        try:
            WebDriverWait(self.driver, WITHIN, poll_frequency=0.02).until(there)
        except TimeoutException:
            raise AssertionError(f"{texts} without {without!r} never came: {shown}") from None
        return shown

    def fill(self, name: str, text: str) -> None:
        """Write into a field of a form, and send the form."""
        from selenium.webdriver.common.by import By

        field = self.driver.find_element(By.NAME, name)
        field.send_keys(text)
        field.submit()


@contextlib.contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """Start a browser whose files are in the folder `profile`."""
    from selenium.webdriver import Chrome, ChromeOptions, ChromeService

    options = ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for each in (
        "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
        "--window-size=1280,900", f"--user-data-dir={profile}", "--ignore-certificate-errors",
    ):  # fmt: skip
        options.add_argument(each)
    driver = Chrome(options, ChromeService(str(shutil.which("chromedriver"))))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
