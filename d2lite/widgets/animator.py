"""Animator: curves that grow while a loop runs, with d2l's call, and hardly a cost for the loop.

In a notebook the figure is a plotly widget while it grows; when the cell ends a static one takes its place, for plotly
and as a picture (SVG), so that what is saved shows the last state on GitHub and in nbconvert too. In a terminal it is
lines of text. `add` only appends; a short-lived timer thread sends, at most every `PUSH_EVERY_S`, and always the last
state. Where a panel listens, the panel draws and the animator shows nothing itself.
"""

import math
import threading
import time

import numpy as np

from d2lite.events import Diverged, emit, has_listener
from d2lite.figures import runs as figures
from d2lite.figures import svg
from d2lite.widgets.live import Live, kernel, static_bundle

__all__ = ["PUSH_EVERY_S", "Animator"]

PUSH_EVERY_S = 0.2  # Jupyter drops messages beyond 1000 a second without a word; 5 look live
_PRINT_EVERY_S = 1.0


class Animator:
    """Curves to which `add(x, y)` appends points; `X` and `Y` hold them, one list a curve.

    The arguments are d2l's, in d2l's order. `legend` names the curves; `xlim` and `ylim` are (low, high); `figsize` is
    in d2l's inches of 100 pixels. Colours and dashes come from a colour-blind-safe palette: `fmts` is ignored, and
    there is one plot: nrows and ncols other than 1 raise ValueError.
    """

    def __init__(
        self, xlabel=None, ylabel=None, legend=None, xlim=None, ylim=None,
        xscale="linear", yscale="linear", fmts=None, nrows=1, ncols=1, figsize=(6.4, 3.4),
    ):  # fmt: skip
        for name, scale in (("xscale", xscale), ("yscale", yscale)):
            if scale not in ("linear", "log"):
                raise ValueError(f"{name}: expected 'linear' or 'log', got {scale!r}.")
        if (nrows, ncols) != (1, 1):
            raise ValueError(f"nrows, ncols: expected 1 and 1, got {nrows} and {ncols}. Make one Animator a plot.")
        self.xlabel, self.ylabel, self.legend = xlabel, ylabel, [legend] if isinstance(legend, str) else legend
        self.xlim, self.ylim, self.xscale, self.yscale = xlim, ylim, xscale, yscale
        self.width, self.height = (round(100 * inches) for inches in figsize)
        self.X, self._Y = [], []
        self._held = []  # (curve, place) of values still on a GPU: reading them waits for the GPU
        self._lock, self._sending = threading.Lock(), threading.RLock()  # who sends may take both, in this order
        self._timer, self._pushed_at, self._at_cell_end, self._diverged = None, -math.inf, False, None
        self._live = None if has_listener() or kernel() is None else Live(self._layout())

    @property
    def Y(self):
        """The values of each curve, as numbers."""
        self._read()
        return self._Y

    def add(self, x, y):
        """Append a point; `y` is a number or one a curve (None: no point), `x` a number or one a curve.

        A value on a GPU is read when the figure is sent. Raises Diverged, the point kept, for NaN and infinities;
        for a value on a GPU that is at a later call.
        """
        ys = list(y) if _is_list(y) else [y]
        xs = list(x) if _is_list(x) else [x] * len(ys)
        if len(xs) != len(ys):
            raise ValueError(f"add: expected as many x as y, got {len(xs)} and {len(ys)}.")
        both = [(i, a, b) for i, (a, b) in enumerate(zip(xs, ys, strict=True)) if a is not None and b is not None]
        points = [(i, _number(a), _number(b)) for i, a, b in both]
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

    def names(self, n):
        """Return the names of `n` curves: the legend, else the label of the y axis."""
        names = list(self.legend or [])[:n]
        rest = self.ylabel or "value"
        return names + [rest if n == 1 else f"{rest} {i + 1}" for i in range(len(names), n)]

    def flush(self):
        """Send the last state now, as a static figure; no thread and no widget is left afterwards."""
        with self._lock:
            timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
            timer.join()
        with self._sending:
            if self._live is not None:
                self._live.settle(self._repr_mimebundle_)
            elif timer is not None:
                print(self, flush=True)

    def _read(self):
        with self._lock:
            held, self._held = self._held, []
        for i, place in held:
            value = self._Y[i][place] = float(self._Y[i][place])
            if not math.isfinite(value) and self._diverged is None:
                self._diverged = Diverged(place + 1, None, value, unit="point", what=f"value of curve {i + 1}")

    def _push_soon(self):
        """Show the first state at once, in the cell that runs; for later ones see that a push is on its way."""
        shell, first = kernel(), self._pushed_at == -math.inf
        if shell is not None and not self._at_cell_end:  # the kernel may be gone before a timer is
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

    def _on_timer(self):
        with self._sending:
            with self._lock:
                if self._timer is not threading.current_thread():
                    return  # flushed meanwhile
                self._timer = None
            self._push()

    def _cell_ends(self, *_):
        kernel().events.unregister("post_run_cell", self._cell_ends)
        self._at_cell_end = False
        self.flush()

    def _push(self):
        with self._sending:
            self._pushed_at = time.monotonic()
            if kernel() is None:
                print(self, flush=True)
            else:
                self._live = self._live or Live(self._layout())
                self._live.push(self._traces(), self._repr_mimebundle_)

    def _traces(self):
        """The curves as plotly traces, read and thinned."""
        self._read()
        with self._lock:
            curves = [(list(x), list(y)) for x, y in zip(self.X, self._Y, strict=True)]
        traces = []
        for i, (name, (x, y)) in enumerate(zip(self.names(len(curves)), curves, strict=True)):
            y = [b if isinstance(b, float) else math.nan for b in y]  # added since: still on the GPU
            traces.append(figures.line(name, *figures.thin(x, y), *figures.style(i)))
        return traces

    def _layout(self):
        layout = figures.layout(self.xlabel, self.ylabel, height=self.height + 60)
        layout["margin"] |= {"b": 90, "t": 16}
        layout["showlegend"] = bool(self.legend)
        for axis, limits, scale in (("xaxis", self.xlim, self.xscale), ("yaxis", self.ylim, self.yscale)):
            layout[axis] |= {"type": scale}
            if limits:
                layout[axis]["range"] = [float(v) for v in (np.log10(limits) if scale == "log" else limits)]
        return layout

    def _repr_mimebundle_(self, include=None, exclude=None):
        traces = self._traces()
        return static_bundle(traces, self._layout(), self._svg(traces), repr(self))

    def _svg(self, traces):
        limits, labels = [self.xlim, self.ylim], [self.xlabel, self.ylabel]
        for i, (axis, scale) in enumerate((("x", self.xscale), ("y", self.yscale))):
            if scale == "log":
                with np.errstate(divide="ignore", invalid="ignore"):
                    traces = [t | {axis: np.log10(t[axis])} for t in traces]
                limits[i] = limits[i] and tuple(np.log10(limits[i]))
                labels[i] = f"{labels[i] or axis} (power of ten)"
        if not self.legend:
            traces = [t | {"name": ""} for t in traces]
        height = self.height + 60 - 18 * len(traces)  # with its legends as high as plotly's
        return svg.draw(traces, "", *labels, *limits, width=self.width, height=max(height, 160))

    def __repr__(self):
        names, ys = self.names(len(self.X)), self.Y
        last = [f"{name} {y[-1]:.4g}" for name, y in zip(names, ys, strict=True) if y]
        x = next((x[-1] for x in self.X if x), None)
        return f"{self.xlabel or 'x'} {x:.4g}: {', '.join(last)}" if last else "Animator without a point yet"


def _is_list(value):
    return hasattr(value, "__len__") and getattr(value, "ndim", 1) > 0 and not isinstance(value, str)


def _number(value):
    """The value as a float; a copy of it if it is a tensor that is not on the CPU."""
    if hasattr(value, "detach"):
        value = value.detach()
        if value.device.type != "cpu":
            return value.clone()
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"add: expected a number, or one a curve, got {value!r}.") from None
