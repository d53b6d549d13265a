"""Adds Markdown files outside of docs/, such as CHANGELOG.md, to the site, because pages in docs/ link to
them."""

import os
import re

from mkdocs.structure import files

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGES = ["CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "tf1/README.md"]
# On the website, the pages in `PAGES` are in this folder, and the pages from docs/ are at the root. In the
# repository, they are in other places. So links between these two groups of pages must be rewritten.
FOLDER = "files"


def on_files(found, config):
    """Adds the pages in `PAGES` to the site. mkdocs calls this function after it has collected the files of
    docs/."""
    for path in PAGES:
        with open(os.path.join(ROOT, path), encoding="utf-8") as reader:
            found.append(files.File.generated(config, f"{FOLDER}/{path}", content=reader.read()))
    return found


def on_page_markdown(markdown, page, config, files):
    """Returns the text of a page with rewritten links.

    In the site, the paths of `PAGES` and of the pages from docs/ differ from their paths in the repository.
    A link to such a page gets the path that the page has in the site.
    """
    uri = page.file.src_uri
    path = uri.removeprefix(f"{FOLDER}/") if uri.startswith(f"{FOLDER}/") else f"docs/{uri}"

    def site_link(match):
        text, link, anchor = match[1], *match[2].partition("#")[::2]
        if not link or ":" in link:
            return match[0]
        target = os.path.normpath(os.path.join(os.path.dirname(path), link))
        if target not in PAGES and not target.startswith("docs/"):
            return text  # The link is left out: its target, for example source code, is not in the site.
        target = f"{FOLDER}/{target}" if target in PAGES else target.removeprefix("docs/")
        return f"[{text}]({os.path.relpath(target, os.path.dirname(uri))}{'#' * bool(anchor)}{anchor})"

    return re.sub(r"\[([^\]]*)\]\(([^)\s]+)\)", site_link, markdown)
