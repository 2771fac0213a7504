"""Rules of files: what several ranks write or read."""

from ddp_rehearsal.finding import Finding
from ddp_rehearsal.observations import (
    Loaded,
    Observed,
    Opened,
    Saved,
    Update,
)
from ddp_rehearsal.rules.side_by_side import ranks_words

__all__ = ["loaded_to_gpu_0", "module_in_names", "one_file"]


def one_file(observed: Observed) -> list[Finding]:
    """Find a file that several ranks write."""
    writers: dict[str, dict[int, Saved | Opened]] = {}
    for one in observed:
        for saved in one.of(Saved):
            writers.setdefault(saved.path, {}).setdefault(one.rank, saved)
    mixed: dict[str, dict[int, Opened]] = {}
    for one in observed:
        for opened in one.of(Opened):
            if opened.mode == "w":  # "x" lets one rank win
                writers.setdefault(opened.path, {}).setdefault(one.rank, opened)
            elif opened.mode == "a":
                mixed.setdefault(opened.path, {}).setdefault(one.rank, opened)
    found = []
    for path, appended in mixed.items():
        if len(appended) > 1:
            opened = next(iter(appended.values()))
            words = (
                f"{ranks_words(appended)} append to the same file, {path.rpartition('/')[2]}: their lines are mixed."
            )
            repair = "Let rank 0 alone write it, or give each rank a file of its own."
            found.append(
                Finding(
                    "files", words, repair, ranks=tuple(appended), step=opened.step, place=opened.place, is_sure=False
                )
            )
    for path, of in writers.items():
        if len(of) > 1:
            first = next(iter(of.values()))
            words = f"{ranks_words(of)} write the same file, {path.rpartition('/')[2]}: it may hold parts of several."
            repair = "Let rank 0 alone save it, and let the others wait in torch.distributed.barrier()."
            found.append(Finding("files", words, repair, ranks=tuple(of), step=first.step, place=first.place))
    return sorted(found, key=lambda one: (not one.is_sure, one.step))[:1]


def loaded_to_gpu_0(observed: Observed) -> list[Finding]:
    """Find a checkpoint that ranks load to the GPU that saved it, rank 0's."""
    on_gpu = {saved.path for one in observed[:1] for saved in one.of(Saved) if saved.on_gpu}
    loads = {
        one.rank: load
        for one in observed[1:]
        for load in one.of(Loaded)
        if not load.mapped
        and (load.path in on_gpu or "cuda:0" in load.devices)
        and not any("cuda:0" in update.devices for update in one.of(Update))  # its own, the only one that it sees
    }
    if not loads:
        return []
    first = next(iter(loads.values()))
    file = first.path.rpartition("/")[2]
    words = f"{ranks_words(loads)} load{'s' * (len(loads) == 1)} {file} to the GPU of rank 0, from which it was saved."
    repair = 'torch.load(path, map_location="cpu"), or map_location=f"cuda:{local_rank}".'
    return [Finding("files", words, repair, ranks=tuple(loads), step=first.step, place=first.place)]


def module_in_names(observed: Observed) -> list[Finding]:
    """Note a state dict whose names begin with "module."."""
    saved = next((saved for one in observed for saved in one.of(Saved) if saved.module_names), None)
    if saved is None:
        return []
    words = f'all names in {saved.path.rpartition("/")[2]} begin with "module.": a network without DDP cannot load it.'
    return [
        Finding("files", words, "Save model.module.state_dict().", step=saved.step, place=saved.place, is_sure=False)
    ]  # fmt: skip
