"""Each wrong answer of chapter 12 draws its hint; right ones of any form are right."""

from itertools import zip_longest

from d2lite.exercises.chapter_12 import EXERCISES
from tests.exercises.answers import Answers, AnswerTests

answers = Answers()
right, wrong = answers.right, answers.wrong


@right("12.1")
def by_zip_longest(calls):
    for i, here in enumerate(zip_longest(*calls)):
        if any(call != here[0] for call in here):
            return i
    return None


@right("12.1")
def by_while(calls):
    i = 0
    while any(i < len(mine) for mine in calls):
        heads = [mine[i : i + 1] for mine in calls]
        if any(head != heads[0] for head in heads):
            return i
        i += 1


@wrong("12.1", "a collective that one rank has never called is not found")
def by_zip(calls):
    for i, here in enumerate(zip(*calls, strict=False)):
        if len(set(here)) > 1:
            return i
    return None


@wrong("12.1", "only ranks 0 and 1 are compared")
def first_two(calls):
    return by_zip_longest(calls[:2])


@wrong("12.1", "only names are compared")
def names(calls):
    return by_zip_longest([[name for name, _ in mine] for mine in calls])


@wrong("12.1", "only sizes are compared")
def sizes(calls):
    return by_zip_longest([[n for _, n in mine] for mine in calls])


@wrong("12.1", "it counts from 1")
def from_one(calls):
    found = by_zip_longest(calls)
    return found if found is None else found + 1


@wrong("12.1", "it is the last place where they differ")
def last(calls):
    unlike = [i for i, here in enumerate(zip_longest(*calls)) if len(set(here)) > 1]
    return max(unlike, default=None)


@wrong("12.1", "it only compares how many collectives")
def lengths(calls):
    lengths = [len(mine) for mine in calls]
    return None if min(lengths) == max(lengths) else min(lengths)


@right("12.2")
def by_loop(counts):
    found, most = [], max(counts)
    for rank in range(len(counts)):
        if counts[rank] != most:
            found.append(rank)
    return found


@right("12.2")
def by_difference(counts):
    ahead = {rank for rank, count in enumerate(counts) if count == max(counts)}
    return sorted(set(range(len(counts))) - ahead)


@wrong("12.2", "these are the ranks that wait")
def who_waits(counts):
    return [rank for rank in range(len(counts)) if counts[rank] == max(counts)]


@wrong("12.2", "it is those with the fewest calls")
def fewest(counts):
    return [rank for rank in range(len(counts)) if counts[rank] == min(counts)]


@wrong("12.2", "only those that are furthest behind")
def furthest(counts):
    return [] if len(set(counts)) == 1 else fewest(counts)


@wrong("12.2", "only the first of them is given")
def only_one(counts):
    return by_loop(counts)[:1]


@wrong("12.2", "it is one rank, and a list")
def one_number(counts):
    return min(range(len(counts)), key=counts.__getitem__)


@wrong("12.2", "compared with rank 0")
def against_rank_0(counts):
    return [rank for rank, count in enumerate(counts) if count < counts[0]]


@wrong("12.2", "compared with the mean")
def against_the_mean(counts):
    mean = sum(counts) / len(counts)
    return [rank for rank, count in enumerate(counts) if count < mean]


@wrong("12.2", "these are their counts")
def the_counts(counts):
    return [count for count in counts if count < max(counts)]


class TestAnswers(AnswerTests):
    exercises, answers = EXERCISES, answers
