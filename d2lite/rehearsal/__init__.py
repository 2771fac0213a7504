"""The dress rehearsal: a script for several GPUs runs unchanged on pretend ones, and a report says what is wrong."""

from d2lite.rehearsal.finding import Finding
from d2lite.rehearsal.rehearsal import Rehearsal, rehearse
from d2lite.rehearsal.report import report_json, report_text
from d2lite.rehearsal.report_page import report_page

__all__ = ["Finding", "Rehearsal", "rehearse", "report_json", "report_page", "report_text"]
