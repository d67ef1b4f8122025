"""Curves on logarithmic axes, as SVG."""

import math

WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 40, 50
COLOURS = ["#1f5fa8", "#c8501e", "#3a8a4d"]


def decades(low, high):
    """1, 2, 5, 10, ... between the two."""
    power = math.floor(math.log10(low))
    ticks = [m * 10.0**p for p in range(power, math.ceil(math.log10(high)) + 1) for m in (1, 2, 5)]
    return [t for t in ticks if low <= t <= high]


def svg(title, x_label, y_label, curves):
    """curves: name -> [(x, y)], all positive."""
    xs = sorted({x for points in curves.values() for x, _ in points})
    ys = [y for points in curves.values() for _, y in points]
    low, high = min(ys) / 1.3, max(ys) * 1.3

    def place(value, low, high, start, end):
        share = math.log(value / low) / math.log(high / low) if high > low else 0.5
        return start + share * (end - start)

    def at(x, y):
        return (place(x, xs[0], xs[-1], LEFT, WIDTH - RIGHT), place(y, low, high, HEIGHT - BOTTOM, TOP))

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
           'font-size="12">', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']

    def label(x, y, words, **more):
        attributes = "".join(f' {k.replace("_", "-")}="{v}"' for k, v in more.items())
        out.append(f'<text x="{x:.1f}" y="{y:.1f}"{attributes}>{words}</text>')

    def line(x1, y1, x2, y2, colour="#dddddd"):
        out.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>')

    for y in decades(low, high):
        _, py = at(xs[0], y)
        line(LEFT, py, WIDTH - RIGHT, py)
        label(LEFT - 8, py + 4, f"{y:g}", text_anchor="end")
    for x in xs:
        px, _ = at(x, high)
        line(px, TOP, px, HEIGHT - BOTTOM)
        label(px, HEIGHT - BOTTOM + 18, f"{x:g}", text_anchor="middle")
    for i, (name, points) in enumerate(curves.items()):
        colour = COLOURS[i % len(COLOURS)]
        places = [at(x, y) for x, y in sorted(points)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        line(LEFT + 12, TOP + 16 + 18 * i, LEFT + 36, TOP + 16 + 18 * i, colour)
        label(LEFT + 42, TOP + 20 + 18 * i, name)
    label(WIDTH / 2, 22, title, text_anchor="middle", font_size=14)
    label(WIDTH / 2, HEIGHT - 12, x_label, text_anchor="middle")
    label(16, HEIGHT / 2, y_label, text_anchor="middle", transform=f"rotate(-90 16 {HEIGHT / 2:.0f})")
    return "\n".join(out) + "\n</svg>\n"
