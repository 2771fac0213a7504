"""Events as a plotly figure with one lane per rank for computing and one for sending."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from d2lite.figures.figure import Figure
from d2lite.figures.figure_layout import add_key, add_lanes, layout
from d2lite.figures.labels import escape_label
from d2lite.figures.palette import COLOURS, GREY, PALETTE, TRANSPARENT, ink_on, pale
from d2lite.profiling.critical_path import critical_path, idle_events, is_collective
from d2lite.trace import Event

__all__ = ["timeline_figure"]

HOLLOW = {"wait": "/", "idle": "."}  # kinds in which nothing is done -> their pattern
_KEY = {"wait": "▨", "idle": "░"}
_Bar = tuple[Event, str, str]  # event, lane, "critical" | "other" | "plain"


def timeline_figure(
    events: Sequence[Event] | Mapping[str, Sequence[Event]],
    title: str = "one step, measured",
    explain: bool = False,
    who: str = "rank",
) -> Figure:
    """Return a figure of `events`: one bar per span of time, in milliseconds, sending beneath computing.

    {name of a step: events} draws several steps above each other, on one time axis. With `explain` the critical path of
    each step is filled, everything else has an outline only, and gaps in computing are drawn as "idle". Hovering over a
    bar shows its times and bytes. `who` computes: "rank" for processes, "device" for devices that one process drives.
    """
    steps = events if isinstance(events, Mapping) else {"": events}
    if not steps or not all(steps.values()):
        raise ValueError("events: expected at least one Event, got none. Pass the events of a recorded step.")
    bars = [bar for step, spans in steps.items() for bar in _bars(step, spans, explain, who)]
    figure = Figure(layout=layout(title=title, xlabel="milliseconds since the start of the step", bottom=56))
    kinds = dict.fromkeys(event.kind for event, _, _ in bars)
    order = [kind for kind in kinds if kind not in HOLLOW] + [kind for kind in kinds if kind in HOLLOW]
    colours = {kind: GREY if kind in HOLLOW else COLOURS.get(kind, PALETTE[i % 5]) for i, kind in enumerate(order)}
    for kind, colour in colours.items():
        mine = [bar for bar in bars if bar[0].kind == kind]
        looks = [look for _, _, look in mine]
        figure.add_bar(
            orientation="h",
            name=escape_label(kind),
            base=[1e3 * event.start_s for event, _, _ in mine],
            x=[1e3 * (event.end_s - event.start_s) for event, _, _ in mine],
            y=[lane for _, lane, _ in mine],
            text=[escape_label(event.name) for event, _, _ in mine],
            customdata=[[1e3 * event.end_s, event.n_bytes / 1e6] for event, _, _ in mine],
            hovertemplate="%{text}: %{base:.2f} to %{customdata[0]:.2f} ms, %{customdata[1]:.2f} MB<extra></extra>",
            marker=_marker(kind, colour, looks),
            textposition="none" if kind in HOLLOW else "inside",
            insidetextanchor="middle",
            insidetextfont={"color": [GREY if look == "other" else ink_on(colour) for look in looks], "size": 13},
            textangle=0,
            constraintext="both",
        )
    add_key(figure, [(_KEY.get(kind, "■"), colour, kind) for kind, colour in colours.items()])
    add_lanes(
        figure, list(dict.fromkeys(lane for step, spans in steps.items() for lane in _lane_names(step, spans, who)))
    )
    # no name is better than one too small to read
    return figure.update_layout(uniformtext={"mode": "hide", "minsize": 13})


def _bars(step: str, events: Sequence[Event], explain: bool, who: str) -> list[_Bar]:
    chain = critical_path(events) if explain else []
    looks = {True: "critical", False: "other"} if explain else {False: "plain"}
    shown = [*events, *(idle_events(events) if explain else [])]
    return [(event, _lane(step, event, who), looks[event in chain]) for event in shown if event.end_s > event.start_s]


def _marker(kind: str, colour: str, looks: Sequence[str]) -> dict[str, Any]:
    """The colours and outlines of a kind's bars: only what is on the critical path is filled, with a bold outline."""
    widths = [3 if look == "critical" else 1 for look in looks]
    if kind in HOLLOW:
        pattern = {"shape": HOLLOW[kind], "fgcolor": GREY, "size": 6}
        return {"color": TRANSPARENT, "pattern": pattern, "line": {"width": widths, "color": GREY}}
    of_look = {"critical": GREY, "other": colour, "plain": "white"}  # white parts neighbours of one colour
    outlines = [of_look[look] for look in looks]
    fills = [pale(colour) if look == "other" else colour for look in looks]
    return {"color": fills, "line": {"width": widths, "color": outlines}}


def _lane_names(step: str, events: Iterable[Event], who: str) -> list[str]:
    return [name for _, name in sorted({(event.rank, _lane(step, event, who)) for event in events})]


def _lane(step: str, event: Event, who: str) -> str:
    """Return the name of an event's lane; computing and sending of one rank or device are beneath each other."""
    lane = (
        f"{escape_label(who)} {event.rank} · {'sends' if is_collective(event) or event.kind == 'wait' else 'computes'}"
    )
    return f"{escape_label(step)}, {lane}" if step else lane
