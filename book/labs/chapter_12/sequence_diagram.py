"""The ranks' flight records as a plotly figure with one lane per rank and one column per collective."""

from collections.abc import Mapping, Sequence

from d2lite.figures.figure import Figure
from d2lite.figures.figure_layout import add_key, add_lanes, layout
from d2lite.figures.labels import escape_label
from d2lite.figures.palette import COLLECTIVE_COLOURS, GREY, RED, TRANSPARENT, ink_on
from notebook_ranks.flight_recorder import Collective, FlightRecord
from notebook_ranks.hang_diagnosis import first_mismatch

__all__ = ["sequence_figure"]

MOST_COLUMNS = 6  # more have no room for names
_BAR_WIDTH = 0.94  # of a bar, where a column is 1
_Column = tuple[str, int]  # group, number
_CallBar = tuple[int, str, str, str]  # column, lane, what is written on it, what is said of it


def sequence_figure(
    records: Mapping[int, FlightRecord],
    title: str = "",
    most: int = MOST_COLUMNS,
    marked: bool = True,
    late: bool = False,
) -> Figure:
    """Return a figure of the last `most` collectives of all ranks: one lane a rank, one column a collective.

    The first collective that does not match is red on all ranks that called it, and an empty red box on a rank that did
    not; without `marked` it looks like the others. Hovering over a box shows sizes, type, group and the line that
    called it. With `late` a box says how much later than the first rank a rank called the collective, in place of the
    collective's name, which its colour and the key say. A rank without a record has a note with the reason.

    Raises:
        ValueError: Without records, or if no rank gave any.
    """
    if not any(record.collectives for record in records.values()):
        raise ValueError(
            "records: expected the collectives of at least one rank, got none. Take error.records of a failed call, or "
            "workers.flight_records() after a call."
        )
    wrong = first_mismatch(records)
    columns = _shown_columns(records, wrong, most)
    lanes = {rank: _lane_name(record) for rank, record in sorted(records.items())}
    figure = Figure(layout=layout(title=title or "the last collectives of each rank", xlabel="", bottom=56))
    key = []
    began = _began(records) if late else {}
    for name, bars in _bars(records, columns, lanes, wrong if marked else None, began).items():
        is_wrong = name in ("does not match", "not called")
        is_empty = name == "not called"
        colour = RED if is_wrong else COLLECTIVE_COLOURS.get(name, GREY)
        key.append(("□" if is_empty else "■", colour, name))
        figure.add_bar(
            orientation="h",
            name=escape_label(name),
            base=[column - _BAR_WIDTH / 2 for column, *_ in bars],
            x=[_BAR_WIDTH] * len(bars),
            y=[lane for _, lane, _, _ in bars],
            text=[text for _, _, text, _ in bars],
            hovertext=[about for *_, about in bars],
            hovertemplate="%{hovertext}<extra></extra>",
            marker={
                "color": TRANSPARENT if is_empty else colour,
                "line": {"width": 3 if is_wrong else 0, "color": RED if is_wrong else colour},
            },
            textposition="inside",
            insidetextanchor="middle",
            insidetextfont={"color": GREY if is_empty else ink_on(colour), "size": 13},
            textangle=0,
            constraintext="both",
        )
    for rank, record in records.items():
        if record.missing:
            figure.add_annotation(
                x=(len(columns) - 1) / 2, y=lanes[rank], text=escape_label(f"no record: {record.missing}"),
                showarrow=False,
            )  # fmt: skip
    several = len({group for group, _ in columns}) > 1
    names = [f"no. {number}" + (f"<br>group {escape_label(group)}" if several else "") for group, number in columns]
    figure.update_xaxes(
        tickvals=list(range(len(columns))), ticktext=names, range=[-0.5, len(columns) - 0.5], showgrid=False,
        zeroline=False, tickangle=0,
    )  # fmt: skip
    figure.update_layout(margin={"r": 8, "b": 50 if several else 32})
    add_key(figure, key)
    add_lanes(figure, list(lanes.values()), bar=76 if late else 58)
    return figure.update_layout(uniformtext={"mode": "hide", "minsize": 13})


def _shown_columns(records: Mapping[int, FlightRecord], wrong: _Column | None, most: int) -> list[_Column]:
    """Return (group, number) of the columns in the order of time: the last ones, `wrong` among them."""
    began = _began(records)
    columns = sorted(began, key=lambda key: (began[key], key))
    first = len(columns) - most
    if wrong is not None:
        first = min(first, max(0, columns.index(wrong) - most // 2))
    return columns[max(0, first) :][:most]


def _began(records: Mapping[int, FlightRecord]) -> dict[_Column, float]:
    """Return when the first rank called each collective."""
    began: dict[_Column, float] = {}
    for record in records.values():
        for call in record.collectives:
            key = (call.group, call.number)
            began[key] = min(began.get(key, call.at_s), call.at_s)
    return began


def _bars(
    records: Mapping[int, FlightRecord],
    columns: Sequence[_Column],
    lanes: Mapping[int, str],
    wrong: _Column | None,
    began: Mapping[_Column, float],
) -> dict[str, list[_CallBar]]:
    """Return {name in the legend: bars}; bars that do not match come first, also in the alternative text."""
    places = {column: i for i, column in enumerate(columns)}
    bars: dict[str, list[_CallBar]] = {"does not match": [], "not called": []}
    for rank, record in sorted(records.items()):
        for call in record.collectives:
            column = (call.group, call.number)
            if column in places:
                name = "does not match" if column == wrong else call.name
                said = [call.name, _sizes(call), f"line {call.line}"]
                if column in began:
                    said = [*_sizes(call).split(" "), said[-1], f"+{1e3 * (call.at_s - began[column]):.0f} ms"]
                text = "<br>".join(escape_label(part) for part in said if part)
                bars.setdefault(name, []).append((places[column], lanes[rank], text, _about(rank, call)))
        called = {(call.group, call.number) for call in record.collectives}
        if wrong in places and wrong is not None and wrong not in called and not record.missing:
            members = (record.groups or {}).get(wrong[0])
            if members is None or rank in members:
                about = f"rank {rank} did not call this collective"
                bars["not called"].append((places[wrong], lanes[rank], f"no. {wrong[1]} not<br>called", about))
    return {name: found for name, found in bars.items() if found}


def _lane_name(record: FlightRecord) -> str:
    words = {"error": "waits", "died": "ended", "silent": "stopped", "done": "returned", "running": "running"}
    return f"rank {record.rank}: {words.get(record.state, record.state)}"


def _sizes(call: Collective) -> str:
    shapes = ", ".join("×".join(map(str, size)) for size in call.sizes)
    return f"{shapes} {call.dtype}" if call.dtype not in ("", "float32") else shapes


def _about(rank: int, call: Collective) -> str:
    """Plotly's hover text of one collective."""
    place = f"{call.file.rpartition('/')[2]} line {call.line}, in {call.function}"
    return "<br>".join(escape_label(part) for part in (f"rank {rank}: {call}", f"group {call.group}", place))
