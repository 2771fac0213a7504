"""Events -> a plotly figure with one lane a rank for computing and one for sending: pure."""

import plotly.graph_objects as go

from d2lite.figures import PALETTE, layout

__all__ = ["timeline"]


def timeline(events, title="one step, measured"):
    """Return a figure of `events` (trace.Event): a bar a span, in milliseconds, sending beneath computing.

    Hovering over a bar shows its times and bytes. Raises ValueError without events.
    """
    if not events:
        raise ValueError("events: expected at least one Event, got none.")
    figure = go.Figure(layout=layout(title=title, xlabel="milliseconds since the start of the step"))
    kinds = list(dict.fromkeys(event.kind for event in events))
    for kind, colour in zip(kinds, PALETTE * len(kinds), strict=False):
        mine = [event for event in events if event.kind == kind]
        figure.add_bar(
            orientation="h",
            name=kind,
            base=[1e3 * event.start_s for event in mine],
            x=[1e3 * (event.end_s - event.start_s) for event in mine],
            y=[lane(event) for event in mine],
            text=[event.name for event in mine],
            customdata=[[1e3 * event.end_s, event.n_bytes / 1e6] for event in mine],
            hovertemplate="%{text}: %{base:.2f} to %{customdata[0]:.2f} ms, %{customdata[1]:.2f} MB<extra></extra>",
            marker={"color": colour, "line": {"width": 1, "color": "rgba(121,121,121,0.6)"}},
            textposition="inside",
            insidetextanchor="middle",
            insidetextfont={"color": "white", "size": 11},
            constraintext="both",
        )
    lanes = sorted({lane(event) for event in events})
    figure.update_yaxes(categoryorder="array", categoryarray=lanes[::-1], type="category", automargin=True)
    return figure.update_layout(barmode="overlay", bargap=0.2, height=150 + 55 * len(lanes), margin_b=90)


def lane(event):
    """The name of an event's lane: computing and sending of one rank stand beneath each other."""
    return f"rank {event.rank} · {'sends' if event.n_bytes else 'computes'}"
