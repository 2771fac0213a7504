"""How many times as fast as one device: the speed-up of each run, and the newest one as a large number (HTML)."""

import html
import math
from collections.abc import Collection, Sequence

from d2lite.figures.palette import stroke
from d2lite.training.run_record import Run, format_setting, short_legends

__all__ = ["speed_up_card", "speed_ups"]

_NUM_DEVICES = ("num_stages", "num_gpus")  # a control of the panel with one of these names sets the number of devices
# settings in which a run and the one-device run that it is compared with may differ
_MAY_DIFFER = (*_NUM_DEVICES, "num_epochs", "seed", "lr")


def _one_device_run(run: Run, runs: Sequence[Run]) -> Run | None:
    """Return the last of `runs` that was timed on one device with the settings of `run`, None if there is none."""
    one_device = [other for other in runs if other.settings.get("num_gpus") == 1 and other.seconds]
    return next((other for other in reversed(one_device) if _work(other) == _work(run)), None)


def _work(run: Run) -> tuple[object, ...]:
    settings = {name: format_setting(value) for name, value in run.settings.items() if name not in _MAY_DIFFER}
    return settings, run.dataset, run.num_examples


def speed_ups(runs: Sequence[Run]) -> list[float]:
    """Return the seconds per epoch of one device over those of each run; NaN without a run on one device to compare."""
    found = []
    for run in runs:
        base = _one_device_run(run, runs) if run.seconds and "num_gpus" in run.settings else None
        found.append(base.seconds_per_epoch / run.seconds_per_epoch if base else math.nan)
    return found


def speed_up_card(runs: Sequence[Run], controls: Collection[str] = _NUM_DEVICES) -> str:
    """Return the speed-up of the newest run on several devices as HTML, or what to run to get one; "" without a time.

    The number is always over one device, by the same settings; both runs are named as at the ends of their curves.
    `controls` are the names of the panel's controls: without one for the number of devices nothing is left to run.
    """
    timed = [run for run in runs if run.seconds and "num_gpus" in run.settings]
    if not timed:
        return ""
    several = [run for run in timed if run.settings["num_gpus"] != 1]
    run = (several or timed)[-1]
    base = _one_device_run(run, runs) if several else None
    names = enumerate(zip(runs, short_legends(runs), strict=True))
    named = {id(each): f"{stroke(i)} <b>{html.escape(name)}</b>" for i, (each, name) in names}
    devices = html.escape(run.devices)
    if base is None:
        control = next(name for name in _NUM_DEVICES if name in run.settings)
        words = [f"per epoch, measured: {named[id(run)]}", devices]
        if control in controls:
            words.append(f"Run with <b>{control}</b> {1 if several else 2} to compare.")
        return _card(f"{run.seconds_per_epoch:.3g} s", words, [run])
    number = f"{base.seconds_per_epoch / run.seconds_per_epoch:.2f}×"
    times = [f"{named[id(each)]}: {each.seconds_per_epoch:.3g} s per epoch" for each in (run, base)]
    return _card(number, ["as fast as one device:", *times, f"measured, {devices}"], [run, base])


def _card(number: str, words: Sequence[str], measured: Sequence[Run]) -> str:
    lines = "".join(f"<div>{line}</div>" for line in words)
    problem = next((text for run in measured if (text := run.disturbance)), "")
    problem = f'<div class="d2lite-disturbed">{html.escape(problem)}</div>' if problem else ""
    return f'<div class="d2lite-speed"><div class="d2lite-number">{number}</div>{lines}{problem}</div>'
