"""The ranks' flight records as a plotly figure with one lane per rank and one column per collective."""

from collections.abc import Mapping, Sequence

from d2lite.figures.figure import Figure
from d2lite.figures.figure_layout import below, layout
from d2lite.figures.labels import escape_label
from d2lite.figures.palette import GREY, PALETTE, TRANSPARENT
from d2lite.workers import Collective, FlightRecord, first_mismatch

__all__ = ["RED", "sequence_figure"]

RED = "#E0102F"  # of what does not match: 4.9:1 on white, 3.9:1 on #111111
MOST = 12  # columns; more have no room for names
_COLOURS = {
    "all_reduce": PALETTE[0], "broadcast": PALETTE[2], "barrier": GREY, "all_gather": PALETTE[3],
    "reduce_scatter": PALETTE[3],
}  # fmt: skip
_WIDTH = 0.9  # of a bar, where a column is 1
_Column = tuple[str, int]  # group, number
_Bar = tuple[int, str, str, str]  # column, lane, what is written on it, what is said of it


def sequence_figure(records: Mapping[int, FlightRecord], title: str = "", most: int = MOST) -> Figure:
    """Return a figure of the last `most` collectives of all ranks: one lane a rank, one column a collective.

    The first collective that does not match is red on all ranks that called it, and an empty red box on a rank that did
    not. Hovering over a box shows sizes, type, group and the line that called it. A rank without a record has a
    note with the reason.

    Raises:
        ValueError: Without records, or if no rank gave any.
    """
    if not any(record.collectives for record in records.values()):
        raise ValueError(
            "records: expected the collectives of at least one rank, got none. Take error.records of a failed call, or "
            "workers.flight_records() after a call."
        )
    wrong = first_mismatch(records)
    columns = _columns(records, wrong, most)
    lanes = {rank: _lane(record) for rank, record in sorted(records.items())}
    height = 190 + 52 * len(lanes)
    figure = Figure(layout=layout(title=escape_label(title or "the last collectives of each rank"), xlabel=""))
    for name, bars in _bars(records, columns, lanes, wrong).items():
        is_wrong = name in ("does not match", "not called")
        colour: str | list[str] = RED if is_wrong else _COLOURS.get(name, PALETTE[4])
        colour = [TRANSPARENT] * len(bars) if name == "not called" else colour
        figure.add_bar(
            orientation="h",
            name=escape_label(name),
            base=[column - _WIDTH / 2 for column, *_ in bars],
            x=[_WIDTH] * len(bars),
            y=[lane for _, lane, _, _ in bars],
            text=[text for _, _, text, _ in bars],
            hovertext=[about for *_, about in bars],
            hovertemplate="%{hovertext}<extra></extra>",
            marker={"color": colour, "line": {"width": 3 if is_wrong else 1, "color": RED if is_wrong else GREY}},
            textposition="inside",
            insidetextanchor="middle",
            insidetextfont={"color": RED if name == "not called" else "white", "size": 11 if len(columns) < 10 else 10},
            textangle=0,
            constraintext="none",
        )
    for rank, record in records.items():
        if record.missing:
            figure.add_annotation(
                x=(len(columns) - 1) / 2, y=lanes[rank], text=escape_label(f"no record: {record.missing}"),
                showarrow=False, font={"color": RED, "size": 13},
            )  # fmt: skip
    several = len({group for group, _ in columns}) > 1
    names = [f"no. {number}" + (f"<br>group {escape_label(group)}" if several else "") for group, number in columns]
    figure.update_xaxes(
        tickvals=list(range(len(columns))), ticktext=names, range=[-0.6, len(columns) - 0.4], showgrid=False,
        zeroline=False, tickangle=0,
    )  # fmt: skip
    order = list(lanes.values())[::-1]
    figure.update_yaxes(categoryorder="array", categoryarray=order, type="category", automargin=True, showgrid=False)
    figure.update_layout(title={"xref": "container", "x": 0.01}, legend={"xref": "container", **below(height, 110)})
    return figure.update_layout(barmode="overlay", bargap=0.2, height=height, margin_b=110)


def _columns(records: Mapping[int, FlightRecord], wrong: _Column | None, most: int) -> list[_Column]:
    """Return (group, number) of the columns in the order of time: the last ones, `wrong` among them."""
    began: dict[_Column, float] = {}
    for record in records.values():
        for call in record.collectives:
            key = (call.group, call.number)
            began[key] = min(began.get(key, call.at_s), call.at_s)
    columns = sorted(began, key=lambda key: (began[key], key))
    first = len(columns) - most
    if wrong is not None:
        first = min(first, max(0, columns.index(wrong) - most // 2))
    return columns[max(0, first) :][:most]


def _bars(
    records: Mapping[int, FlightRecord], columns: Sequence[_Column], lanes: Mapping[int, str], wrong: _Column | None
) -> dict[str, list[_Bar]]:
    """Return {name in the legend: bars}; bars that do not match come first, also in the alternative text."""
    places = {column: i for i, column in enumerate(columns)}
    bars: dict[str, list[_Bar]] = {"does not match": [], "not called": []}
    for rank, record in sorted(records.items()):
        for call in record.collectives:
            column = (call.group, call.number)
            if column in places:
                name = "does not match" if column == wrong else call.name
                text = "<br>".join(
                    escape_label(part) for part in (call.name, _sizes(call), f"line {call.line}") if part
                )
                bars.setdefault(name, []).append((places[column], lanes[rank], text, _about(rank, call)))
        called = {(call.group, call.number) for call in record.collectives}
        if wrong in places and wrong is not None and wrong not in called and not record.missing:
            members = (record.groups or {}).get(wrong[0])
            if members is None or rank in members:
                about = f"rank {rank} did not call this collective"
                bars["not called"].append((places[wrong], lanes[rank], f"no. {wrong[1]} not<br>called", about))
    return {name: found for name, found in bars.items() if found}


def _lane(record: FlightRecord) -> str:
    words = {"error": "waits", "died": "ended", "silent": "stopped", "done": "returned", "running": "running"}
    return f"rank {record.rank}: {words.get(record.state, record.state)}"


def _sizes(call: Collective) -> str:
    shapes = ", ".join("×".join(map(str, size)) for size in call.sizes)
    return f"{shapes} {call.dtype}" if call.dtype not in ("", "float32") else shapes


def _about(rank: int, call: Collective) -> str:
    """Plotly's hover text of one collective."""
    place = f"{call.file.rpartition('/')[2]} line {call.line}, in {call.function}"
    return "<br>".join(escape_label(part) for part in (f"rank {rank}: {call}", f"group {call.group}", place))
