"""Events -> a plotly figure with one lane a rank for computing and one for sending: pure."""

import plotly.graph_objects as go

from d2lite.figures.runs import GREY, PALETTE, layout
from d2lite.profiling.critical_path import critical_path, idle_events, is_collective

__all__ = ["timeline"]

COLOURS = dict(zip(("forward", "backward", "all_reduce", "update", "data"), PALETTE, strict=True))
HOLLOW = {"wait": "/", "idle": "."}  # kinds in which nothing is done -> their pattern


def timeline(events, title="one step, measured", explain=False):
    """Return a figure of `events` (trace.Event): a bar a span, in milliseconds, sending beneath computing.

    {label: events} draws several steps above each other, on one time axis. With `explain` the critical path of each
    step has a bold outline, everything else is pale, and the gaps in which a rank does not compute are drawn as "idle".
    Hovering over a bar shows its times and bytes. Raises ValueError without events.
    """
    steps = events if isinstance(events, dict) else {"": events}
    if not steps or not all(steps.values()):
        raise ValueError("events: expected at least one Event, got none.")
    bars = [bar for label, step in steps.items() for bar in _bars(label, step, explain)]
    figure = go.Figure(layout=layout(title=title, xlabel="milliseconds since the start of the step"))
    kinds = dict.fromkeys(event.kind for event, _, _ in bars)
    order = [kind for kind in kinds if kind not in HOLLOW] + [kind for kind in kinds if kind in HOLLOW]
    for i, kind in enumerate(order):
        mine = [bar for bar in bars if bar[0].kind == kind]
        figure.add_bar(
            orientation="h",
            name=kind,
            base=[1e3 * event.start_s for event, _, _ in mine],
            x=[1e3 * (event.end_s - event.start_s) for event, _, _ in mine],
            y=[where for _, where, _ in mine],
            text=[event.name for event, _, _ in mine],
            customdata=[[1e3 * event.end_s, event.n_bytes / 1e6] for event, _, _ in mine],
            hovertemplate="%{text}: %{base:.2f} to %{customdata[0]:.2f} ms, %{customdata[1]:.2f} MB<extra></extra>",
            marker=_marker(kind, COLOURS.get(kind, PALETTE[i % len(PALETTE)]), [how for _, _, how in mine]),
            textposition="none" if kind in HOLLOW else "inside",
            insidetextanchor="middle",
            insidetextfont={"color": "white", "size": 11},
            textangle=0,
            constraintext="both",
        )
    lanes = list(dict.fromkeys(lane for label, step in steps.items() for lane in _lanes(label, step)))
    figure.update_yaxes(categoryorder="array", categoryarray=lanes[::-1], type="category", automargin=True)
    figure.update_layout(uniformtext={"mode": "hide", "minsize": 9})  # no name is better than one too small to read
    # the names of the lanes are long: title and legend begin at the left edge, where there is room for them
    figure.update_layout(title={"xref": "container", "x": 0.01}, legend={"xref": "container", "maxheight": 100})
    return figure.update_layout(barmode="overlay", bargap=0.2, height=160 + 55 * len(lanes), margin_b=100)


def _bars(label, events, explain):
    """(event, lane, "critical" | "other" | "plain") of each bar."""
    chain = critical_path(events) if explain else []
    how = {True: "critical", False: "other"} if explain else {False: "plain"}
    shown = [*events, *(idle_events(events) if explain else [])]
    return [(event, _full(label, event), how[event in chain]) for event in shown if event.end_s > event.start_s]


def _marker(kind, colour, hows):
    """The look of a kind's bars."""
    look = {
        "color": colour,
        "opacity": [0.45 if how == "other" else 1.0 for how in hows],
        "line": {"width": [3 if how == "critical" else 1 for how in hows], "color": "rgba(121,121,121,0.6)"},
    }
    if kind in HOLLOW:
        look |= {"color": "rgba(0,0,0,0)", "pattern": {"shape": HOLLOW[kind], "fgcolor": GREY, "size": 6}}
    else:
        look["line"]["color"] = [GREY if how == "critical" else "rgba(121,121,121,0.6)" for how in hows]
    return look


def _lanes(label, events):
    return [name for _, name in sorted({(event.rank, _full(label, event)) for event in events})]


def _full(label, event):
    return f"{label}, {lane(event)}" if label else lane(event)


def lane(event):
    """The name of an event's lane: computing and sending of one rank stand beneath each other."""
    return f"rank {event.rank} · {'sends' if is_collective(event) or event.kind == 'wait' else 'computes'}"
