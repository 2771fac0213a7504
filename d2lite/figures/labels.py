"""Text in plotly figures, shown as it is written."""

__all__ = ["escape_label"]

_MARKUP = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def escape_label(text: object) -> str:
    """Return `text` in the form that plotly shows as written, in titles, names, annotations and hover texts.

    Plotly reads `<b>` and `<a href=...>` as markup, `&lt;` as a character, and `%{x}` in a hover text as a value. It
    knows few named entities, and not `&quot;`: quotation marks stay as they are.
    """
    return str(text).translate(_MARKUP).replace("%{", "%&#123;")
