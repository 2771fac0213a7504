"""A page of its own, as HTML that runs no script: the frame of the scores and of a rehearsal's report."""

__all__ = ["html_page"]

# such a page holds texts of others, of learners or of their scripts: whatever they wrote, nothing of it runs
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def html_page(title: str, style: str, body: str) -> str:
    """Return a complete page; `title`, `style` (CSS) and `body` are HTML, in which texts of others are escaped."""
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>{style}</style>
{body}
</html>
"""
