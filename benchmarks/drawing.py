"""Draws bar charts as SVG, for benchmarks/render.py."""

import xml.sax.saxutils

PUBLISHED = "published code"
COLORS = {"this project": "#4878a8", "Hugging Face": "#c05a28", PUBLISHED: "#8a8a8a"}
# In pixels: the width of a panel, the width of its longest bar, the height of a bar and its gap, the height
# of a title, and the margin.
_PANEL, _LONGEST, _BAR, _TITLE, _MARGIN = 440, 250, 19, 22, 20


def _text(x, y, content, weight="normal"):
    return (f'<text x="{x}" y="{y}" font-weight="{weight}">{xml.sax.saxutils.escape(content)}</text>')


def _panel(x, y, title, groups):
    """Returns (list of the SVG elements of a panel, y coordinate of the lower end of the panel). All bars of
    a group have the same scale."""
    parts = [_text(x, y + 14, title, "bold")]
    y += _TITLE + 6
    for name, bars in groups:
        parts.append(_text(x, y + 13, name))
        y += _TITLE - 2
        largest = max(value for _, value, _ in bars)
        for series, value, label in bars:
            length = round(_LONGEST * value / largest, 1)
            parts += [f'<rect x="{x}" y="{y}" width="{length}" height="{_BAR - 4}" fill="{COLORS[series]}"/>',
                      _text(round(x + length + 6, 1), y + 12, label)]
            y += _BAR
        y += 8
    return parts, y


def bar_panels(panels):
    """Returns panels of horizontal bars as SVG.

    The first panel is on the left; the others, if any, form a column on the right.

    Args:
      panels: list of (title, groups). A group is (name, list of (series, value, label)). A series is a key of
        `COLORS`.
    """
    parts, x = [], _MARGIN
    for series, color in COLORS.items():
        parts += [f'<rect x="{x}" y="{_MARGIN}" width="14" height="14" fill="{color}"/>',
                  _text(x + 20, _MARGIN + 12, series)]
        x += 140
    top = bottom = _MARGIN + 34
    first, *others = panels
    added, left = _panel(_MARGIN, top, *first)
    parts += added
    for panel in others:
        added, bottom = _panel(_MARGIN + _PANEL, bottom, *panel)
        parts += added
    width = (1 + bool(others)) * _PANEL + 2 * _MARGIN
    height = max(left, bottom) + _MARGIN // 2
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>", ""])
