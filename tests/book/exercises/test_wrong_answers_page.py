"""The page of tools/wrong_answers.py lists the hints of all exercises."""

import re
from collections import Counter

from tools import wrong_answers


def test_every_chapter_has_exercises_with_five_hints_or_more():
    for chapter in range(1, 18):
        count = Counter(name for name, _, _ in wrong_answers.rows(chapter))
        assert len(count) >= 2 and min(count.values()) >= 5, (chapter, count)


def test_the_page_has_each_chapter_with_its_hints():
    page = wrong_answers.page()
    for chapter in range(1, 18):
        title, file = wrong_answers.title_and_file(chapter)
        (_, section) = page.split(f"## [{title}](../book/{file})\n")
        hints = [line for line in section.split("\n## ")[0].splitlines() if line.startswith(f"| {chapter}.")]
        assert len(hints) == len(wrong_answers.rows(chapter))
        assert all(len(re.split(r"(?<!\\)\|", line)) == 5 for line in hints)
