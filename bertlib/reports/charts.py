"""Draws charts as SVG. Python code and the templates in bertlib/reports/templates call these functions."""

import math
import xml.sax.saxutils

_COLORS = ("#4878a8", "#c05a28", "#4a9a5a", "#8a62a8")
# Positions of the four edges of the plot area in the picture, in pixels.
_LEFT, _TOP, _RIGHT, _BOTTOM = 70, 40, 590, 330
_LINE_HEIGHT = 16  # distance between two lines of text, in pixels
_MAX_LABEL = 44  # largest number of characters in the label of a group of numbers
_MAX_POINTS = 2000  # largest number of points that a chart draws


def _svg(width, height, parts):
    """Returns a picture with a white background, as SVG (str).

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
    """Returns a line chart as SVG. The x axis shows the training steps.

    Args:
      title: str.
      series: {name: [(step, value), …]} with ascending steps and values from 0 to 1. A value outside of this
        range, such as a negative correlation, is drawn at the edge of the plot area. A series without
        points is left out.
    """
    curves = [(name, [(step, 100 * min(max(value, 0), 1)) for step, value in points], points[-1][1])
              for name, points in series.items() if points]
    x_ticks = _round_numbers(0, max((points[-1][0] for _, points, _ in curves), default=1))
    y_ticks = list(range(0, 101, 20))
    parts = _axes(f"{title}, %", "training steps", x_ticks, y_ticks)
    for index, ((name, points, last), color) in enumerate(zip(curves, _COLORS)):
        parts += [_polyline(points, x_ticks, y_ticks, color),
                  _text(_RIGHT + 8, _TOP + 4 + _LINE_HEIGHT * index, f"{name}: {100 * last:.1f} %",
                        color=color)]
    return _svg(820, 380, parts)


def _polyline(points, x_ticks, y_ticks, color):
    """Returns the SVG of a line through several points (x, y). A single point is drawn as a small circle,
    because a line through one point would not be visible."""
    places = [_place(point, x_ticks, y_ticks) for point in points]
    if len(places) == 1:
        x, y = places[0]
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{color}"/>'
    text = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return f'<polyline points="{text}" fill="none" stroke="{color}" stroke-width="2"/>'


def loss_chart(title, points):
    """Returns a chart of the training loss as SVG. The x axis shows the training steps.

    Args:
      title: str.
      points: list of (step, loss), with ascending steps and finite losses; not empty. If there are many
        points, each drawn point is the mean of several neighbouring points.
    """
    size = math.ceil(len(points) / _MAX_POINTS)
    groups = [points[start:start + size] for start in range(0, len(points), size)]
    means = [[sum(column) / len(group) for column in zip(*group)] for group in groups]
    return curve_chart(title, means, "training steps", 0)


def curve_chart(title, points, x_label, *y_values):
    """Returns a chart of a curve as SVG. The y axis begins near the smallest y, and not always at 0.

    Args:
      title: str.
      points: list of (x, y), finite numbers; not empty. x is at least 0, and ascending.
      x_label: str, the description of the x axis.
      *y_values: values that the y axis includes even if the curve does not reach them.
    """
    x_ticks = _round_numbers(0, points[-1][0])
    y_ticks = _round_numbers(*_bounds([*y_values, *(y for _, y in points)]))
    return _svg(660, 380, [*_axes(title, x_label, x_ticks, y_ticks),
                           _polyline(points, x_ticks, y_ticks, _COLORS[0])])


def strip_chart(title, rows, x_label):
    """Returns an SVG chart with one horizontal row of points for each group of numbers. A short vertical line
    in each row shows the mean of the group.

    Args:
      title: str.
      rows: list of (label, list of finite numbers), one for each group. No list is empty. The end of a long
        label is left out.
      x_label: str, the description of the x axis.
    """
    ticks = _round_numbers(*_bounds([value for _, values in rows for value in values]))
    left, right, bottom = 300, 860, 50 + 24 * len(rows)

    def place(value):
        return round(left + (right - left) * (value - ticks[0]) / (ticks[-1] - ticks[0]), 1)

    parts = [_text(10, 24, title), _text((left + right) // 2, bottom + 42, x_label, "middle")]
    for tick in ticks:
        parts += [f'<path d="M{place(tick)},40V{bottom}" stroke="#ddd"/>',
                  _text(place(tick), bottom + 20, f"{tick:.6g}", "middle")]
    for index, (label, values) in enumerate(rows):
        y = 54 + 24 * index
        mean = place(sum(values) / len(values))
        text = label if len(label) <= _MAX_LABEL else f"{label[:_MAX_LABEL - 1]}…"
        parts += [_text(left - 12, y + 5, text, "end"),
                  f'<path d="M{mean},{y - 9}V{y + 9}" stroke="{_COLORS[1]}" stroke-width="3"/>',
                  f'<g fill="{_COLORS[0]}" fill-opacity="0.6">',
                  *(f'<circle cx="{place(value)}" cy="{y}" r="4.5"/>' for value in values), "</g>"]
    return _svg(920, bottom + 54, parts)


def scatter_chart(title, points, x_label):
    """Returns (a scatter plot as SVG, number of drawn points). Both axes have the same range, and a line
    shows where both values are equal.

    Args:
      title: str, the title. It also describes the y axis.
      points: list of (x, y), finite numbers; not empty. If there are many points, only some of them are
        drawn.
      x_label: str, the description of the x axis.
    """
    ticks = _round_numbers(*_bounds([value for point in points for value in point]))
    sample = points[::math.ceil(len(points) / _MAX_POINTS)]
    circles = ('<circle cx="{:.1f}" cy="{:.1f}" r="3.5"/>'.format(*_place(point, ticks, ticks))
               for point in sample)
    return _svg(660, 380, [
        *_axes(title, x_label, ticks, ticks),
        f'<path d="M{_LEFT},{_BOTTOM}L{_RIGHT},{_TOP}" stroke="{_COLORS[1]}" stroke-dasharray="5 4"/>',
        f'<g fill="{_COLORS[0]}" fill-opacity="0.5">', *circles, "</g>"]), len(sample)


def _bounds(values):
    """Returns (lower bound, upper bound) for an axis that shows all values. If the values are almost equal,
    the axis gets a margin below and above them."""
    low, high = min(values), max(values)
    largest = max(abs(low), abs(high))
    margin = largest / 10 or 0.5 if high - low <= 1e-6 * largest else 0
    return low - margin, high + margin


def _round_numbers(low, high):
    """Returns an ascending list of up to eight round numbers with equal distances. The first number is at
    most `low`, and the last number is at least `high`."""
    high = high if high > low else low + 1
    power = 10.0 ** math.floor(math.log10((high - low) / 5))
    distance = power * next(factor for factor in (1, 2, 5, 10) if (high - low) / (power * factor) <= 5.5)
    return [distance * number for number in range(math.floor(low / distance),
                                                  math.ceil(high / distance) + 1)]


def _place(point, x_ticks, y_ticks):
    """Returns the position of a point (x, y) inside of the picture, in pixels."""
    shares = [(value - ticks[0]) / (ticks[-1] - ticks[0])
              for value, ticks in zip(point, (x_ticks, y_ticks))]
    return _LEFT + (_RIGHT - _LEFT) * shares[0], _BOTTOM - (_BOTTOM - _TOP) * shares[1]


def _axes(title, x_label, x_ticks, y_ticks):
    """Returns the SVG elements of the title, the axes and the grid."""
    parts = [_text(_LEFT, 24, title), _text((_LEFT + _RIGHT) // 2, _BOTTOM + 42, x_label, "middle")]
    for tick in y_ticks:
        _, y = _place((x_ticks[0], tick), x_ticks, y_ticks)
        parts += [f'<path d="M{_LEFT},{y:.1f}H{_RIGHT}" stroke="#ddd"/>',
                  _text(_LEFT - 8, round(y + 4, 1), f"{tick:.6g}", "end")]
    for tick in x_ticks:
        x, _ = _place((tick, y_ticks[0]), x_ticks, y_ticks)
        parts.append(_text(round(x, 1), _BOTTOM + 20, f"{tick:.6g}", "middle"))
    return parts
