"""Observations survive their file, and a line that was not finished is left out."""

from ddp_rehearsal.observations import (
    Clipped,
    Ended,
    Failed,
    RankObservations,
    Sampled,
    Update,
    as_line,
    read_observations,
)

HERE = ("train.py", 7, "main")
NOTED = [
    Update(
        1,
        HERE,
        optimizer=0,
        name="SGD",
        lrs=(0.1,),
        grads={"w": ("ab", "0000"), "b": None},
        weights={"w": ("cd", "")},
        group=(0, 1),
    ),
    Clipped(1, None, {"w": "ab"}, 2.0, 1.0),
    Sampled(
        1,
        HERE,
        optimizer=0,
        weights={"w": (5.0, 4.0, 3.0, 4.0)},
        grads={"w": None},
        changes={"w": ()},
        dtypes={"w": "float32"},
        halves=True,
    ),
    Failed(2, HERE, {"type": "ValueError", "message": "no\nnumber", "frames": (HERE,)}),
    Ended(2, None, "returned"),
]


def test_they_are_read_as_they_were_written(tmp_path):
    (tmp_path / "rank-1.jsonl").write_text("".join(as_line(one) + "\n" for one in NOTED) + '{"kind": "Upd')
    first, second = read_observations(tmp_path, {0: "rank-0", 1: "rank-1"})
    assert first == RankObservations(0, [])
    assert second == RankObservations(1, NOTED)
    assert second.num_updates == 1 and second.of(Ended) == NOTED[4:]


def test_what_follows_a_line_that_a_full_disk_has_cut_is_left_out(tmp_path):
    lines = [as_line(one) + "\n" for one in NOTED]
    (tmp_path / "rank-0.jsonl").write_text("".join([*lines[:2], lines[2][:20], *lines[3:]]))
    assert read_observations(tmp_path, {0: "rank-0"}) == [RankObservations(0, NOTED[:2])]
