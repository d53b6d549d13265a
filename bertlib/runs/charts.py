"""Draws charts as text and as SVG."""

import xml.sax.saxutils

_COLORS = ("#4878a8", "#c05a28", "#4a9a5a", "#8a62a8")
# Positions of the four edges of the plot inside of the picture, in pixels.
_LEFT, _TOP, _RIGHT, _BOTTOM = 70, 40, 590, 330
_BAR = 50  # length of the longest bar of a text chart, in characters


def _svg(width, height, parts):
    """Returns a picture with a white background.

    Args:
      width, height: size in pixels.
      parts: list of str, the SVG elements.
    """
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>", ""])


def _text(x, y, content, anchor="start", color="black"):
    return (f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{color}">'
            f'{xml.sax.saxutils.escape(str(content))}</text>')


def text_bar_chart(rows):
    """Returns a bar chart as text.

    Args:
      rows: list of (label, value), one for each bar.
    """
    widest = max([len(label) for label, _ in rows])
    largest = max([value for _, value in rows] + [1])
    return "\n".join(f"{label:>{widest}} {'█' * round(_BAR * value / largest)} {value}"
                     for label, value in rows)


def bar_chart(title, rows):
    """Returns a bar chart as SVG.

    Args:
      title: str.
      rows: list of (label, value, text to the right of the bar, index of the bar's color), one for each bar.
    """
    largest = max([value for _, value, _, _ in rows] + [1])
    parts = [_text(10, 24, title)]
    for index, (label, value, remark, color) in enumerate(rows):
        y, length = 40 + 24 * index, round(480 * value / largest, 1)
        parts += [_text(150, y + 13, label, "end"),
                  f'<rect x="160" y="{y}" width="{length}" height="17" fill="{_COLORS[color]}"/>',
                  _text(round(166 + length, 1), y + 13, remark)]
    return _svg(920, 50 + 24 * len(rows), parts)


def line_chart(title, series):
    """Returns a line chart over the training steps as SVG.

    Args:
      title: str.
      series: {name: [(step, value), …]} with ascending steps and values from 0 to 1. A value outside of this
        range, such as a negative correlation, is drawn at the border. A series without points is left out.
    """
    last_step = max([step for points in series.values() for step, _ in points] + [1])

    def place(step, value):
        value = min(max(value, 0), 1)
        return f"{_LEFT + (_RIGHT - _LEFT) * step / last_step:.1f},{_BOTTOM - (_BOTTOM - _TOP) * value:.1f}"

    parts = [_text(_LEFT, 24, title), _text((_LEFT + _RIGHT) // 2, _BOTTOM + 42, "training steps", "middle")]
    for fifth in range(6):
        y, x = _BOTTOM - (_BOTTOM - _TOP) * fifth // 5, _LEFT + (_RIGHT - _LEFT) * fifth // 5
        parts += [f'<path d="M{_LEFT},{y}H{_RIGHT}" stroke="#ddd"/>',
                  _text(_LEFT - 8, y + 4, f"{20 * fifth} %", "end"),
                  _text(x, _BOTTOM + 20, f"{last_step * fifth / 5:g}", "middle")]
    drawn = [(name, points) for name, points in series.items() if points]
    for (name, points), color in zip(drawn, _COLORS):
        line = " ".join(place(*point) for point in points)
        x, y = place(*points[-1]).split(",")
        parts += [f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>',
                  _text(float(x) + 8, float(y) + 4, f"{name}: {100 * points[-1][1]:.1f} %", color=color)]
    return _svg(820, 380, parts)
