"""The report of a rehearsal as a page of its own: nothing is loaded, every text is escaped, light and dark."""

import html
import linecache

from ddp_rehearsal.finding import Finding, Rehearsal
from ddp_rehearsal.report import place_text, rank_text, verdict_text
from notebook_ranks.flight_recorder import Collective
from notebook_ranks.hang_diagnosis import first_mismatch
from notebook_ranks.shared.html_page import html_page

__all__ = ["report_page"]

STYLE = """
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem; color: #1b1b1b;
       background: #fff }
article { margin: 1rem 0; padding: .5rem 1rem; border-left: 4px solid #cf222e }
article.note { border-color: #9a6700 }
h1 { font-size: 1.4rem; overflow-wrap: anywhere } h2 { font-size: 1.1rem; margin: 0 }
p { margin: .25rem 0; overflow-wrap: anywhere } .where { color: #595959 }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #f2f2f2; padding: .5rem; margin: .5rem 0 }
table { border-collapse: collapse; display: block; overflow-x: auto; margin: 1rem 0 } caption { text-align: left }
th, td { text-align: left; vertical-align: top; padding: .25rem .5rem; border: 1px solid #8c8c8c; font-weight: normal }
th { white-space: nowrap }
td.wrong { outline: 3px solid #cf222e; outline-offset: -3px }
@media (prefers-color-scheme: dark) { body { color: #eee; background: #161616 } pre { background: #262626 }
  .where { color: #b0b0b0 } }
"""
MOST_COLUMNS = 6


def report_page(rehearsal: Rehearsal) -> str:
    """Return the page as HTML."""
    findings = "\n".join(_article(finding) for finding in [*rehearsal.findings, *rehearsal.notes])
    facts = "\n".join(f"<li>{html.escape(fact)}</li>" for fact in [*rehearsal.facts, rehearsal.unknown])
    outputs = "\n".join(
        f"<details><summary>Last output of rank {rank}</summary><pre>{html.escape(text)}</pre></details>"
        for rank, text in sorted(rehearsal.outputs.items())
        if text.strip()
    )
    body = f"""<main>
<h1>{html.escape(verdict_text(rehearsal))}</h1>
{findings}
{_diagram(rehearsal)}
<ul>
{facts}
</ul>
{outputs}
</main>"""
    return html_page("Rehearsal", STYLE, body)


def _article(finding: Finding) -> str:
    where = ", ".join(filter(None, [rank_text(finding), place_text(finding.place)]))
    code = linecache.getline(*finding.place[:2]).strip() if finding.place else ""
    line = f"<pre>{html.escape(code)}</pre>" if code else ""
    name = finding.kind if finding.is_sure else f"{finding.kind} (not sure)"
    return (
        f"<article{'' if finding.is_sure else ' class=' + chr(34) + 'note' + chr(34)}><h2>{html.escape(name)}</h2>"
        f'<p class="where">{html.escape(where)}</p><p>{html.escape(finding.words)}</p>{line}'
        f"<p>{html.escape(finding.repair)}</p></article>"
    )


def _diagram(rehearsal: Rehearsal) -> str:
    """Return the sequence diagram as a table: a row for each rank, a column for each of the last collectives."""
    records = dict(sorted(rehearsal.records.items()))
    wrong = first_mismatch(records) if any(record.collectives for record in records.values()) else None
    calls = {(r, c.group, c.number): c for r, record in records.items() for c in record.collectives}
    began: dict[tuple[str, int], float] = {}
    for (_, group, number), call in calls.items():
        began[group, number] = min(began.get((group, number), call.at_s), call.at_s)
    columns = sorted(began, key=lambda column: began[column])
    last = len(columns) if wrong is None else columns.index(wrong) + 2
    columns = columns[max(0, last - MOST_COLUMNS) : last]
    if not columns:
        return ""
    several = len({group for group, _ in columns}) > 1
    names = (f"no. {number}" + (f", group {group}" if several else "") for group, number in columns)
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    rows = "\n".join(
        f"<tr><th>rank {r}</th>"
        + "".join(_cell(calls.get((r, *column)), column == wrong) for column in columns)
        + "</tr>"
        for r in records
    )
    said = "" if wrong is None else " In red: the first one that does not match."
    return f"<table><caption>The last collectives of each rank.{said}</caption><tr><td></td>{head}</tr>\n{rows}</table>"


def _cell(call: Collective | None, is_wrong: bool) -> str:
    said = "not called"
    if call is not None:
        sizes = ", ".join("×".join(map(str, size)) for size in call.sizes)
        said = f"{call.name} {sizes} {call.dtype}".strip() + f", line {call.line}"
    return f"<td{' class=wrong' if is_wrong else ''}>{html.escape(said)}</td>"
