"""Observations survive their file, and a line that was not finished is left out."""

from ddp_rehearsal.observations import (
    Clipped,
    Ended,
    Raised,
    RankObservations,
    Sampled,
    Update,
    as_line,
    read_observations,
)

HERE = ("train.py", 7, "main")
EVENTS = [
    Update(1, HERE, 0, "SGD", (0.1,), {"w": ("ab", "0000"), "b": None}, {"w": ("cd", "")}, group=(0, 1)),
    Clipped(1, None, {"w": "ab"}, 2.0, 1.0),
    Sampled(1, HERE, 0, {"w": (5.0, 4.0, 3.0, 4.0)}, {"w": None}, {"w": ()}, {"w": "float32"}, halves=True),
    Raised(2, HERE, {"type": "ValueError", "message": "no\nnumber", "frames": (HERE,)}),
    Ended(2, None, "returned"),
]


def test_events_are_read_as_they_were_written(tmp_path):
    (tmp_path / "rank-1.jsonl").write_text("".join(as_line(event) + "\n" for event in EVENTS) + '{"event": "Upd')
    first, second = read_observations(tmp_path, 2)
    assert first == RankObservations(0, [])
    assert second == RankObservations(1, EVENTS)
    assert second.num_updates == 1 and second.of(Ended) == EVENTS[4:]


def test_what_follows_a_line_that_a_full_disk_has_cut_is_left_out(tmp_path):
    lines = [as_line(event) + "\n" for event in EVENTS]
    (tmp_path / "rank-0.jsonl").write_text("".join([*lines[:2], lines[2][:20], *lines[3:]]))
    assert read_observations(tmp_path, 1) == [RankObservations(0, EVENTS[:2])]
