"""The report of a rehearsal as a page of its own: nothing is loaded, every text is escaped, light and dark."""

import html
import linecache

from d2lite.rehearsal.finding import Finding
from d2lite.rehearsal.rehearsal import UNKNOWN, Rehearsal
from d2lite.rehearsal.report import place_text, rank_text, verdict_text

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
svg { max-width: 100%; height: auto }
@media (prefers-color-scheme: dark) { body { color: #eee; background: #161616 } pre { background: #262626 }
  .where { color: #b0b0b0 } }
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'"  # the script's texts run nothing


def report_page(rehearsal: Rehearsal) -> str:
    """Return the page as HTML."""
    findings = "\n".join(_article(finding) for finding in [*rehearsal.findings, *rehearsal.notes])
    facts = "\n".join(f"<li>{html.escape(fact)}</li>" for fact in [*rehearsal.facts, UNKNOWN])
    outputs = "\n".join(
        f"<details><summary>Last output of rank {rank}</summary><pre>{html.escape(text)}</pre></details>"
        for rank, text in sorted(rehearsal.outputs.items())
        if text.strip()
    )
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width">
<title>Rehearsal</title>
<style>{STYLE}</style>
<main>
<h1>{html.escape(verdict_text(rehearsal))}</h1>
{findings}
{_diagram(rehearsal)}
<ul>
{facts}
</ul>
{outputs}
</main>
</html>
"""


def _article(finding: Finding) -> str:
    where = ", ".join(filter(None, [rank_text(finding), place_text(finding.place)]))
    code = linecache.getline(*finding.place[:2]).strip() if finding.place else ""
    line = f"<pre>{html.escape(code)}</pre>" if code else ""
    name = finding.kind if finding.is_sure else f"{finding.kind}: look at"
    return (
        f"<article{'' if finding.is_sure else ' class=' + chr(34) + 'note' + chr(34)}><h2>{html.escape(name)}</h2>"
        f'<p class="where">{html.escape(where)}</p><p>{html.escape(finding.words)}</p>{line}'
        f"<p>{html.escape(finding.repair)}</p></article>"
    )


def _diagram(rehearsal: Rehearsal) -> str:
    """Return the sequence diagram of the last collectives; "" without any, or without plotly."""
    if not any(record.collectives for record in rehearsal.records.values()):
        return ""
    try:
        from d2lite.figures import sequence_figure
        from d2lite.figures.svg import figure_svg
    except ImportError:
        return ""
    return figure_svg(sequence_figure(rehearsal.records))
