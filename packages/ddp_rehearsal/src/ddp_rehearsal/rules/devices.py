"""Rules of devices: which GPU each rank uses."""

from ddp_rehearsal.finding import Finding
from ddp_rehearsal.observations import Joined, Observed, Update, Wrapped
from ddp_rehearsal.rules.script_text import takes_rank_for_gpu
from ddp_rehearsal.rules.side_by_side import ranks_words

__all__ = ["group_of_one", "one_gpu", "rank_as_gpu", "train_on_cpu"]


def group_of_one(observed: Observed) -> list[Finding]:
    """Find ranks that each have joined a group of their own; sure if their networks are in DistributedDataParallel."""
    joined = [one.of(Joined)[0] for one in observed if one.of(Joined)]
    if len(observed) < 2 or len(joined) < len(observed) or any(of.size != 1 for of in joined):
        return []
    words = f"each of the {len(observed)} processes joins a group of one: they train {len(observed)} networks."
    repair = "Call init_process_group() without world_size and rank: it takes those of torchrun."
    is_sure = all(one.of(Wrapped) for one in observed)
    return [Finding("copies", words, repair, ranks=tuple(range(len(observed))), place=joined[0].place, is_sure=is_sure)]


def one_gpu(observed: Observed) -> list[Finding]:
    """Find ranks whose parameters are on the same GPU; with gloo alone several processes may share one on purpose."""
    on: dict[tuple[str, str], list[int]] = {}
    for one in observed:
        for update in one.of(Update)[:1]:
            for device in update.devices:
                if device.startswith("cuda"):
                    on.setdefault((update.visible, device), []).append(one.rank)
    for (_, device), ranks in on.items():
        if len(ranks) > 1:
            first = observed[ranks[0]]
            place = next((one.place for one in [*first.of(Wrapped), *first.of(Update)]), None)
            words = f"{ranks_words(ranks)} all have their parameters on {device}."
            is_sure = any(joined.backend != "gloo" for joined in first.of(Joined)) or not first.of(Joined)
            repair = (
                'local_rank = int(os.environ["LOCAL_RANK"]), then torch.cuda.set_device(local_rank) and '
                ".to(local_rank) for the network and each minibatch."
            )
            return [Finding("devices", words, repair, ranks=tuple(ranks), step=1, place=place, is_sure=is_sure)]
    return []


def train_on_cpu(observed: Observed) -> list[Finding]:
    """Note a training on the CPU."""
    updates = [u for one in observed for u in one.of(Update)]
    if not updates or any(u.devices != ("cpu",) for u in updates):
        return []
    words, repair = "the network is on the CPU on all ranks.", "Move it, and each minibatch, to cuda:LOCAL_RANK."
    return [Finding("devices", words, repair, step=1, place=updates[0].place, is_sure=False)]


def rank_as_gpu(observed: Observed) -> list[Finding]:
    """Note a script that takes the rank for the number of its GPU, which is right on one machine alone."""
    one = observed[-1]
    first = next(iter(one.of(Update)), None)
    if first is None or one.rank < 1 or first.devices != (f"cuda:{one.rank}",):
        return []
    line = takes_rank_for_gpu(first.place)
    if not line:
        return []
    file, _, function = first.place  # type: ignore[misc]
    words = "the rank is the number of the GPU: on a second machine there is no GPU with this number."
    repair = 'Take int(os.environ["LOCAL_RANK"]) for the GPU: torchrun sets it.'
    return [Finding("devices", words, repair, step=1, place=(file, line, function), is_sure=False)]
