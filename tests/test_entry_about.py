"""Errors and the entries of book/messages.md: a failure names the entry that is about it."""

import os

import pytest

from d2lite import Workers, WorkersError, messages
from d2lite.messages import entry_about


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("RuntimeError: Expected to have finished reduction in the prior iteration before", "finished reduction"),
        ("PicklingError: Can't pickle local object 'main.<locals>.step'", "Can't pickle local object"),
        ("... CANNOT RE-INITIALIZE CUDA in forked subprocess. To use", "Cannot re-initialize CUDA"),
        ("AttributeError: Can't get attribute 'step' on <module '__main__' (built-in)>", "on <module '__main__'"),
    ],
)
def test_an_entry_is_named_by_its_longest_text(message, text):
    assert text in entry_about(message) and entry_about(message).startswith("book/messages.md has an entry about `")


@pytest.mark.parametrize("message", ["KeyError: 'loss'", "", "exitcode: 1", "ValueError: expected 3 rows, got 2."])
def test_an_error_of_another_kind_has_no_entry(message):
    assert entry_about(message) == ""


def test_each_text_of_the_page_is_found_by_itself():
    texts = [text for text, _ in messages._texts()]
    assert len(texts) > 300 and all(entry_about(text) for text in texts)


def test_without_the_book_nothing_is_said(monkeypatch):
    def nowhere(part):
        raise FileNotFoundError(part)

    monkeypatch.setattr(messages, "find_in_book", nowhere)
    assert messages._texts.__wrapped__() == []


@pytest.mark.skipif(os.name == "nt", reason="ranks need Linux or macOS")
def test_a_failure_of_ranks_names_the_entry():
    def refuse():
        raise RuntimeError("element 0 of tensors does not require grad and does not have a grad_fn")

    with Workers(1) as workers, pytest.raises(WorkersError, match="book/messages.md has an entry about `.*grad_fn"):
        workers.run(refuse)
