"""Rules of what a network does in a forward pass: its mode, BatchNorm, random numbers and attributes."""

from collections.abc import Collection, Mapping

from ddp_rehearsal.finding import Finding, of_all_ranks
from ddp_rehearsal.observations import Drawn, Evaluated, Forward, LostAttributes, Observed, Update, Wrapped
from ddp_rehearsal.rules.script_text import sets_in_forward
from notebook_ranks.shared.format import listed

__all__ = ["left_in_evaluation_mode", "lost_attributes", "same_random_numbers", "statistics_per_rank"]


def left_in_evaluation_mode(observed: Observed) -> list[Finding]:
    """Find a network that trains in evaluation mode after an evaluation; note one that does up to the end of the run.

    A network may also be in evaluation mode for some steps on purpose, such as the generator in the steps of a critic.
    """
    found: list[Finding] = []
    for one in observed:
        updated = {u.step for u in one.of(Update)}
        forwards = [f for f in one.of(Forward) if f.step in updated]
        first = next((f for f in forwards if f.training and (f.drops_out or f.batch_norms)), None)
        if first is None:
            continue
        modes: dict[int, bool] = {}
        for f in forwards:
            if f.model == first.model and f.step >= first.step:
                modes[f.step] = modes.get(f.step, False) or f.training
        trained = {f.loader for f in forwards if f.training}
        evaluations = {e.step for e in one.of(Evaluated) if e.loader not in trained}
        begin, is_sure = _begin_of_evaluation_mode(modes, evaluations)
        if begin:
            begins = next(f for f in forwards if f.step == begin and f.model == first.model)
            words = (
                f"from step {begin} on the network trains in evaluation mode: eval() was called before it, and train() "
                "was not."
            )
            repair = "Call model.train() after each evaluation."
            if not is_sure:
                repair = "Call model.train() before it trains on, unless it should be like this from here on."
            step, place = begins.step, begins.place
            found.append(
                Finding("arithmetic", words, repair, ranks=(one.rank,), step=step, place=place, is_sure=is_sure)
            )
    return of_all_ranks(found)


def _begin_of_evaluation_mode(modes: Mapping[int, bool], evaluations: Collection[int]) -> tuple[int, bool]:
    """Return (first step of a stretch of two or more in evaluation mode, whether it is sure); (0, False) for none.

    It is sure after an evaluation. The only stretch counts too, if it is still open when the run is stopped.
    """
    steps = sorted(modes)
    begins = [
        (before, begin)
        for before, begin, following in zip(steps, steps[1:], steps[2:], strict=False)
        if modes[before] and not modes[begin] and not modes[following]
    ]
    for before, begin in begins:
        if any(before <= step <= begin for step in evaluations):
            return begin, True
    is_open = len(begins) == 1 and not any(modes[step] for step in steps if step > begins[0][1])
    return (begins[0][1], False) if is_open else (0, False)


def statistics_per_rank(observed: Observed) -> list[Finding]:
    """Note BatchNorm in DistributedDataParallel, which normalises with the statistics of each rank's examples."""
    if len(observed) < 2:
        return []
    n = max((f.batch_norms for one in observed for f in one.of(Forward) if f.in_ddp and f.training), default=0)
    if not n:
        return []
    wrapped = next((w for one in observed for w in one.of(Wrapped) if w.batch_norms), None)
    layers = "One BatchNorm layer uses" if n == 1 else f"{n} BatchNorm layers use"
    words = f"{layers} the mean and variance of each rank's own examples."
    repair = "torch.nn.SyncBatchNorm.convert_sync_batchnorm(model) uses those of all ranks; it costs messages."
    return [Finding("arithmetic", words, repair, place=wrapped.place if wrapped else None, is_sure=False)]


def same_random_numbers(observed: Observed) -> list[Finding]:
    """Note ranks that draw the same random numbers in a step."""
    drawn = [one.of(Drawn) for one in observed]
    if len(observed) < 2 or not all(drawn) or len({of[0].states for of in drawn}) > 1:
        return []
    words = "all ranks draw the same random numbers in a step: their dropout, noise or augmentation is the same."
    repair = "If it should differ, set the seed to seed + rank after the network is made."
    return [Finding("arithmetic", words, repair, step=drawn[0][0].step, place=drawn[0][0].place, is_sure=False)]


def lost_attributes(observed: Observed) -> list[Finding]:
    """Find attributes that replicas of nn.DataParallel change, which has no effect."""
    for one in observed:
        lost = [of for of in one.of(LostAttributes) if not all(sets_in_forward(of.place, _last(n)) for n in of.names)]
        if lost:
            names = listed(list(lost[0].names[:3]))
            words = (
                f"the forward pass counts {names} up in replicas of nn.DataParallel, which are thrown away: it is lost."
            )
            repair = "Count outside of the forward pass, keep it in a buffer, or use DistributedDataParallel."
            return [Finding("arithmetic", words, repair, step=lost[0].step, place=lost[0].place)]
    return []


def _last(name: str) -> str:
    return name.rpartition(".")[2]
