"""Animator: curves that grow while a loop runs, with the call of d2l's Animator; the loop hardly becomes slower.

In a notebook the figure is a plotly widget while it grows. When the cell ends, a static one replaces it, for plotly and
as a picture (SVG), so that a saved notebook shows the last state on GitHub and in nbconvert too. In a terminal it is
lines of text, and plotly is not imported. `add` only appends; a short-lived timer thread sends, at most every
`PUSH_EVERY_S`, and always the last state. If a panel listens, it draws, and the animator shows nothing.
"""

import math
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from d2lite.figures.palette import style
from d2lite.run_events import Diverged, emit, has_listener
from d2lite.widgets.plot_input import as_number, is_list, limits_of, names_of, pixels_of, text_or_none
from notebook_ranks.shared.notebook import notebook_shell

__all__ = ["PUSH_EVERY_S", "Animator"]

PUSH_EVERY_S = 0.2  # Jupyter silently drops messages beyond 1000 per second; 5 per second look live
_PRINT_EVERY_S = 1.0


class Animator:
    """Draw curves that grow: `add(x, y)` appends points; `X` and `Y` hold them, one list per curve.

    The arguments are those of d2l's Animator, in the same order.

    Args:
        xlabel, ylabel: titles of the axes, for instance "epoch"; `ylabel` names the curves that `legend` does not name.
        legend: one name per curve, or one name. Nothing in a name is markup.
        xlim, ylim: (low, high) of an axis, in its own units; by default the axis follows the points.
        xscale, yscale: "linear" or "log". A point at 0 or below is kept, and not drawn on a log axis.
        fmts: ignored; colours and dashes come from a palette that is safe for the colour-blind.
        nrows, ncols: 1 and 1; one Animator is one plot.
        figsize: (width, height) in inches of 100 pixels, 1 to 100.

    Example:
        In a terminal the points are lines of text.

        >>> from d2lite import Animator
        >>> animator = Animator("epoch", "value", legend=["loss", "accuracy"], xlim=[1, 2])
        >>> animator.add(1, (0.9, 0.5))
        epoch 1: loss 0.9, accuracy 0.5
        >>> animator.add(2, (0.4, None)); animator.flush()
        epoch 2: loss 0.4, accuracy 0.5
        >>> animator.X, animator.Y
        ([[1.0, 2.0], [1.0]], [[0.9, 0.4], [0.5]])
    """

    def __init__(
        self,
        xlabel: str | None = None,
        ylabel: str | None = None,
        legend: str | Sequence[str] | None = None,
        xlim: Sequence[float] | None = None,
        ylim: Sequence[float] | None = None,
        xscale: str = "linear",
        yscale: str = "linear",
        fmts: Any = None,
        nrows: int = 1,
        ncols: int = 1,
        figsize: Sequence[float] = (6.4, 3.4),
    ) -> None:
        for name, scale in (("xscale", xscale), ("yscale", yscale)):
            if scale not in ("linear", "log"):
                raise ValueError(f"{name}: expected 'linear' or 'log', got {scale!r}.")
        if (nrows, ncols) != (1, 1):
            raise ValueError(f"nrows, ncols: expected 1 and 1, got {nrows} and {ncols}. Make one Animator per plot.")
        self.xlabel, self.ylabel = text_or_none("xlabel", xlabel), text_or_none("ylabel", ylabel)
        self.legend = names_of(legend)
        self.xscale, self.yscale = xscale, yscale
        self.xlim, self.ylim = limits_of("xlim", xlim, xscale), limits_of("ylim", ylim, yscale)
        self.width, self.height = pixels_of(figsize)
        self.X: list[list[float]] = []
        self._Y: list[list[Any]] = []
        self._held: list[tuple[int, int]] = []  # (curve, index) of values still on a GPU: reading waits for the GPU
        self._sending, self._lock = threading.RLock(), threading.Lock()  # who takes both takes `_sending` first
        self._timer: threading.Timer | None = None
        self._pushed_at, self._at_cell_end = -math.inf, False
        self._diverged: Diverged | None = None
        self._live = None if has_listener() or notebook_shell() is None else self._new_live()

    @property
    def Y(self) -> list[list[float]]:
        """The values of each curve, as numbers."""
        self._read()
        return self._Y

    def add(self, x: Any, y: Any) -> None:
        """Append one point to each curve: `x` and `y` are numbers or 0-d tensors, or one per curve; None adds no point.

        A value on a GPU is read when the figure is sent, so that the loop does not wait for it. A `y` that is NaN or
        infinite is kept, and then raises Diverged; on a GPU a later call raises it. Raises TypeError for what is not a
        number, ValueError for an `x` that is not finite, and for `x` and `y` of different lengths.
        """
        ys = list(y) if is_list(y) else [y]
        xs = list(x) if is_list(x) else [x] * len(ys)
        if len(xs) != len(ys):
            raise ValueError(f"add: expected as many x as y, got {len(xs)} and {len(ys)}.")
        both = [(i, a, b) for i, (a, b) in enumerate(zip(xs, ys, strict=True)) if a is not None and b is not None]
        points = [(i, as_number(a), as_number(b)) for i, a, b in both]
        for _, a, _ in points:
            if isinstance(a, float) and not math.isfinite(a):
                raise ValueError(f"add: expected a finite x, got {a}.")
        with self._lock:
            for _ in range(len(ys) - len(self.X)):
                self.X.append([])
                self._Y.append([])
            for i, a, b in points:
                if not isinstance(b, float):
                    self._held.append((i, len(self._Y[i])))
                self.X[i].append(a)
                self._Y[i].append(b)
        names = self.names(len(ys))
        curves, x, y = zip(*points, strict=True) if points else ((), (), ())
        if has_listener():
            emit("point", names=[names[i] for i in curves], x=list(x), y=list(y))
        else:
            self._push_soon()
        for i, _, b in points:
            if isinstance(b, float) and not math.isfinite(b):
                self._diverged = self._diverged or Diverged(len(self.X[i]), None, b, unit="point", what=names[i])
        if self._diverged is not None:
            error, self._diverged = self._diverged, None
            raise error

    def names(self, n: int) -> list[str]:
        """Return the names of `n` curves: the legend, else the title of the y axis."""
        names = list(self.legend or [])[:n]
        rest = self.ylabel or "value"
        return names + [rest if n == 1 else f"{rest} {i + 1}" for i in range(len(names), n)]

    def flush(self) -> None:
        """Send the last state now, as a static figure; no thread and no widget is left afterwards."""
        with self._lock:
            timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
            timer.join()
        with self._sending:
            if self._live is not None:
                self._live.settle(self._static)
            elif timer is not None:
                print(self, flush=True)

    def _read(self) -> None:
        """Read the values that are still on a GPU."""
        with self._lock:
            held, self._held = self._held, []
        for i, n in held:
            value = self._Y[i][n] = float(self._Y[i][n])
            if not math.isfinite(value) and self._diverged is None:
                self._diverged = Diverged(n + 1, None, value, unit="point", what=f"value of curve {i + 1}")

    def _push_soon(self) -> None:
        """Show the first state immediately, in the cell that runs; for later ones start a timer if none runs."""
        shell, first = notebook_shell(), self._pushed_at == -math.inf
        if shell is not None and not self._at_cell_end:  # the kernel may end before a timer fires
            self._at_cell_end = True
            shell.events.register("post_run_cell", self._cell_ends)
        if first:
            self._push()
            return
        with self._lock:
            if self._timer is None:
                every = _PRINT_EVERY_S if shell is None else PUSH_EVERY_S
                self._timer = threading.Timer(max(0.0, self._pushed_at + every - time.monotonic()), self._on_timer)
                self._timer.start()

    def _on_timer(self) -> None:
        with self._sending:
            with self._lock:
                if self._timer is not threading.current_thread():
                    return  # flushed in the meantime
                self._timer = None
            self._push()

    def _cell_ends(self, *_: Any) -> None:
        notebook_shell().events.unregister("post_run_cell", self._cell_ends)
        self._at_cell_end = False
        self.flush()

    def _push(self) -> None:
        with self._sending:
            self._pushed_at = time.monotonic()
            if notebook_shell() is None:
                print(self, flush=True)
            else:
                self._live = self._live or self._new_live()
                self._live.push(lambda: self._figure(is_last=False), self._static)

    def _new_live(self) -> Any:
        from d2lite.widgets.live_figure import Live  # plotly and widgets: only in a notebook

        return Live()

    def _traces(self) -> list[dict[str, Any]]:
        """The curves as plotly traces, read and thinned."""
        from d2lite.figures.figure_layout import line, thin

        self._read()
        with self._lock:
            curves = [(list(x), list(y)) for x, y in zip(self.X, self._Y, strict=True)]
        traces = []
        for i, (name, (x, y)) in enumerate(zip(self.names(len(curves)), curves, strict=True)):
            y = [b if isinstance(b, float) else math.nan for b in y]  # added after the reading: still on the GPU
            traces.append(line(name, *thin(x, y), style(i)))
        return traces

    def _layout(self, is_last: bool = False) -> dict[str, Any]:
        """The plotly layout; the last state has ticks for the points that are there, as a growing one must not."""
        from d2lite.figures.figure_layout import MOST_LABELS, accuracy_axis, layout, ticks_at
        from d2lite.figures.ticks import tick_step
        from d2lite.figures.training_curves import is_accuracy

        with_legend = bool(self.legend) and len(self.X) > MOST_LABELS
        bottom = 90 if with_legend else 56
        found = layout(self.xlabel, self.ylabel, height=self.height + bottom - 30, bottom=bottom)
        found["margin"] |= {"t": 16}
        found["showlegend"] = with_legend
        for axis, limits, scale in (("xaxis", self.xlim, self.xscale), ("yaxis", self.ylim, self.yscale)):
            found[axis] |= {"type": scale, "range": _axis_range(limits, scale)}
        names = [self.ylabel] if self.ylabel else self.legend or []
        if self.ylim is None and self.yscale == "linear" and names and all(map(is_accuracy, names)):
            found["yaxis"] |= accuracy_axis(y for ys in self._Y for y in ys if isinstance(y, float))
        seen = [x for xs in self.X for x in xs]
        ends = self.xlim or (seen if is_last else [])
        if self.xscale == "log":
            found["xaxis"] |= ticks_at(seen)
        elif ends and "epoch" in (self.xlabel or "").lower():
            found["xaxis"] |= {"tick0": 0, "dtick": tick_step(min(ends), max(ends))}
        return found

    def _figure(self, is_last: bool = True) -> Any:
        """The present state as a figure, with the names of up to six curves at their ends."""
        from d2lite.figures.figure import Figure
        from d2lite.figures.figure_layout import label_ends

        traces = self._traces()
        figure = Figure(traces, self._layout(is_last))
        if self.legend:
            label_ends(figure, self.names(len(traces)))
        return figure

    def _static(self) -> tuple[Any, str, int]:
        return self._figure(), repr(self), self.width

    def _ipython_display_(self) -> None:
        if notebook_shell() is None:
            print(self)
        else:
            self._figure()._ipython_display_()

    def __repr__(self) -> str:
        names, ys = self.names(len(self.X)), self.Y
        last = [f"{name} {y[-1]:.4g}" for name, y in zip(names, ys, strict=True) if y]
        x = next((x[-1] for x in self.X if x), None)
        return f"{self.xlabel or 'x'} {x:.4g}: {', '.join(last)}" if last else "Animator without a point yet"


def _axis_range(limits: Sequence[float] | None, scale: str) -> list[float] | None:
    """The limits as plotly takes them: powers of ten on a log axis."""
    if limits is None:
        return None
    return [float(v) for v in (np.log10(limits) if scale == "log" else limits)]
