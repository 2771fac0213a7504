"""Rules of files: what several ranks write or read."""

from collections import Counter
from collections.abc import Mapping, Sequence

from ddp_rehearsal.finding import Finding
from ddp_rehearsal.observations import (
    Loaded,
    NothingLoaded,
    Observed,
    Opened,
    Saved,
    Update,
)
from ddp_rehearsal.observed_files import EVENTS
from ddp_rehearsal.rules.side_by_side import ranks_words

__all__ = ["loaded_to_gpu_0", "nothing_loaded", "one_file", "one_log_folder", "read_too_early", "wrapper_in_names"]


def one_file(observed: Observed) -> list[Finding]:
    """Find a file that several ranks write, with nothing between that they do together."""
    if _are_locked(observed):
        return []
    writers: dict[str, dict[int, list[Saved | Opened]]] = {}
    mixed: dict[str, dict[int, Opened]] = {}
    for one in observed:
        for saved in one.of(Saved):
            writers.setdefault(saved.path, {}).setdefault(one.rank, []).append(saved)
        for opened in one.of(Opened):
            if opened.mode == "w":  # "x" lets one rank win
                writers.setdefault(opened.path, {}).setdefault(one.rank, []).append(opened)
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
        calls = Counter(number for writing in of.values() for number in {w.calls for w in writing})
        if len(of) > 1 and max(calls.values()) > 1:
            first = next(iter(of.values()))[0]
            words = f"{ranks_words(of)} write the same file, {path.rpartition('/')[2]}: it may hold parts of several."
            is_sure = not _is_continued(of, mixed.get(path, {}))
            repair = (
                "Let rank 0 alone save it, and let the others wait in torch.distributed.barrier(). If each rank saves "
                "a part of its own: a file for each rank."
            )
            if not is_sure:
                (rank,) = mixed[path]
                words = (
                    f"{ranks_words(of)} begin the same file anew, {path.rpartition('/')[2]}: rank {rank} continues it."
                )
                repair = f"Nothing is lost if the others write nothing. To be safe, let rank {rank} alone begin it."
            found.append(
                Finding("files", words, repair, ranks=tuple(of), step=first.step, place=first.place, is_sure=is_sure)
            )
    return sorted(found, key=lambda one: (not one.is_sure, one.step))[:1]


def _is_continued(of: Mapping[int, Sequence[Saved | Opened]], appended: Mapping[int, Opened]) -> bool:
    """Return whether ranks only begin a file, and one alone appends to it after something that they do together."""
    begun = [writing for writings in of.values() for writing in writings]
    return (
        len(appended) == 1
        and all(isinstance(writing, Opened) for writing in begun)
        and all(writing.calls < later.calls for writing in begun for later in appended.values())
    )


def _are_locked(observed: Observed) -> bool:
    """Return whether the script locks files."""
    return any(opened.mode == "lock" for one in observed for opened in one.of(Opened))


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


def wrapper_in_names(observed: Observed) -> list[Finding]:
    """Note a state dict whose names begin with "module." or "_orig_mod."."""
    saved = next((saved for one in observed for saved in one.of(Saved) if saved.prefix), None)
    if saved is None:
        return []
    wrapper, attribute = {"module.": ("DDP", "module"), "_orig_mod.": ("torch.compile", "_orig_mod")}[saved.prefix]
    words = (
        f'all names in {saved.path.rpartition("/")[2]} begin with "{saved.prefix}": a network without {wrapper} cannot '
        "load it."
    )
    repair = f"Save model.{attribute}.state_dict()."
    return [Finding("files", words, repair, step=saved.step, place=saved.place, is_sure=False)]


def one_log_folder(observed: Observed) -> list[Finding]:
    """Note logs of TensorBoard that several ranks write into one folder: it draws their curves as one."""
    of_folder: dict[str, dict[int, Opened]] = {}
    for one in observed:
        for opened in one.of(Opened):
            folder, _, name = opened.path.rpartition("/")
            if name.startswith(EVENTS) and opened.mode != "r":
                of_folder.setdefault(folder, {}).setdefault(one.rank, opened)
    for folder, of in of_folder.items():
        if len(of) > 1:
            words = (
                f"{ranks_words(of)} write TensorBoard's files into the same folder, {folder.rpartition('/')[2]}: their "
                "points are drawn as one curve."
            )
            repair = "Make the SummaryWriter on rank 0 alone, or give each rank a folder of its own."
            return [Finding("files", words, repair, ranks=tuple(of), step=1, is_sure=False)]
    return []


def read_too_early(observed: Observed) -> list[Finding]:
    """Note a file that a rank reads while another one may still write it: nothing that both have done lies between."""
    if _are_locked(observed):
        return []
    written: dict[str, dict[int, set[int]]] = {}  # path -> rank -> what it had done together with others by then
    read: dict[str, list[tuple[int, Loaded | Opened]]] = {}
    for one in observed:
        for noted in one.noted:
            if isinstance(noted, Saved) or (isinstance(noted, Opened) and noted.mode in ("w", "x")):
                written.setdefault(noted.path, {}).setdefault(one.rank, set()).add(noted.calls)
            elif isinstance(noted, Loaded) or (isinstance(noted, Opened) and noted.mode == "r"):
                read.setdefault(noted.path, []).append((one.rank, noted))
    for path, writers in written.items():
        writer, calls = next(iter(writers.items()))
        readers = {
            rank: reading
            for rank, reading in reversed(read.get(path, []))
            if len(writers) == 1 and rank != writer and reading.calls in calls and reading.calls >= 0
        }
        if readers:
            first = next(iter(readers.values()))
            words = (
                f"{ranks_words(readers)} read{'s' * (len(readers) == 1)} {path.rpartition('/')[2]}, which rank "
                f"{writer} writes, and nothing makes {'it' if len(readers) == 1 else 'them'} wait until it is written."
            )
            repair = f"Call torch.distributed.barrier() on all ranks after rank {writer} has written it."
            return [
                Finding("files", words, repair, ranks=tuple(readers), step=first.step, place=first.place, is_sure=False)
            ]
    return []


def nothing_loaded(observed: Observed) -> list[Finding]:
    """Find a checkpoint of which not one tensor was loaded, without an error because of strict=False."""
    first = next((noted for one in observed for noted in one.of(NothingLoaded)), None)
    if first is None:
        return []
    words = (
        f"load_state_dict(strict=False) has loaded nothing: none of the state's names, such as {first.name}, is in the "
        f"network, which has {first.own}."
    )
    repair = "Save and load the state of the same module: model.module.state_dict() of a DistributedDataParallel."
    ranks = tuple(one.rank for one in observed if one.of(NothingLoaded))
    return [Finding("files", words, repair, ranks=ranks, step=first.step, place=first.place)]
