"""Three learners of a JupyterHub train at once, each with a page, an account and a copy of the book."""

import os

import psutil
import pytest
from notebook import errors, idle, points, until

from d2lite import num_cores
from tests.browser.lab import ARGUMENTS, CHROMIUM, ROOT
from tools.hub.install import installed
from tools.hub.running_hub import running_hub

LEARNERS = ("ada", "ben", "cem")


def log_in(page, hub, name):
    """Log in; the hub starts the server of the learner and opens the index."""
    page.goto(f"{hub.url}/hub/login")
    page.fill("#username_input", name)
    page.fill("#password_input", hub.password)
    page.click("#login_submit", no_wait_after=True)


@pytest.fixture
def pages(browser):
    """A page for each learner, in a browser of its own."""
    browsers = [browser.browser_type.launch(executable_path=CHROMIUM, args=ARGUMENTS) for _ in LEARNERS]
    pages = [browser.new_page(viewport={"width": 1400, "height": 1000}) for browser in browsers]
    for page in pages:
        page.set_default_timeout(180_000)
    yield dict(zip(LEARNERS, pages, strict=True))
    for browser in browsers:
        browser.close()


@pytest.mark.release
@pytest.mark.skipif(not installed(), reason="JupyterHub is not in .bench: make hub installs it")
def test_three_learners_train_at_once(pages, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("D2LITE_LEDGER")  # next to the notebook, as a learner has it
    with running_hub(LEARNERS, tmp_path / "hub") as hub:
        for name, page in pages.items():
            log_in(page, hub, name)
        for name, page in pages.items():
            page.wait_for_selector('.jp-StatusBar-TextItem:has-text("| Idle")', state="attached")
            idle(page)
            assert f"/user/{name}/" in page.url
        for page in pages.values():  # the second cell trains
            page.click(".jp-Notebook .jp-MarkdownCell >> nth=0")
            page.keyboard.press("Shift+Enter")
            page.keyboard.press("Shift+Enter")
        try:
            for page in pages.values():
                until(lambda: [curve for curve in points(page) if len(curve["x"]) >= 2], 240)  # noqa: B023
                if num_cores() == os.cpu_count() <= 4:  # with more there may be enough for all
                    until(lambda: "other programs run" in panel(page), 240)  # noqa: B023
                    until(lambda: "busy with other programs" in panel(page))  # noqa: B023
                assert not errors(page)
        finally:
            for name, page in pages.items():
                page.screenshot(path=tmp_path / f"{name}.png")  # to look at
        family = psutil.Process(hub.pid).children(recursive=True)
        assert len(family) >= 3 * 2 + 2  # a server and a kernel each, the proxy and the culler
        addresses = {at.laddr.ip for of in family for at in of.net_connections("tcp") if at.status == "LISTEN"}
        assert addresses == {"127.0.0.1"}
    _, left = psutil.wait_procs(family, timeout=20)
    assert not left  # though they trained when the hub was ended


def panel(page):
    """The words of the panel."""
    return page.inner_text(".d2lite")


@pytest.mark.release
@pytest.mark.skipif(not installed(), reason="JupyterHub is not in .bench: make hub installs it")
def test_who_has_no_account_or_another_password_is_refused(page, tmp_path):
    with running_hub(LEARNERS[:1], tmp_path / "hub") as hub:
        for name, password in (("eve", hub.password), ("ada", "another one")):
            page.goto(f"{hub.url}/hub/login")
            page.fill("#username_input", name)
            page.fill("#password_input", password)
            page.click("#login_submit")
            page.wait_for_selector(".login_error")
        assert not [child for child in psutil.Process(hub.pid).children() if "single_user" in str(child.cmdline())]
