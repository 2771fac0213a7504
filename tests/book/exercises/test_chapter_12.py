"""Answers to the exercises of chapter 12: right ones of other forms."""

from itertools import zip_longest

from tests.book.exercises.scoring import Answers, RightAnswers, WrongAnswers

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


@right("12.2")
def by_generator(counts):
    return (rank for rank, count in enumerate(counts) if count < max(counts))


@wrong("12.2", "it returns a set, and a list is asked for")
def as_set(counts):
    return set(by_loop(counts))


class TestAnswers(RightAnswers, WrongAnswers):
    answers = answers
