"""Writes HTML pages for a browser. A page is one file without scripts, and it loads no other file.

The folder `templates` contains the templates of pages.

All texts that come from data are escaped. A page has at most `MAX_BYTES`: long texts are truncated, and if
there are too many examples, only some of them are shown. In both cases, a note on the page tells the reader.
"""

import functools
import html
import re

from bertlib.system import files

MAX_BYTES = 5_000_000
# Largest total size of the examples of a page, in bytes. The rest of the page has less than 1,500,000 bytes.
_EXAMPLE_BYTES = 3_500_000
_OPEN_EXAMPLES = 50  # the reader must open the list of further examples
TEXT_CHARACTERS = 2000  # a longer text of an example is truncated
MAX_NAME = 120  # characters of a name, such as the name of a label; a longer name is truncated
MAX_TABLE_ROWS = 200

# Matches control characters and halves of surrogate pairs. An HTML file must not contain these characters.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
class Html(str):
    """A str that contains HTML. `escape` and templates leave it unchanged. All other texts are escaped."""

    def __html__(self):
        return self


@functools.cache
def _templates():
    # Imported here, because the import takes 0.1 CPU seconds.
    import jinja2

    environment = jinja2.Environment(loader=jinja2.PackageLoader("bertlib.reports"), autoescape=True,
                                     finalize=escape, undefined=jinja2.StrictUndefined, trim_blocks=True,
                                     lstrip_blocks=True)
    environment.globals.update(number=number, table=table, chart=chart)
    return environment


def render(template, values):
    """Returns the `Html` of a template.

    Args:
      template: name of a file in the folder `templates`. All templates can use `chart`, `number` and `table`.
      values: {name in the template: value}. Texts are escaped.
    """
    return Html(_templates().get_template(template).render(values))


def escape(text):
    """Returns the `Html` of a text. A text that is already `Html` is returned unchanged. Control characters
    become visible symbols. Half of a surrogate pair becomes the replacement character U+FFFD."""
    if hasattr(text, "__html__"):
        return text
    return Html(html.escape(_UNPRINTABLE.sub(_visible_character, str(text))))


def _visible_character(match):
    code = ord(match.group())
    return chr(0x2400 + code) if code < 0x20 else "\u2421" if code == 0x7f else "\ufffd"


def name(text, longest=MAX_NAME):
    """Returns the `Html` of a name, such as a label; see `shorten`. A name in a right-to-left script, such as
    Arabic, does not change the order of the texts around it."""
    return Html(f"<bdi>{shorten(str(text), longest)}</bdi>")


def shorten(text, longest=MAX_NAME):
    """Returns the `Html` of a text. The middle of a text with more than `longest` characters is left out."""
    half = longest // 2
    return escape(text if len(text) <= longest else f"{text[:half]}…{text[-half:]}")


def paragraph(text, css="note"):
    """Returns the `Html` of a paragraph."""
    return Html(f'<p class="{css}">{escape(text)}</p>\n')


def text_block(text):
    """Returns the `Html` of an example's text. The end of a long text is left out, and a note says so."""
    beginning = text[:TEXT_CHARACTERS]
    rest = "" if len(text) == len(beginning) else truncation_note(len(beginning), len(text))
    return Html(f'<p class="text" dir="auto">{escape(beginning)}{rest}</p>\n')


def truncation_note(length, total):
    """Returns the `Html` of a note that a text is not complete.

    Args:
      length: number of characters of the text that are shown.
      total: number of all characters of the text.
    """
    return Html(f'… <span class="note">[{length:,} of {total:,} characters]</span>')


def number(value, digits=4):
    """Returns the `Html` of a number, rounded for the reader. The HTML element `data` contains the exact
    number in its attribute `value`."""
    if isinstance(value, int):
        text = f"{value:,}"
    else:
        is_readable = value == 0 or 1e-3 <= abs(value) < 1e6
        text = f"{value:.{digits}f}" if is_readable else f"{value:.{digits}g}"
    return Html(f'<data value="{value!r}">{text}</data>')


def percent(share):
    """Returns the `Html` of a share as a percentage; see `number`."""
    return Html(f'<data value="{share!r}">{100 * share:.1f} %</data>')


def table(header, rows):
    """Returns the `Html` of a table. It shows at most the first `MAX_TABLE_ROWS` rows.

    Args:
      header: list of str, the names of the columns; None for a table without names of columns.
      rows: list of lists. The first cell is the name of the row. Numbers are written by `number`.
    """
    return render("table.html", {"header": header, "rows": rows, "most": MAX_TABLE_ROWS})


def bar(share):
    """Returns the `Html` of a bar in a cell of a table. `share` is the length of the bar, from 0 to 1."""
    return Html(f'<div class="share" style="--share: {share:.4f}"></div>')


def chart(svg):
    """Returns the `Html` of a chart. `svg` is the SVG that a function of `charts` returned."""
    return Html(f'<div class="scroll">{svg}</div>\n')


def section(heading, *parts):
    """Returns the `Html` of a section: a heading (str) and its content (parts of `Html`)."""
    return Html(f"<section>\n<h2>{escape(heading)}</h2>\n{''.join(parts)}</section>\n")


def examples(items, render, most):
    """Returns the `Html` of the first examples. If not all are shown, a sentence before them says so. The
    examples after the first `_OPEN_EXAMPLES` are folded.

    Args:
      items: list of the examples.
      render: function that returns the `Html` of an example.
      most: largest number of examples that are shown. If the examples are long, fewer of them fit on the
        page.
    """
    content, size = [], 0
    for item in items[:most]:
        text = render(item)
        size += len(text.encode())
        if size > _EXAMPLE_BYTES:
            break
        content.append(text)
    note = "" if len(content) == len(items) else paragraph(
        f"Showing {len(content):,} of {len(items):,} examples.", "note shown")
    further = "".join(content[_OPEN_EXAMPLES:])
    return Html(note + "".join(content[:_OPEN_EXAMPLES]) + (
        f"<details><summary>Further examples</summary>{further}</details>" if further else ""))


def mark_spans(content, spans, show, between=""):
    """Returns the `Html` of a text with marked spans, which may overlap.

    Args:
      content: a text, or a list of words.
      spans: list of (start, end, CSS class, `Html` after the span), with indices into `content`.
      show: function that returns the `Html` of a part of `content`.
      between: str, written between two parts.
    """
    bounds, parts = sorted({0, len(content), *(bound for span in spans for bound in span[:2])}), []
    for start, end in zip(bounds, bounds[1:]):
        inside = [span for span in spans if span[0] <= start and end <= span[1]]
        classes = " ".join(sorted({css for _, _, css, _ in inside}))
        after = "".join(note for _, last, _, note in inside if last == end)
        part = show(content[start:end])
        parts.append(f'<mark class="{classes}">{part}</mark>{after}' if inside else part)
    return Html(between.join(parts))


def article(css, content, data_file, place):
    """Returns the `Html` of an example.

    Args:
      css: class of the element.
      content: `Html`.
      data_file: name of the file that contains the example; None if it is unknown.
      place: the position of the example, such as "line 3".
    """
    place = f"{data_file}, {place}" if data_file else place
    return Html(f'<article class="{css}">\n{content}{paragraph(place)}</article>\n')


def write_page(path, title, parts):
    """Writes a page atomically.

    Args:
      path: the file.
      title: str.
      parts: list of `Html`, the content below the title.
    """
    files.write_text(path, render("page.html", {"title": title, "parts": parts}))
