"""One control (a widget) per parameter of a training function, in the order of the parameters."""

import inspect
import math
import reprlib
from collections.abc import Callable, Collection, Mapping
from numbers import Integral, Real
from typing import Any

import ipywidgets as widgets
from traitlets import TraitError

from d2lite.devices import MAX_REPLICAS, num_cores, num_gpus
from notebook_ranks.shared.checks import positive_int, positive_number, whole_number

__all__ = ["make", "values"]

_LARGEST = 2**53 - 1  # whole number that a page can show: its numbers are float64
_USUAL_BATCH_SIZES = (32, 64, 128, 256, 512, 1024, 2048)
_SEEDS = (0, 2**31 - 1)
_STEP = 0.02  # of a log slider, in powers of ten: 5%
_EMPTY = inspect.Parameter.empty
_Bounds = tuple[Any, Any]  # (low, high), as the learner wrote them


def make(
    function: Callable[..., Any], given: Mapping[str, Any], fixed: Collection[str] = ()
) -> dict[str, widgets.Widget]:
    """Return {parameter: widget} for `function`, which is called with keywords.

    `given` describes a control: a number is its initial value (the bounds widen to hold it), a tuple (low, high) the
    bounds of a slider, a list a selection, None no control. Parameters in `fixed` and "animator" have no control, nor
    have those whose default is None or a function, unless given. A function that takes **keywords accepts every name.
    Raises TypeError for what cannot be a control, ValueError for numbers out of bounds and those that a control cannot
    show.
    """
    parameters = _parameters(function, [*given, *fixed])
    name_of = getattr(function, "__name__", "the function")
    for name in [*given, *fixed]:
        if name not in parameters or name == "animator":
            have = ", ".join(p for p in parameters if p != "animator") or "none"
            raise TypeError(f"{name}: expected a parameter of {name_of} ({have}), got a name that it does not have.")
        if name in given and name in fixed:
            raise TypeError(f"{name}: expected this parameter once, got it both as a control and in fixed.")
    controls = {}
    for name, parameter in parameters.items():
        if name in fixed or name == "animator":
            continue
        control = _control(name, parameter.default, given.get(name, _EMPTY), name_of)
        if control is not None:
            control.description, control.style.description_width, control.layout.width = name, "84px", "244px"
            controls[name] = control
    return controls


def values(controls: Mapping[str, widgets.Widget]) -> dict[str, Any]:
    """Return {parameter: value} of the controls. The value of a log slider that was moved has two digits."""
    return {name: _readable(c) if isinstance(c, widgets.FloatLogSlider) else c.value for name, c in controls.items()}


def _parameters(function: Callable[..., Any], names: Collection[str]) -> dict[str, inspect.Parameter]:
    """Return the parameters that can be passed by name; a function with **keywords has all `names` as well."""
    kinds = inspect.Parameter
    try:
        signature = inspect.signature(function)
    except ValueError:
        raise TypeError(
            f"Panel: expected a function whose parameters can be read, got {function!r}. Wrap it in one with def."
        ) from None
    parameters: dict[str, inspect.Parameter] = {}
    for name, parameter in signature.parameters.items():
        if parameter.kind is kinds.POSITIONAL_ONLY:
            raise TypeError(
                f"{name}: expected a parameter that can be passed by name, got a positional-only one. Leave out the / "
                "in its def."
            )
        if parameter.kind is kinds.VAR_KEYWORD:
            parameters |= {more: kinds(more, kinds.KEYWORD_ONLY) for more in names if more not in signature.parameters}
        elif parameter.kind is not kinds.VAR_POSITIONAL:
            parameters[name] = parameter
    return parameters


def _control(name: str, default: Any, given: Any, function: str) -> widgets.Widget | None:
    """Return the widget of one parameter, or None if it has none."""
    is_function = default is not _EMPTY and callable(default)
    if given is None or (given is _EMPTY and (default is None or is_function)):
        if default is _EMPTY:
            raise TypeError(f"{name}: expected a value, got None; {function} has no default for it.")
        return None
    if isinstance(given, list):
        return _selection(name, [_CHECKED[name](name, v) for v in given] if name in _CHECKED else given, default)
    bounds = _bounds(name, given) if isinstance(given, tuple) else None
    start = default if given is _EMPTY or bounds else given
    if name in _KNOWN:
        return _KNOWN[name](name, start, bounds)
    if (start is _EMPTY or start is None) and bounds is None:
        raise TypeError(
            f"{name}: expected a default in {function} or a value for its control, got neither. "
            f"Give one: Panel({function}, {name}=...), or fixed={{{name!r}: ...}}."
        )
    return _by_type(name, start, bounds)


def _num_gpus(name: str, start: Any, bounds: _Bounds | None) -> widgets.Widget:
    most = min(MAX_REPLICAS, max(4, num_gpus(), num_cores()))
    low, high = (positive_int(name, bound, MAX_REPLICAS) for bound in bounds or (1, most))
    start = low if start is _EMPTY or start is None else positive_int(name, start, MAX_REPLICAS)
    return _int_slider(start, low, high, bounds)


def _lr(name: str, start: Any, bounds: _Bounds | None) -> widgets.Widget:
    start = 0.1 if start is _EMPTY or start is None else positive_number(name, start)
    return _log_slider(name, start, bounds or (1e-3, 10.0), bounds)


def _batch_size(name: str, start: Any, bounds: _Bounds | None) -> widgets.Widget:
    start = 256 if start is _EMPTY or start is None else positive_int(name, start)
    low, high = (positive_int(name, bound) for bound in bounds or (_USUAL_BATCH_SIZES[0], _USUAL_BATCH_SIZES[-1]))
    ends = {start} if bounds is None else {low, high}
    sizes = sorted({size for size in _USUAL_BATCH_SIZES if low <= size <= high} | ends)
    return widgets.Dropdown(options=sizes, value=start if start in sizes else sizes[0])


def _num_epochs(name: str, start: Any, bounds: _Bounds | None) -> widgets.Widget:
    low, high = (positive_int(name, bound) for bound in bounds or (1, 20))
    start = 10 if start is _EMPTY or start is None else positive_int(name, start)
    return _int_slider(start, low, high, bounds)


def _seed(name: str, start: Any, bounds: _Bounds | None) -> widgets.Widget:
    low, high = (whole_number(name, bound, *_SEEDS) for bound in bounds or _SEEDS)
    start = low if start is _EMPTY or start is None else whole_number(name, start, *_SEEDS)
    return widgets.BoundedIntText(value=min(max(start, low), high), min=low, max=high)


# what a value in a list must be, for the names whose kind is known
_CHECKED: dict[str, Callable[[str, Any], Any]] = {
    "num_gpus": positive_int, "lr": positive_number, "batch_size": positive_int, "num_epochs": positive_int,
    "seed": whole_number,
}  # fmt: skip
_KNOWN = {"num_gpus": _num_gpus, "lr": _lr, "batch_size": _batch_size, "num_epochs": _num_epochs, "seed": _seed}


def _by_type(name: str, start: Any, bounds: _Bounds | None) -> widgets.Widget:
    """Return the widget for a parameter whose name is not in `_KNOWN`, by the type of its value or bounds."""
    kind = bounds[0] if bounds and (start is _EMPTY or start is None) else start
    if bounds is not None and (isinstance(kind, (bool, str)) or not isinstance(kind, Real)):
        raise TypeError(f"{name}: expected a number if bounds are given, got {kind!r}.")
    if isinstance(kind, bool):
        return widgets.Checkbox(value=kind, indent=True)
    if isinstance(kind, str):
        return widgets.Text(value=kind)
    if isinstance(kind, Integral) and all(isinstance(bound, Integral) for bound in bounds or ()):
        kind = whole_number(name, kind, -_LARGEST, _LARGEST, f"Pass it as fixed={{{name!r}: ...}}.")  # NumPy's as well
        low, high = bounds or _around(kind)
        return _int_slider(kind, low, high, bounds)
    if isinstance(kind, Real):
        kind = float(kind)
        if not math.isfinite(kind):
            raise ValueError(f"{name}: expected a finite number, got {kind}. Pass it as fixed={{{name!r}: ...}}.")
        if bounds is None and 1e-300 < kind < 1e300:
            decade = 10.0 ** math.floor(math.log10(kind))
            return _log_slider(name, kind, (decade / 10, decade * 100), None)
        if bounds is not None and bounds[0] > 0:
            return _log_slider(name, kind, bounds, bounds)
        if bounds is None:
            return widgets.FloatText(value=kind)
        low, high = bounds
        return widgets.FloatSlider(value=min(max(kind, low), high), min=low, max=high, step=(high - low) / 100)
    raise TypeError(
        f"{name}: expected a number, a text, True or False, a tuple (low, high) or a list, got "
        f"{reprlib.repr(kind)} ({type(kind).__name__}). Pass other things as fixed={{{name!r}: ...}}."
    )


def _around(value: int) -> tuple[int, int]:
    if value > 0:
        return 1, max(10, 4 * value)
    return (0, 10) if value == 0 else (4 * value, 0)


def _int_slider(start: int, low: int, high: int, bounds: _Bounds | None) -> widgets.IntSlider:
    if bounds is None:
        low, high = min(low, start), max(high, start)
    return widgets.IntSlider(value=min(max(start, low), high), min=low, max=high)


def _log_slider(name: str, start: float, limits: _Bounds, bounds: _Bounds | None) -> widgets.FloatLogSlider:
    low, high = (positive_number(name, limit) for limit in limits)
    if bounds is None:
        low, high = min(low, start), max(high, start)
    elif not low <= start <= high:
        start = math.sqrt(low * high)
    low, high, at = math.log10(low), math.log10(high), math.log10(start)
    low = at - math.floor((at - low) / _STEP + 1e-9) * _STEP  # on the page the steps are counted from the lower end
    slider = widgets.FloatLogSlider(
        value=start, base=10, min=min(low, at), max=max(high, at), step=_STEP, readout_format=".2g"
    )
    slider.given = slider.value = start
    return slider


def _readable(slider: widgets.FloatLogSlider) -> float:
    """Return the number as given, or with two digits if the slider was moved to one of its steps.

    A page may send back the number as given with its last digit changed, since it keeps the logarithm.
    """
    steps = math.log10(slider.value / slider.given) / _STEP
    if abs(steps - round(steps)) > 1e-6:
        return slider.value
    return float(f"{slider.value:.2g}") if round(steps) else slider.given


def _selection(name: str, options: list[Any], default: Any) -> widgets.Dropdown:
    if not options:
        raise ValueError(f"{name}: expected a list with at least one value, got an empty one.")
    try:
        return widgets.Dropdown(options=options, value=default if default in options else options[0])
    except (TraitError, ValueError, RuntimeError):  # == of two arrays is no answer
        raise TypeError(
            f"{name}: expected a list of values that can be compared, got {reprlib.repr(options)}. Give a list of "
            "names, and choose the value by its name in the function."
        ) from None


def _bounds(name: str, given: tuple[Any, ...]) -> _Bounds:
    if len(given) != 2 or not all(isinstance(v, Real) and not isinstance(v, bool) for v in given):
        raise TypeError(f"{name}: expected a tuple of two numbers (low, high), got {given!r}.")
    low, high = given
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"{name}: expected finite bounds with low < high, got {given!r}.")
    return low, high
