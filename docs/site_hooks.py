"""Adds pages to the site: the notebook, and Markdown files outside of docs/, because pages in docs/ link to
them. Also keeps each flag on one line."""

import os
import re

from mkdocs.structure import files
import nbformat

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGES = ["CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "tf1/README.md"]
NOTEBOOK = "tutorials/notebook.ipynb"
# On the website, the pages in `PAGES` are in this folder, and the pages from docs/ are at the root. In the
# repository, they are in other places. So links between these two groups of pages must be rewritten.
FOLDER = "files"


def on_files(found, config):
    """Adds the pages in `PAGES` and the page of the notebook to the site. mkdocs calls this function after it
    has collected the files of docs/."""
    for path in PAGES:
        with open(os.path.join(ROOT, path), encoding="utf-8") as reader:
            found.append(files.File.generated(config, f"{FOLDER}/{path}", content=reader.read()))
    found.append(files.File.generated(config, NOTEBOOK.replace(".ipynb", ".md"), content=notebook_page()))
    return found


def notebook_page():
    """Returns the cells of the notebook and their outputs as Markdown."""
    parts = []
    for cell in nbformat.read(os.path.join(ROOT, "docs", NOTEBOOK), as_version=4).cells:
        parts.append(cell.source if cell.cell_type == "markdown" else f"```python\n{cell.source}\n```")
        parts += [_output(output.data) for output in cell.get("outputs", ())]
    name = os.path.basename(NOTEBOOK)
    parts.insert(1, f'<a href="../{name}" download>Download {name}</a>')
    return "\n\n".join(parts)


def _output(data):
    """Returns an output of a cell, a picture or a text, as Markdown."""
    if "image/png" in data:
        return f'<img src="data:image/png;base64,{data["image/png"].strip()}" alt="The plot of this cell">'
    return f"```text\n{data['text/plain']}\n```"


def on_page_markdown(markdown, page, config, files):
    """Returns the text of a page with rewritten links.

    In the site, the paths of `PAGES` and of the pages from docs/ differ from their paths in the repository.
    A link to such a page gets the path that the page has in the site. So does a link to the notebook.
    """
    uri = page.file.src_uri
    if uri.startswith(("development/", "reference/python", FOLDER)):
        page.meta["search"] = {"boost": 0.1}  # The search lists the pages for users first.
    path = uri.removeprefix(f"{FOLDER}/") if uri.startswith(f"{FOLDER}/") else f"docs/{uri}"

    def site_link(match):
        text, link, anchor = match[1], *match[2].partition("#")[::2]
        if not link or ":" in link:
            return match[0]
        target = os.path.normpath(os.path.join(os.path.dirname(path), link))
        if target not in PAGES and not target.startswith("docs/"):
            return text  # The link is left out: its target, for example source code, is not in the site.
        target = f"{FOLDER}/{target}" if target in PAGES else target.removeprefix("docs/")
        target = target.replace(".ipynb", ".md")
        return f"[{text}]({os.path.relpath(target, os.path.dirname(uri))}{'#' * bool(anchor)}{anchor})"

    return re.sub(r"\[([^\]]*)\]\(([^)\s]+)\)", site_link, markdown)


# A part of a page that stays unchanged, or a word with a hyphen. A longer word does not fit on a phone.
TAG_OR_WORD = re.compile(r"<(head|pre|script)\b.*?</\1>|<[^>]*>"
                         r"|(?<![^\s>])(?=[^\s<]*-)[^\s<]{1,36}(?![^\s<])", re.DOTALL)


def on_post_page(output, page, config):
    """Returns the HTML of a page, in which no word with a hyphen is divided. Browsers would break the line
    after a hyphen of a flag, for example of "--seed"."""
    def whole_word(match):
        return match[0] if match[0].startswith("<") else f'<span class="word">{match[0]}</span>'

    return TAG_OR_WORD.sub(whole_word, output)
