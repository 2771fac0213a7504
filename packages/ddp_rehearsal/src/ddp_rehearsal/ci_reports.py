"""The report of a rehearsal for machines that run tests: annotations of GitHub, SARIF 2.1.0 and JUnit's XML.

Sources: GitHub, "Workflow commands for GitHub Actions"; OASIS, "SARIF Version 2.1.0"; the XML of JUnit as Jenkins and
GitLab read it.
"""

import json
import os
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import PurePath
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

from ddp_rehearsal.finding import KINDS, Finding, Rehearsal
from ddp_rehearsal.report import rank_text, verdict_text
from notebook_ranks.shared.format import printable

__all__ = ["report_github", "report_junit", "report_sarif"]

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
COULD_NOT_RUN = "The script could not be run: "


def report_github(rehearsal: Rehearsal) -> str:
    """Return one annotation for each finding and note, which GitHub shows at the line of the script.

    Example:
        >>> from ddp_rehearsal.finding import Finding
        >>> found = Finding("copies", "the weights differ.", "Use DDP.", place=("train.py", 7, "main"), ranks=(1,))
        >>> run = {"command": "train.py", "gpus": 2, "are_real": False, "steps": 3, "seconds": 1.0}
        >>> print(report_github(Rehearsal(**run, findings=[found])).splitlines()[0])
        ::error file=train.py,line=7,title=rehearsal%3A copies (rank 1)::the weights differ.%0AUse DDP.
    """
    lines = []
    for finding in _all(rehearsal):
        where = f"file={_property(_relative(finding.place[0]))},line={finding.place[1]}," if finding.place else ""
        of = f" ({rank_text(finding)})" if rank_text(finding) else ""
        title = _property(f"rehearsal: {finding.kind}{of}")
        level = "error" if finding.is_sure else "warning"
        said = _data(printable("\n".join(filter(None, [finding.words, finding.repair]))))
        lines.append(f"::{level} {where}title={title}::{said}")
    return "\n".join([*lines, verdict_text(rehearsal)])


def report_sarif(rehearsal: Rehearsal) -> str:
    """Return the report in SARIF, the format of static analysers that GitHub and editors read."""
    results = []
    for finding in _all(rehearsal):
        result: dict[str, Any] = {
            "ruleId": finding.kind,
            "level": "error" if finding.is_sure else "note",
            "message": {"text": f"{finding.words} {finding.repair}".strip()},
            "properties": {"ranks": list(finding.ranks), "step": finding.step},
        }
        if finding.place is not None:
            file, line, _ = finding.place
            uri = quote(PurePath(_relative(file)).as_posix())
            place = {"artifactLocation": {"uri": uri}, "region": {"startLine": max(1, line)}}
            result["locations"] = [{"physicalLocation": place}]
        results.append(result)
    driver = {
        "name": "ddp-rehearsal",
        "version": _version(),
        "rules": [{"id": kind, "shortDescription": {"text": text}} for kind, text in KINDS.items()],
    }
    ran = {"executionSuccessful": not rehearsal.error, "exitCode": rehearsal.exit_code}
    run = {"tool": {"driver": driver}, "invocations": [ran | {"commandLine": rehearsal.command}], "results": results}
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def report_junit(rehearsal: Rehearsal) -> str:
    """Return the report as a suite of tests, one for each kind of finding: it fails with what was found."""
    failed = {kind: [one for one in rehearsal.findings if one.kind == kind] for kind in KINDS}
    seconds = f"{rehearsal.seconds:.1f}"
    suite = ElementTree.Element(
        "testsuite",
        name=f"rehearsal of {printable(rehearsal.command)}",
        tests=str(len(KINDS)),
        failures=str(sum(map(bool, failed.values()))),
        errors=str(int(bool(rehearsal.error))),
        time=seconds,
    )
    for kind, text in KINDS.items():
        case = ElementTree.SubElement(suite, "testcase", classname="rehearsal", name=text, time="0")
        if rehearsal.error and kind == "error":
            ElementTree.SubElement(case, "error", message=printable(rehearsal.error))
        elif failed[kind]:
            words = printable(failed[kind][0].words)
            more = "\n".join(f"{_where(one)}{one.words} {one.repair}" for one in failed[kind])
            ElementTree.SubElement(case, "failure", message=words).text = printable(more)
        elif not rehearsal.is_checked:
            ElementTree.SubElement(case, "skipped", message="No update was seen.")
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _all(rehearsal: Rehearsal) -> Iterator[Finding]:
    if rehearsal.error:
        yield Finding("error", f"{COULD_NOT_RUN}{rehearsal.error}", "")
    yield from [*rehearsal.findings, *rehearsal.notes]


def _where(finding: Finding) -> str:
    return f"{_relative(finding.place[0])}:{finding.place[1]}: " if finding.place else ""


def _relative(file: str) -> str:
    """Return the path as it is seen from the working folder, if the file is below it."""
    path = os.path.relpath(file) if os.path.isabs(file) else file
    return file if path.startswith(os.pardir) else path


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _version() -> str:
    for name in ("ddp-rehearsal", "d2lite"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return "0"
