"""Writes HTML pages for a browser. A page is one file without scripts, and it loads no other file.

All texts that come from data are escaped. A page has at most `MAX_BYTES`: long texts are truncated, and if
there are too many examples, only some of them are shown. In both cases, a note on the page tells the reader.
"""

import html
import re

from bertlib.system import files

MAX_BYTES = 5_000_000
# Largest total size of the examples of a page, in bytes. The rest of the page has less than 1,500,000 bytes.
_EXAMPLE_BYTES = 3_500_000
TEXT_CHARACTERS = 2000  # a longer text of an example is truncated
MAX_NAME = 120  # characters of a name, such as the name of a label; a longer name is truncated
MAX_TABLE_ROWS = 200

# Matches control characters and halves of surrogate pairs. An HTML file must not contain these characters.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
# Charts are drawn in black on white. The rules for "svg" replace these colors by the colors of the page.
_STYLE = """
:root { color-scheme: light dark; --line: #8885; --right: #2e9e5b; --partly: #d99a00; --wrong: #d0463b;
        --predicted: #ffd54f; }
body { font: 16px/1.6 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 0 0 .4rem; overflow-wrap: anywhere; }
p { margin: .4rem 0; overflow-wrap: anywhere; } .text { white-space: pre-wrap; unicode-bidi: plaintext; }
.note { opacity: .75; font-size: .9rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
td, th { text-align: left; padding: .15rem .9rem .15rem 0; border-bottom: 1px solid var(--line);
         vertical-align: top; overflow-wrap: anywhere; max-width: 36rem; min-width: 5rem; }
thead th { vertical-align: bottom; overflow-wrap: normal; }
tbody th { font-weight: normal; min-width: 7rem; }
.number { text-align: right; min-width: 3rem; } td.number { white-space: nowrap; }
.matrix td { text-align: right; padding: .15rem .5rem; min-width: 2.5rem; border: 1px solid var(--line); }
.matrix th { padding: .15rem .5rem; min-width: 0; max-width: 14rem; overflow: hidden;
             text-overflow: ellipsis; white-space: nowrap; overflow-wrap: normal; }
.matrix thead th { max-height: 14rem; }
.matrix .long { writing-mode: vertical-rl; text-align: end; vertical-align: middle; }
.matrix tr > th:first-child { position: sticky; left: 0; background: Canvas; }
.dense { font-size: .85rem; } .dense td { padding: .1rem .25rem; min-width: 1.2rem; }
.share { width: 18rem; height: 1rem; margin-top: .3rem;
         background: linear-gradient(to right, #4878a8 calc(var(--share) * 100%), #8882 0); }
data, .unbroken { white-space: nowrap; }
.text + .text { border-top: 1px dashed var(--line); padding-top: .4rem; }
.hit { background: rgb(46 158 91 / var(--share)); } .miss { background: rgb(208 70 59 / var(--share)); }
article { border: 1px solid var(--line); border-left: .4rem solid var(--line); border-radius: .3rem;
          padding: .8rem 1rem; margin: 1rem 0; content-visibility: auto; contain-intrinsic-size: auto 9rem; }
.right { --color: var(--right); } .partly { --color: var(--partly); } .wrong { --color: var(--wrong); }
article.right, article.partly, article.wrong { border-left-color: var(--color); }
mark { background: none; color: inherit; }
.predicted { background: var(--predicted); color: #000; border-radius: .15rem; }
.gold { border-bottom: .18rem solid var(--right); }
.found { background: rgb(46 158 91 / .35); } .false { background: rgb(208 70 59 / .35); }
.missed { border-bottom: .18rem dashed var(--wrong); }
.type { padding: 0 .2rem; font-weight: bold; }
.bar { display: flex; height: 1.2rem; margin: 1rem 0; border-radius: .3rem; overflow: hidden; }
.bar span { background: var(--color); }
summary { cursor: pointer; }
@media (max-width: 40rem) { body { margin: 1rem auto; } table { font-size: .85rem; }
  td, th { padding-right: .5rem; } tbody th { min-width: 5.5rem; }
  .matrix tr > th:first-child { max-width: 7rem; } .share { width: 4rem; } }
svg { max-width: 100%; min-width: 38rem; height: auto; }
svg rect[fill="white"] { fill: none; } svg text[fill="black"] { fill: currentColor; }
svg path[stroke="#ddd"] { stroke: var(--line); }
"""


class Html(str):
    """A str that contains HTML. `escape` returns it unchanged. All other texts are escaped."""


def escape(text):
    """Returns the `Html` of a text. A text that is already `Html` is returned unchanged. Control characters
    become visible symbols. Half of a surrogate pair becomes the replacement character U+FFFD."""
    if isinstance(text, Html):
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
    shown = text[:TEXT_CHARACTERS]
    rest = "" if len(text) == len(shown) else truncation_note(len(shown), len(text))
    return Html(f'<p class="text" dir="auto">{escape(shown)}{rest}</p>\n')


def truncation_note(shown, total):
    """Returns the `Html` of a note that a text is not complete.

    Args:
      shown: number of characters of the text that are shown.
      total: number of all characters of the text.
    """
    return Html(f'… <span class="note">[{shown:,} of {total:,} characters]</span>')


def number(value, digits=4):
    """Returns the `Html` of a number, rounded for the reader. The HTML element `data` contains the exact
    number in its attribute `value`."""
    if isinstance(value, int):
        shown = f"{value:,}"
    else:
        is_readable = value == 0 or 1e-3 <= abs(value) < 1e6
        shown = f"{value:.{digits}f}" if is_readable else f"{value:.{digits}g}"
    return Html(f'<data value="{value!r}">{shown}</data>')


def percent(share):
    """Returns the `Html` of a share as a percentage; see `number`."""
    return Html(f'<data value="{share!r}">{100 * share:.1f} %</data>')


def table(header, rows):
    """Returns the `Html` of a table. It shows at most the first `MAX_TABLE_ROWS` rows.

    Args:
      header: list of str, the names of the columns; None for a table without names of columns.
      rows: list of lists. The first cell is the name of the row. Numbers are written by `number`.
    """
    header = header or []
    head = "".join(f"<th{_css(cell)}>{escape(title)}</th>"
                   for title, cell in zip(header, rows[0] if rows else header))
    body = "".join(f"<tr>{_row(row)}</tr>\n" for row in rows[:MAX_TABLE_ROWS])
    note = ""
    if len(rows) > MAX_TABLE_ROWS:
        note = paragraph(f"The table shows {MAX_TABLE_ROWS} of {len(rows):,} rows.")
    thead = f"<thead><tr>{head}</tr></thead>\n" if header else ""
    return Html(f'<div class="scroll"><table>{thead}<tbody>\n{body}</tbody></table></div>\n{note}')


def _css(cell):
    is_number = isinstance(cell, (int, float)) or isinstance(cell, Html) and cell.startswith("<data")
    return ' class="number"' if is_number else ""


def _row(row):
    cells = [f"<th>{escape(row[0])}</th>"]
    for cell in row[1:]:
        content = number(cell) if isinstance(cell, (int, float)) else escape(cell)
        cells.append(f"<td{_css(cell)}>{content}</td>")
    return "".join(cells)


def bar(share):
    """Returns the `Html` of a bar in a cell of a table. `share` is the length of the bar, from 0 to 1."""
    return Html(f'<div class="share" style="--share: {share:.4f}"></div>')


def chart(svg):
    """Returns the `Html` of a chart. `svg` is the SVG that a function of `charts` returned."""
    return Html(f'<div class="scroll">{svg}</div>\n')


def section(heading, *parts):
    """Returns the `Html` of a section: a heading (str) and its content (parts of `Html`)."""
    return Html(f"<section>\n<h2>{escape(heading)}</h2>\n{''.join(parts)}</section>\n")


def examples(items, render, most, evenly=False):
    """Returns the `Html` of examples. If not all examples are shown, a sentence before them says so.

    Args:
      items: list of the examples.
      render: function that returns the `Html` of an example.
      most: largest number of examples that are shown. If the examples are long, fewer of them fit on the
        page.
      evenly: which examples are shown if not all are shown. True: examples that are evenly spread over the
        whole list. False: the first examples.
    """
    count = min(len(items), most)
    content = None
    while content is None:
        chosen = [items[index * len(items) // count] if evenly else items[index] for index in range(count)]
        content, size = [], 0
        for number_before, item in enumerate(chosen):
            content.append(render(item))
            size += len(content[-1].encode())
            if size > _EXAMPLE_BYTES:
                # Only the first `number_before` examples fit, so the next attempt uses a smaller `count`.
                # With `evenly`, a smaller `count` chooses different examples, and these examples may be
                # longer. So even `number_before` of them may be too many. For this reason, the next attempt
                # takes 5 % fewer than `number_before`.
                content, count = None, int(0.95 * number_before)
                break
    note = ""
    if count < len(items):
        spread = ", evenly spread over the whole list" if evenly else ""
        note = paragraph(f"Showing {count:,} of {len(items):,} examples{spread}.", "note shown")
    return Html(note + "".join(content))


def write_page(path, title, parts):
    """Writes a page atomically.

    Args:
      path: the file.
      title: str.
      parts: list of `Html`, the content below the title.
    """
    content = Html(
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        # With this policy, the browser runs no script and loads nothing, even if a text of the data became
        # HTML by mistake.
        """<meta http-equiv="Content-Security-Policy" content="default-src 'none'; """
        """style-src 'unsafe-inline'">\n"""
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style></head><body>\n"
        f"<h1>{escape(title)}</h1>\n{''.join(parts)}</body></html>\n")
    files.write_text(path, content)
