"""What a link costs, in pictures: kept measurements beside predictions, and predictions that follow sliders."""

import ipywidgets as widgets

from d2lite import figures
from d2lite.labs.chapter_10 import FigureExplorer
from tools.cluster.speed import rows

__all__ = ["HOSTS", "bandwidth_figure", "hosts_explorer", "times_as_fast"]

HOSTS = tuple(range(1, 17))
_BYTES = {"LeNet": 516_272, "MLP": 2_678_824, "100 MB": 10**8}


def bandwidth_figure(records):
    """Return the figure of a step's seconds against the bandwidth of two hosts: measured, and predicted."""
    figure = figures.Figure()
    found = [row for row in rows(records) if row["hosts"] == 2 and row["mbit"]]
    for i, (net, ms) in enumerate(sorted({(row["net"], row["delay_ms"]) for row in found})):
        mine = [row for row in found if (row["net"], row["delay_ms"]) == (net, ms)]
        mine.sort(key=lambda row: row["mbit"])
        colour, _, symbol = figures.style(i)
        x, name = [row["mbit"] for row in mine], f"{net}, {ms:g} ms" if ms else f"{net}, no delay added"
        marker, line = {"color": colour, "symbol": symbol, "size": 11}, {"color": colour, "dash": "dot"}
        figure.add_scatter(x=x, y=[row["step_s"] for row in mine], mode="markers", marker=marker, name=name)
        figure.add_scatter(x=x, y=[row["predicted_s"] for row in mine], mode="lines", line=line, showlegend=False)
    title = "2 hosts. Marks: measured; dotted lines: predicted"
    figure.update_layout(figures.layout("bandwidth (Mb/s)", "seconds per step", title, bottom=56))
    figure.update_xaxes({"type": "log"} | figures.ticks_at(row["mbit"] for row in found))
    figure.update_yaxes(type="log", tickvals=[0.02, 0.05, 0.1, 0.2, 0.5, 1])
    figures.label_ends(figure)
    return figure


def times_as_fast(step_s, mbit, latency_ms, compute_ms, n_bytes):
    """Return how many times as fast as one host each of HOSTS is, with two all-reduces per step.

    `step_s` is the chapter's `predicted_step_s`; `compute_ms` is what one host needs for the complete minibatch.
    """
    bandwidth = mbit * 1e6 / 8
    steps = [step_s(compute_ms / 1e3 / k, n_bytes, k, bandwidth, latency_ms / 1e3, all_reduces=2) for k in HOSTS]
    return [steps[0] / step for step in steps]


def hosts_explorer(step_s):
    """Return sliders for a link and a training, above the predicted speed-up of 1 to 16 hosts."""
    wide = {"style": {"description_width": "170px"}, "layout": {"width": "500px"}}
    sliders = {
        "mbit": widgets.FloatLogSlider(100, min=1, max=5, readout_format=",.0f", description="bandwidth, Mb/s", **wide),
        "latency_ms": widgets.FloatSlider(0, min=0, max=10, step=0.1, description="latency, ms", **wide),
        "compute_ms": widgets.IntSlider(100, 5, 1000, description="one host computes, ms", **wide),
        "n_bytes": widgets.Dropdown(options=_BYTES, description="gradients", **wide),
    }

    def draw(**values):
        found = times_as_fast(step_s, **values)
        best = max(HOSTS, key=lambda k: found[k - 1])
        title = f"predicted: best with {best} of 16 hosts, {found[best - 1]:.2f} times as fast as one"
        figure = figures.Figure(
            layout=figures.layout("hosts", "times as fast as one host", title, height=300, bottom=56)
        )
        grey = {"color": figures.GREY, "dash": "dot"}
        figure.add_scatter(x=HOSTS, y=HOSTS, mode="lines", line=grey, name="as many times as hosts")
        figure.add_scatter(x=HOSTS, y=found, mode="lines+markers", line_color=figures.PALETTE[0], name="predicted")
        figures.label_ends(figure)
        return figure

    return FigureExplorer(draw, **sliders)
