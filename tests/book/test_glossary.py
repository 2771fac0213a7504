"""The glossary: sorted, each term once, in one sentence, explained where it says; no bold term is left out."""

import json
import re
from pathlib import Path

import pytest

BOOK = Path(__file__).parents[2] / "book"
PAGE = BOOK / "glossary.md"
CHAPTERS = sorted(BOOK.glob("[0-9]*.ipynb"))
# bold for emphasis; a new bold word is either a term, and in the glossary, or here
EMPHASIS = {
    "a different function", "all", "as it is at that moment", "averages", "break it", "count", "fix", "mean",
    "nothing is sent", "predicted", "sum", "sum of squares", "summed", "sums", "the fix", "twice",
}  # fmt: skip
# terms that begin a sentence or a list where they are explained
CAPITAL = {
    "Activations", "Bandwidth", "Gradients", "Parameter server", "Parameters", "Strong", "Weak",
}  # fmt: skip


def markdown(path):
    return "\n".join(
        "".join(c["source"]) for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "markdown"
    )


def rows():
    """[term, sentence, link, elsewhere] of each row."""
    found = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.read_text().splitlines() if "|" in line
    ]
    return [[row[0].strip("*`"), *row[1:]] for row in found if row[0].startswith("**")]


ROWS = rows()
TERMS = {row[0].lower() for row in ROWS}


def test_the_terms_are_sorted_and_each_is_there_once():
    terms = [row[0].lower() for row in ROWS]
    assert len(terms) >= 50 and terms == sorted(set(terms))
    assert PAGE.read_text().count("\n| ") == len(ROWS) + 1  # the head of the table


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_term_has_one_sentence_a_place_and_the_words_of_others(row):
    term, sentence, place, elsewhere = row
    assert sentence.endswith(".") and sentence.count(". ") == 0 and 3 <= len(sentence.split()) <= 25
    link = re.fullmatch(r"\[(?:appendix to )?chapter (\d+)\]\(([^)]+)\)", place)
    assert link and (BOOK / link[2]).is_file() and Path(link[2]).name.startswith(f"{int(link[1]):02}-")
    text = re.sub(r"[*_`]", "", markdown(BOOK / link[2])).lower()
    words = term.replace("_", "").lower().replace("weak scaling", "weak").replace("strong scaling", "strong")
    assert words in text, f"{link[2]} does not have the term {term}"
    assert elsewhere


def test_the_words_of_each_of_the_others_are_there():
    elsewhere = " ".join(row[3] for row in ROWS)
    for other in ("TensorFlow:", "JAX:", "MPI:", "NCCL:", "DeepSpeed:"):
        assert elsewhere.count(other) >= 5, other
    assert elsewhere.count("MPI_") >= 8 and elsewhere.count("`nccl") >= 4 and elsewhere.count("`lax.") >= 3


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda p: p.stem)
def test_the_bold_terms_of_a_chapter_are_in_the_glossary(path):
    bold = {re.sub(r"[$`].*?[$`]", "", text).strip() for text in re.findall(r"\*\*([^*\n]+)\*\*", markdown(path))}
    for text in bold:
        is_term = text[:1].islower() and len(text.split()) <= 3 or text in CAPITAL
        if is_term and text not in EMPHASIS:
            names = {text.lower(), text.lower().removesuffix("s"), f"{text.lower()} scaling"}
            assert names & TERMS, f"{text!r} is bold in {path.name}: put it into glossary.md, or into EMPHASIS here"


def test_what_is_called_emphasis_is_no_term():
    assert not EMPHASIS & TERMS


def test_links_lead_somewhere():
    links = re.findall(r"\]\(([^)]+)\)", PAGE.read_text())
    assert {"index.ipynb", "messages.md"} <= set(links)
    for link in links:
        assert link.startswith("https://") or (BOOK / link).is_file(), link
