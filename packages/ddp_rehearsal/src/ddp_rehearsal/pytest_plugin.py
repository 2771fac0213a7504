"""A plugin of pytest: `pytest --pretend-gpus 2` runs tests of CUDA code on a machine without GPUs.

`--pretend-gpus` is for the whole session. The marker `pretend_gpus(2)` is for one test, which runs in a fork, since a
process keeps its pretend GPUs. A test that needs what is not pretended is skipped, and so is one with the marker
`needs_real_gpu`. Where the machine has enough GPUs, these are used.
"""

import json
import os
from collections.abc import Generator, Sequence
from typing import Any

import pytest

__all__ = []  # pytest finds the hooks by their names

SAYS = "pretend GPUs: "  # begins the message of what is not pretended


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    group = parser.getgroup("pretend GPUs")
    group.addoption("--pretend-gpus", type=int, default=0, metavar="N", help="give the session N pretend GPUs")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Begin to pretend, if the option is given, before a conftest.py asks for GPUs."""
    if n := early_config.known_args_namespace.pretend_gpus:
        try:
            _pretend(n)
        except (ValueError, RuntimeError) as error:
            raise pytest.UsageError(f"--pretend-gpus: {error}") from None


def pytest_configure(config: pytest.Config) -> None:
    """Describe the markers."""
    config.addinivalue_line("markers", "pretend_gpus(n): run this test with n pretend GPUs, in a process of its own")
    config.addinivalue_line("markers", "needs_real_gpu(reason): skip this test where GPUs are pretended")


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say on which GPUs the tests run."""
    n = config.getoption("--pretend-gpus")
    if not n:
        return []
    are = "real ones" if _are_real() else "the CPU computes"
    return [f"pretend GPUs: {n} ({are})"]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that needs a real GPU where there is none."""
    marker = item.get_closest_marker("needs_real_gpu")
    if marker is not None and not _are_real():
        reason = marker.kwargs.get("reason") or (marker.args[0] if marker.args else "it needs a real GPU")
        pytest.skip(f"{SAYS}{reason}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn the error of what is not pretended into a skip."""
    report = yield
    error = call.excinfo.value if call.excinfo is not None else None
    if isinstance(error, NotImplementedError) and str(error).startswith(SAYS):
        report.outcome = "skipped"
        report.longrepr = (str(item.path), item.location[1] or 0, str(error))
    return report


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test with the marker `pretend_gpus` in a fork; None leaves it to pytest."""
    marker = item.get_closest_marker("pretend_gpus")
    if marker is None or item.config.getoption("--pretend-gpus") or not hasattr(os, "fork") or _are_real():
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in _reports_of_fork(item, marker.args[0] if marker.args else 1):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _reports_of_fork(item: pytest.Item, gpus: int) -> Sequence[Any]:
    from _pytest.runner import runtestprotocol

    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            _pretend(gpus)
            reports = runtestprotocol(item, log=False)
            data = [item.config.hook.pytest_report_to_serializable(config=item.config, report=r) for r in reports]
            with os.fdopen(writing, "w", encoding="utf-8") as pipe:
                json.dump(data, pipe, default=str)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        sent = pipe.read()
    _, status = os.waitpid(pid, 0)
    if not sent:
        code = os.waitstatus_to_exitcode(status)
        call = pytest.CallInfo.from_call(lambda: pytest.fail(f"the process of this test ended ({code})"), "call")
        return [item.ihook.pytest_runtest_makereport(item=item, call=call)]
    hook = item.config.hook.pytest_report_from_serializable
    return [hook(config=item.config, data=data) for data in json.loads(sent)]


def _pretend(gpus: int) -> None:
    from ddp_rehearsal.pretend_gpus import pretend_gpus

    if not _are_real():
        pretend_gpus(gpus)


def _are_real() -> bool:
    import torch

    from ddp_rehearsal.pretend_gpus.devices import number_of_gpus

    return torch.cuda.device_count() > 0 and number_of_gpus() == 0
