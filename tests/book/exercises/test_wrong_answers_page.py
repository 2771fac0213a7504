"""docs/exercises.md lists the hints of all exercises."""

from collections import Counter

from tools import wrong_answers


def test_the_page_is_up_to_date():
    assert wrong_answers.PAGE.read_text(encoding="utf-8") == wrong_answers.page(), "python -m tools.wrong_answers"


def test_every_chapter_has_exercises_with_five_hints_or_more():
    for chapter in range(1, 17):
        count = Counter(name for name, _, _ in wrong_answers.rows(chapter))
        assert len(count) >= 2 and min(count.values()) >= 5, (chapter, count)
