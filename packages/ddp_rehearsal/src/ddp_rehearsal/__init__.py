"""The dress rehearsal: a script for several GPUs runs unchanged on pretend ones, and a report says what is wrong."""

import os
from typing import TYPE_CHECKING

from notebook_ranks.shared.lazy_names import lazy_names
from notebook_ranks.shared.own_code import not_own

if TYPE_CHECKING:
    from ddp_rehearsal import pretend_gpus
    from ddp_rehearsal.finding import Finding, Rehearsal
    from ddp_rehearsal.html_report import report_page
    from ddp_rehearsal.rehearsal import rehearse
    from ddp_rehearsal.report import report_json, report_text

__version__ = "0.2.0"
__all__, __getattr__, __dir__ = lazy_names(__name__)
not_own(os.path.dirname(os.path.abspath(__file__)))
