"""Write the Colab and Binder badges, links and the line that installs the kit on Colab into every notebook of the book.

    python tools/badges.py --repo owner/name --ref v1     (make badges REPO=owner/name REF=v1)
    python tools/badges.py --remove                       (back to the sentence about the wheel)

The kit is installed from that repository: no name is looked up in a public index, where anyone could own it. Colab
opens one notebook without those around it, so that a relative link leads nowhere there: a line below the badges has
complete links to the pages that the notebook links to. README gets the badges of the index. Running it again with other
arguments replaces what it wrote.
"""

import argparse
import json
import posixpath
import re
import sys
from pathlib import Path

__all__ = ["BOOK", "badge_line", "colab_links", "install_lines", "main", "marked", "marked_readme"]

ROOT = Path(__file__).resolve().parent.parent
BOOK = ROOT / "book"
_CONDITION = '    if importlib.util.find_spec("d2lite") is None:\n'
_AFTER = "    from google.colab import output\n"
_LINKS = "Colab does not follow links to other files of the book. On Colab, use these:"
_BADGES = re.compile(rf"\n\n\[!\[Open in Colab\][^\n]*(\n\n{re.escape(_LINKS)}[^\n]*)?")
_RELATIVE = re.compile(r"(?<!!)\[[^\]]*\]\(([^):#\s]+\.(?:ipynb|md))(?:#[^)\s]*)?\)")
_KINDS = {"": "chapter", "solutions": "answers", "appendix": "appendix"}
_PAGES = {"index.ipynb": "contents", "glossary.md": "glossary", "messages.md": "error messages"}
_REPO, _REF = re.compile(r"[A-Za-z0-9-]+/[A-Za-z0-9._-]+"), re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")


def install_lines(repo="", ref="", version=None):
    """Return the lines that run on Colab where the kit is missing; without a repository they say what to do."""
    if repo:
        return f'        %pip install -q "d2lite[book] @ git+https://github.com/{repo}@{ref}"\n'
    version = version or re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.M)[1]
    return (
        f'        wheel = "d2lite-{version}-py3-none-any.whl"\n'
        '        words = f"Upload {wheel} to the files on the left, and run "\n'
        "        raise ImportError(words + f\"%pip install './{wheel}[book]' first.\")\n"
    )


def badge_line(repo, ref, path):
    """Return the badges of the notebook `path`, given as in book/01-ways-to-split.ipynb."""
    colab = _on_colab(repo, ref, path)
    binder = f"https://mybinder.org/v2/gh/{repo}/{ref}?urlpath=lab/tree/{path}"
    return (
        f"[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]({colab}) "
        f"[![Open in Binder](https://mybinder.org/badge_logo.svg)]({binder})"
    )


def _on_colab(repo, ref, path):
    return f"https://colab.research.google.com/github/{repo}/blob/{ref}/{path}"


def colab_links(notebook, repo, ref, path):
    """Return a line with complete links to the pages of the book that the words of a notebook link to, or ""."""
    words = "\n".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "markdown")
    targets = dict.fromkeys(posixpath.normpath(f"{posixpath.dirname(path)}/{to}") for to in _RELATIVE.findall(words))
    links = []
    for target in targets:
        is_page = target.endswith(".ipynb")  # Colab opens notebooks only
        address = _on_colab(repo, ref, target) if is_page else f"https://github.com/{repo}/blob/{ref}/{target}"
        links.append(f"[{_name(target)}]({address})")
    return f"{_LINKS} {' · '.join(links)}" if links else ""


def _name(target):
    """Return what a page of the book is called in a line of links: "chapter 2", "answers 2", "glossary"."""
    folder, name = posixpath.split(posixpath.relpath(target, "book"))
    number = re.match(r"\d+", name)
    return f"{_KINDS.get(folder, folder)} {int(number[0])}" if number else _PAGES.get(name, posixpath.splitext(name)[0])


def marked_readme(text, repo="", ref=""):
    """Return README's text with the badges of the index below its title; without a repository without badges."""
    title, rest = _BADGES.sub("", text).split("\n", 1)
    return f"{title}\n\n{badge_line(repo, ref, 'book/index.ipynb')}\n{rest}" if repo else f"{title}\n{rest}"


def marked(notebook, path, repo="", ref=""):
    """Return a notebook, parsed from its JSON, with badges and install lines; without a repository with neither.

    Raises ValueError for a notebook that has no cell for Colab, or does not begin with words.
    """
    first = notebook["cells"][0]
    if first["cell_type"] != "markdown":
        raise ValueError(f"{path}: expected words in the first cell, got {first['cell_type']}.")
    words = _BADGES.sub("", "".join(first["source"]))
    _put(first, words)
    if repo:
        added = [badge_line(repo, ref, path), colab_links(notebook, repo, ref, path)]
        _put(first, "\n\n".join(filter(None, [words, *added])))
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code" and _CONDITION in source and _AFTER in source:
            before, rest = source.split(_CONDITION)
            after = rest[rest.index(_AFTER) :]
            _put(cell, before + _CONDITION + install_lines(repo, ref) + after)
            return notebook
    raise ValueError(f"{path}: expected a cell that looks for google.colab and d2lite, got none.")


def _put(cell, text):
    """Write a cell's source in the form that it had: one text, or a list of lines."""
    cell["source"] = text if isinstance(cell["source"], str) else text.splitlines(keepends=True)


def main(arguments=None, book=BOOK):
    """Change every notebook below `book` and the README above it, all or none of them."""
    parser = argparse.ArgumentParser(description="Write badges and the install line for Colab into the book.")
    parser.add_argument("--repo", default="", help="owner/name on GitHub")
    parser.add_argument("--ref", default="", help="a tag, a branch or a commit")
    parser.add_argument("--remove", action="store_true", help="remove the badges and the install line")
    given = parser.parse_args(arguments)
    if given.remove == bool(given.repo or given.ref):
        parser.error("expected --repo owner/name and --ref v1, or --remove alone")
    if not given.remove and not (_REPO.fullmatch(given.repo) and _REF.fullmatch(given.ref) and ".." not in given.ref):
        parser.error(f"expected --repo owner/name --ref v1, got --repo {given.repo!r} --ref {given.ref!r}")
    paths = sorted(p for p in book.rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts)
    changed = {}
    for path in paths:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        name = f"book/{path.relative_to(book).as_posix()}"
        new = json.dumps(marked(notebook, name, given.repo, given.ref), indent=1, ensure_ascii=False) + "\n"
        if new != path.read_text(encoding="utf-8"):
            changed[path] = new
    num_changed, readme = len(changed), book.parent / "README.md"
    if readme.exists():
        changed[readme] = marked_readme(readme.read_text(encoding="utf-8"), given.repo, given.ref)
    for path, text in changed.items():
        path.write_text(text, encoding="utf-8")
    print(f"{num_changed} of {len(paths)} notebooks changed.")


if __name__ == "__main__":
    sys.exit(main())
