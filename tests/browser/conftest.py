"""JupyterLab and Chromium in front of it, for each file of tests."""

from pathlib import Path

import pytest
from lab import ARGUMENTS, CHROMIUM, serving


def pytest_collection_modifyitems(items):
    if CHROMIUM is None:
        why = "Chromium not found: sudo apt-get install chromium (Fedora: dnf install chromium; macOS: Google Chrome)"
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A server on an empty folder; it and its kernels are ended in every case."""
    with serving(tmp_path_factory.mktemp("notebooks"), tmp_path_factory.mktemp("jupyter")) as served:
        yield served


@pytest.fixture(scope="module")
def browser():
    """Chromium, without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser):
    """A fresh page, 1400 pixels wide; what its console calls an error is kept in `page.errors`."""
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    page.set_default_timeout(120_000)
    page.errors = []
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    yield page
    page.close()
