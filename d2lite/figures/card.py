"""The card of a state: a colour, a mark and a word, the same in every question, check and panel, light and dark."""

__all__ = ["STATES", "card"]

# state -> (mark, ground of the word, colour of the word, edge of the card). The word has 5:1 and more on every page, as
# both of its colours are given here. The rest is the page's own text, on its own ground with a tint of the edge.
STATES = {
    "right": ("✓", "#006b4e", "#ffffff", "#009e73"),
    "nearly": ("≈", "#f0b429", "#222222", "#d99a00"),
    "wrong": ("✗", "#b3261e", "#ffffff", "#e5533d"),
    "not attempted": ("○", "#5f5f5f", "#ffffff", "#797979"),
    "locked": ("–", "#5f5f5f", "#ffffff", "#797979"),  # an answer before its measurement
    "not counted": ("–", "#5f5f5f", "#ffffff", "#797979"),  # an answer whose measurement was disturbed
    "running": ("▸", "#00639c", "#ffffff", "#2b8fd0"),
    "finished": ("●", "#37474f", "#ffffff", "#78909c"),
    "stopped": ("■", "#7a4b00", "#ffffff", "#b07a2a"),
    "diverged": ("↗", "#8e2472", "#ffffff", "#cc79a7"),
    "failed": ("!", "#b3261e", "#ffffff", "#e5533d"),
}


def card(state: str, html: str) -> str:
    """Return a card as HTML: the state as a word with a mark on its colour, and next to it what there is to say.

    `state` is one of STATES. `html` is already escaped; "" is for the state alone.

    Example:
        >>> "✓</span> right" in card("right", "2.5×")
        True
    """
    if state not in STATES:
        raise ValueError(f"state: expected one of {', '.join(map(repr, STATES))}, got {state!r}.")
    mark, ground, ink, edge = STATES[state]
    word = (
        f'<div style="flex:0 0 auto;background:{ground};color:{ink};border-radius:10px;padding:0 10px;font-size:13px;'
        f'font-weight:600;line-height:22px;white-space:nowrap"><span aria-hidden="true">{mark}</span> {state}</div>'
    )
    said = f'<div style="flex:1 1 280px;min-width:0;overflow-wrap:anywhere">{html}</div>' if html else ""
    return (
        f'<div class="d2lite-card" style="display:flex;flex-wrap:wrap;gap:4px 12px;align-items:flex-start;'
        f"border:1px solid {edge};border-radius:8px;background:{edge}1f;padding:6px 10px;margin:2px 0;"
        f'line-height:22px">{word}{said}</div>'
    )
