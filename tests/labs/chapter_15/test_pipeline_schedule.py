"""Pipeline schedules: those of the papers run, and others are refused exactly where an independent check refuses."""

import re
from itertools import permutations, product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from d2lite.labs.chapter_15 import PASS_KINDS, Pass, check_schedule, gpipe, needs, one_f_one_b, parse_passes, pass_order
from tests.labs.chapter_15.schedules import can_run, random_schedule

BY_HAND = {"GPipe": gpipe, "1F1B": one_f_one_b}
NAMES_A_PLACE = re.compile(r"\b(rank|stage) \d+")
NAMES_A_PASS = re.compile(r"-?\d+[A-Z]-?\d+")


def by_hand(schedule, k, m):
    return [schedule(stage, k, m) for stage in range(k)]


def texts(*lines):
    return [parse_passes(line) for line in lines]


def refusal(schedule, num_stages, num_microbatches):
    """Return the words with which a schedule is refused, or None."""
    try:
        check_schedule(schedule, num_stages, num_microbatches)
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize("schedule", BY_HAND.values(), ids=BY_HAND)
def test_the_schedules_of_the_papers_run(schedule):
    for k, m in product(range(1, 7), range(1, 13)):
        check_schedule(by_hand(schedule, k, m), k, m)


def test_the_order_of_1f1b():
    passes = [" ".join(map(str, mine)) for mine in by_hand(one_f_one_b, 3, 4)]
    assert passes == [
        "0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3",
        "1F0 1F1 1B0 1F2 1B1 1F3 1B2 1B3",
        "2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3",
    ]


def test_all_orders_of_two_ranks_and_two_microbatches():
    schedules = list(product(*(permutations(gpipe(stage, 2, 2)) for stage in range(2))))
    runs = [schedule for schedule in schedules if can_run(schedule, 2, 2)]
    assert [schedule for schedule in schedules if refusal(schedule, 2, 2) is None] == runs
    assert 10 < len(runs) < len(schedules) / 10


def swapped(random, passes):
    i, j = random.randrange(len(passes)), random.randrange(len(passes))
    passes[i], passes[j] = passes[j], passes[i]


def deleted(random, passes):
    passes.pop(random.randrange(len(passes)))


def doubled(random, passes):
    passes.insert(random.randrange(len(passes) + 1), random.choice(passes))


def renumbered(random, passes):
    field = random.choice(("stage", "microbatch"))
    i = random.randrange(len(passes))
    passes[i] = passes[i]._replace(**{field: getattr(passes[i], field) + random.choice((-1, 1))})


def of_another_kind(random, passes):
    i = random.randrange(len(passes))
    passes[i] = passes[i]._replace(kind=random.choice("FBIWX"))


def divided(random, passes):
    """A backward pass becomes I and W, in some order and at some place: that may be right."""
    i = random.choice([i for i, one in enumerate(passes) if one.kind in "BFIW"])
    one = passes.pop(i)
    for kind in random.sample("IW", 2) if one.kind == "B" else [one.kind]:
        passes.insert(random.randrange(i, len(passes) + 1), one._replace(kind=kind))


def moved(random, passes):
    passes.insert(random.randrange(len(passes)), passes.pop(random.randrange(len(passes))))


CHANGES = [swapped, deleted, doubled, renumbered, of_another_kind, divided, moved]


def test_a_changed_schedule_is_refused_exactly_when_it_cannot_run():
    random, counts = Random(0), {True: 0, False: 0}
    for _ in range(1500):
        k, per_rank, m = random.randint(1, 4), random.randint(1, 2), random.randint(1, 4)
        num_stages = k * per_rank
        rank_of = random.sample([*range(k)] * per_rank, num_stages)
        schedule = random_schedule(random, m, rank_of)
        assert can_run(schedule, num_stages, m) and refusal(schedule, num_stages, m) is None
        for _ in range(random.randint(1, 2)):
            change = random.choice([*CHANGES, "to another rank"])
            mine = random.choice([passes for passes in schedule if passes])
            if change == "to another rank":
                other = random.choice(schedule)
                other.insert(random.randrange(len(other) + 1), mine.pop(random.randrange(len(mine))))
            else:
                change(random, mine)
            if not any(schedule):
                break
        runs, words = can_run(schedule, num_stages, m), refusal(schedule, num_stages, m)
        counts[runs] += 1
        assert (words is None) == runs, (schedule, words)
        if words:
            assert NAMES_A_PLACE.search(words) and NAMES_A_PASS.search(words), words
    assert counts[False] > 1000 and counts[True] > 100, counts


@given(st.randoms(use_true_random=False), st.integers(1, 4), st.integers(1, 2), st.integers(1, 4))
@settings(max_examples=50)
def test_passes_come_in_an_order_that_can_run(random, k, per_rank, m):
    num_stages = k * per_rank
    schedule = random_schedule(random, m, [stage % k for stage in range(num_stages)])
    order = list(pass_order(schedule, num_stages))
    assert [[one for where, one in order if where == rank] for rank in range(k)] == schedule
    ended = set()
    for _, one in order:
        for other in needs(one, num_stages):
            assert other in ended or (other.kind == "B" and other._replace(kind="I") in ended)
        ended.add(one)


def test_what_a_pass_needs():
    def words(text, num_stages=3):
        return " ".join(map(str, needs(parse_passes(text)[0], num_stages)))

    assert [words(text) for text in ("0F5", "2F5", "1B5", "1I5", "2B5", "1W5")] == [
        "", "1F5", "1F5 2B5", "1F5 2B5", "2F5", "1I5"
    ]  # fmt: skip


@given(
    st.lists(st.builds(Pass, st.sampled_from(sorted(PASS_KINDS)), st.integers(0, 999), st.integers(0, 999))),
    st.sampled_from([" ", ", ", "\n", " , "]),
)
def test_a_list_of_passes_is_read_as_it_is_written(passes, between):
    text = between.join(map(str, passes))
    assert parse_passes(text) == parse_passes(text.lower()) == passes


def test_a_pass_without_a_stage_is_of_the_stage_that_is_given():
    assert parse_passes("F1 0B2", stage=3) == [Pass("F", 3, 1), Pass("B", 0, 2)]
    assert parse_passes("  ") == []


@pytest.mark.parametrize("word", ["F0", "0F", "0X0", "0F-1", "0F0B0", "1000F0", "0F1000", "٣F0", "²F0", "<b>"])
def test_a_word_that_is_no_pass(word):
    with pytest.raises(ValueError) as caught:
        parse_passes(f"0F0 {word}")
    assert str(caught.value) == (
        f"{word!r} is no pass. Write passes like 0F0 (stage 0, forward pass of microbatch 0); "
        "the letters are F, B, I, W."
    )


def test_a_word_that_is_no_pass_of_a_stage():
    with pytest.raises(ValueError, match=r"'F' is no pass. Write passes like F0 or B0; the letters are F, B, I, W\."):
        parse_passes("F0 F", stage=1)


TWICE = "Each microbatch goes once through each stage."
REFUSED = {
    "a kind": ([[Pass("X", 0, 0)]], "rank 0, pass 1: 0X0: there is no kind 'X', only F, B, I, W."),
    "a stage": (texts("0F0 2F0"), "rank 0, pass 2: 2F0: stage: expected a whole number from 0 to 1, got 2."),
    "a microbatch": (texts("", "1F2"), "rank 1, pass 1: 1F2: microbatch: expected a whole number from 0 to 1, got 2."),
    "two ranks": (
        texts("0F0", "1F0 0B0"),
        "rank 1, pass 2: 0B0: stage 0 belongs to rank 0, which has its weights. All of its passes go there.",
    ),
    "twice": (texts("0F0 0F1 0F0"), f"rank 0, pass 3: 0F0 comes a second time. {TWICE}"),
    "nothing": ([], "stage 0, microbatch 0: the forward pass 0F0 is in no rank's list."),
    "no backward pass": (
        texts("0F0 0F1 0B0", "1F0 1F1 1B0 1B1"),
        "stage 0, microbatch 1: the backward pass 0B1 is in no rank's list.",
    ),
    "half of one": (
        texts("0F0 0F1 0I0 0B1", "1F0 1F1 1B0 1B1"),
        "stage 0, microbatch 0: the gradient of the weights 0W0 is in no rank's list.",
    ),
    "B and a half": (
        texts("0F0 0F1 0B0 0W0 0B1", "1F0 1F1 1B0 1B1"),
        "stage 0, microbatch 0: B is I and W in one pass, and here are 0B0 and 0W0.",
    ),
    "all three": (
        texts("0F0 0F1 0B0 0I0 0W0 0B1", "1F0 1F1 1B0 1B1"),
        "stage 0, microbatch 0: B is I and W in one pass, and here are 0B0 and 0I0 and 0W0.",
    ),
    "an order on one rank": (
        texts("0F0 0F1 0B0 0B1", "1F0 1B1 1F1 1B0"),
        "rank 1, pass 2: 1B1 (the backward pass of microbatch 1 through stage 1) needs 1F1 first, which comes later on "
        "the same rank. Put it before this one, after all that it needs.",
    ),
    "an order on one rank with two stages": (
        texts("1F0 0F0 1F1 0F1 1I0 1W0 1B1 0B0 0B1"),
        "rank 0, pass 1: 1F0 (the forward pass of microbatch 0 through stage 1) needs 0F0 first, which comes later on "
        "the same rank. Put it before this one, after all that it needs.",
    ),
    "halves on one rank": (
        texts("0F0 0F1 1F0 1F1 0B0 1I0 1W0 1B1 0B1"),
        "rank 0, pass 5: 0B0 (the backward pass of microbatch 0 through stage 0) needs 1I0 first, which comes later on "
        "the same rank. Put it before this one, after all that it needs.",
    ),
    "two ranks that wait": (
        texts("0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1"),
        "No rank can go on: rank 0 waits with 0B0 for 1B0; rank 1 waits with 1F1 for 0F1. Each waits for a pass that "
        "comes after one which waits itself.",
    ),
    "two ranks that wait with halves": (
        texts("0F0 0I0 0F1 0B1 0W0", "1F0 1F1 1I0 1B1 1W0"),
        "No rank can go on: rank 0 waits with 0I0 for 1I0; rank 1 waits with 1F1 for 0F1. Each waits for a pass that "
        "comes after one which waits itself.",
    ),
}


@pytest.mark.parametrize(("schedule", "words"), REFUSED.values(), ids=REFUSED)
def test_a_schedule_that_cannot_run_is_refused_in_words(schedule, words):
    assert refusal(schedule, 2, 2) == words
    assert not can_run(schedule, 2, 2)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (([], 0, 1), ValueError, "num_stages: expected a positive whole number, got 0."),
        (([], 1, 0), ValueError, "num_microbatches: expected a positive whole number, got 0."),
        (([], 1, 2.0), TypeError, "num_microbatches: expected a positive whole number, got 2.0 (float)."),
        (
            ([[Pass("F", "0", 0)]], 1, 1),
            TypeError,
            "rank 0, pass 1: 0F0: stage: expected a whole number from 0 to 0, got '0' (str).",
        ),
    ],
)
def test_wrong_numbers(arguments, error, words):
    with pytest.raises(error) as caught:
        check_schedule(*arguments)
    assert str(caught.value) == words


def test_ranks_that_wait_for_each_other_are_found_while_they_run():
    schedule, ran = texts("0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1"), []
    with pytest.raises(ValueError, match="No rank can go on"):
        for _, one in pass_order(schedule, 2):
            ran.append(str(one))
    assert ran == ["0F0", "1F0"]
