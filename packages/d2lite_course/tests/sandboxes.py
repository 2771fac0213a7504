"""The sandbox of this machine, for the tests. Where there is none, they are skipped, but in CI they fail."""

import os

import pytest

from d2lite_course.sandbox import find_sandbox

__all__ = ["BOX", "WHY", "needs_sandbox"]

BOX, WHY = find_sandbox()
needs_sandbox = pytest.mark.skipif(BOX is None and not os.environ.get("CI"), reason=f"no sandbox: {WHY}")
