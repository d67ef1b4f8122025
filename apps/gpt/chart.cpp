#include "gpt/chart.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace gpt {

namespace {

constexpr double kWidth = 640, kHeight = 300, kLeft = 54, kRight = 14, kTop = 12, kBottom = 44;
constexpr size_t kSpans = 400;
constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();
  void add(double v) {
    if (!std::isfinite(v)) return;
    low = std::min(low, v);
    high = std::max(high, v);
  }
  bool empty() const { return low > high; }
};

// Positions of values on one axis.
struct Axis {
  Range range;
  bool logarithmic;
  double from, to;  // pixels
  double at(double v) const {
    double low = range.low, high = range.high;
    if (logarithmic) v = std::log10(v), low = std::log10(low), high = std::log10(high);
    return from + (v - low) / (high - low) * (to - from);
  }
};

double nice_step(double span, int ticks) {
  double raw = span / ticks, power = std::pow(10, std::floor(std::log10(raw)));
  for (double m : {1.0, 2.0, 5.0})
    if (raw <= m * power) return m * power;
  return 10 * power;
}

std::vector<double> ticks_of(const Axis& axis, int count, bool whole) {
  std::vector<double> out;
  auto [low, high] = axis.range;
  if (axis.logarithmic) {
    for (double p = std::pow(10, std::floor(std::log10(low))); p <= high; p *= 10)
      for (double m : {1.0, 2.0, 5.0})
        if (m * p >= low && m * p <= high && (m == 1 || high / low < 300)) out.push_back(m * p);
    if (out.size() > 1) return out;
    return {low, high};
  }
  double step = nice_step(high - low, count);
  if (whole) step = std::max(1.0, step);
  for (double k = std::ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; ++k) out.push_back(k * step);
  return out;
}

// So that a single value has an axis, and lines keep off the frame.
Range widened(Range r, bool from_zero, bool logarithmic) {
  if (logarithmic) return {.low = r.low / 1.1, .high = r.high * 1.1};
  if (from_zero) r.low = std::min(r.low, 0.0);
  double room = r.high > r.low ? 0.04 * (r.high - r.low) : r.high == 0 ? 1 : std::abs(r.high) * 0.5;
  bool grounded = from_zero && r.low == 0.0;
  return {.low = grounded ? 0.0 : r.low - room, .high = r.high + room};
}

// What is drawn of some points of a line: one, or a span of them.
struct Drawn {
  double x, y, low, high;  // y: the mean
};

// Points, or spans of them; not finite where nothing is.
std::vector<Drawn> drawn(const std::vector<std::pair<double, double>>& points) {
  std::vector<Drawn> out;
  if (points.size() <= 3 * kSpans) {
    for (auto [x, y] : points) out.push_back({x, y, y, y});
    return out;
  }
  for (size_t s = 0; s < kSpans; ++s) {
    size_t begin = points.size() * s / kSpans, end = points.size() * (s + 1) / kSpans, n = 0;
    Range range;
    double sum = 0;
    for (size_t i = begin; i < end; ++i) {
      if (!std::isfinite(points[i].second)) continue;
      range.add(points[i].second);
      sum += points[i].second;
      ++n;
    }
    double x = points[(begin + end - 1) / 2].first;
    if (n == 0)
      out.push_back({x, kNothing, kNothing, kNothing});
    else
      out.push_back({x, sum / static_cast<double>(n), range.low, range.high});
  }
  return out;
}

class Drawing {
 public:
  explicit Drawing(const Chart& chart) : chart_(chart) {
    Range xs, ys;
    double least = std::numeric_limits<double>::infinity();
    auto see = [&](double x, double y) {
      if (!std::isfinite(y) || !std::isfinite(x)) return;
      xs.add(x);
      ys.add(y);
      least = std::min(least, y);
    };
    for (const auto& s : chart.series) {
      for (auto [x, y] : s.points) see(x, y);
      for (const auto& d : s.dots) see(d.x, d.y);
    }
    empty_ = xs.empty();
    if (empty_) return;
    bool logarithmic = chart.logarithmic && least > 0 && ys.high > 30 * ys.low;
    if (xs.low == xs.high) xs = {.low = xs.low - 1, .high = xs.high + 1};
    x_ = {xs, false, kLeft, kWidth - kRight};
    y_ = {widened(ys, chart.from_zero, logarithmic), logarithmic, kHeight - kBottom, kTop};
  }

  bool logarithmic() const { return !empty_ && y_.logarithmic; }

  std::string svg() {
    std::string out = fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\"", kWidth, kHeight,
                                  escaped(chart_.title));
    if (!empty_) out += fmt::format(" data-x=\"{:.10g} {:.10g} {} {}\"", x_.range.low, x_.range.high, x_.from, x_.to);
    out += ">\n";
    if (empty_) {
      out += fmt::format("<text class=\"note\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">no numbers</text>\n",
                         kWidth / 2, kHeight / 2);
      return out + "</svg>\n";
    }
    out += axes();
    for (const auto& s : chart_.series) out += line(s);
    for (const auto& s : chart_.series) out += marks(s);
    return out + fmt::format("<path class=\"cursor\" d=\"M0 {}V{}\"/></svg>\n", kTop, kHeight - kBottom);
  }

 private:
  std::string axes() const {
    std::string out;
    for (double t : ticks_of(y_, 5, false))
      out += fmt::format(
          "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
          "<text class=\"tick\" x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
          kLeft, kWidth - kRight, y_.at(t), y_.at(t), kLeft - 6, y_.at(t) + 4, short_number(t));
    for (double t : ticks_of(x_, 7, true))
      out += fmt::format(
          "<line class=\"axis\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\"/>"
          "<text class=\"tick\" x=\"{0:.1f}\" y=\"{3}\" text-anchor=\"middle\">{4}</text>\n",
          x_.at(t), kHeight - kBottom, kHeight - kBottom + 4, kHeight - kBottom + 17, short_number(t));
    out += fmt::format("<line class=\"axis\" x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/>\n", kLeft, kWidth - kRight,
                       kHeight - kBottom, kHeight - kBottom);
    out += fmt::format("<text class=\"label\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                       (kLeft + kWidth - kRight) / 2, kHeight - 6, escaped(chart_.x_label));
    return out;
  }

  std::string line(const ChartSeries& s) const {
    std::vector<Drawn> points = drawn(s.points);
    std::string path, numbers, bands;
    size_t finite = 0;
    bool spans = points.size() < s.points.size();
    for (size_t i = 0; i < points.size(); ++i) {
      const Drawn& p = points[i];
      if (!std::isfinite(p.y)) continue;
      bool down = i > 0 && std::isfinite(points[i - 1].y);
      path += fmt::format("{}{:.1f} {:.1f}", down ? "L" : "M", x_.at(p.x), y_.at(p.y));
      numbers += fmt::format("{}{:.10g} {:.6g}", numbers.empty() ? "" : ",", p.x, p.y);
      if (spans) numbers += fmt::format(" {:.6g} {:.6g}", p.low, p.high);
      if (spans && !down) bands += band(points, i);
      ++finite;
    }
    if (finite == 0) return {};
    std::string data = fmt::format("data-name=\"{}\" data-v=\"{}\"", escaped(s.name), numbers);
    if (finite == 1)
      for (const Drawn& p : points)
        if (std::isfinite(p.y))
          return fmt::format("<circle class=\"c{} dot\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" {}/>\n", s.color,
                             x_.at(p.x), y_.at(p.y), data);
    if (spans) bands = fmt::format("<path class=\"b{} band\" d=\"{}\"/>\n", s.color, bands);
    return bands + fmt::format("<path class=\"c{} d{}\" d=\"{}\" {}/>\n", s.color, s.dash, path, data);
  }

  // From the spans' least numbers to their greatest, up to the next gap.
  std::string band(const std::vector<Drawn>& points, size_t begin) const {
    size_t end = begin;
    while (end < points.size() && std::isfinite(points[end].y)) ++end;
    std::string out = "M";
    for (size_t i = begin; i < end; ++i)
      out += fmt::format("{:.1f} {:.1f}L", x_.at(points[i].x), y_.at(points[i].high));
    for (size_t i = end; i > begin; --i)
      out +=
          fmt::format("{:.1f} {:.1f}{}", x_.at(points[i - 1].x), y_.at(points[i - 1].low), i - 1 > begin ? "L" : "Z");
    return out;
  }

  std::string marks(const ChartSeries& s) const {
    std::string out;
    for (const auto& m : s.dots)
      if (std::isfinite(m.y))
        out += fmt::format("<circle class=\"c{} dot\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\"><title>{}</title></circle>\n",
                           s.color, x_.at(m.x), y_.at(m.y), escaped(m.text));
    for (const auto& m : s.warnings) {
      double y = std::isfinite(m.y) ? y_.at(m.y) : kTop + 6;  // what has no place stands at the top
      out +=
          fmt::format("<path class=\"warning\" d=\"M{0:.1f} {1:.1f}l10 10m0 -10l-10 10\"><title>{2}</title></path>\n",
                      x_.at(m.x) - 5, y - 5, escaped(m.text));
    }
    for (const auto& m : s.gaps)
      out += fmt::format("<path class=\"gap\" d=\"M{:.1f} {}v-9\"><title>{}</title></path>\n", x_.at(m.x),
                         kHeight - kBottom, escaped(m.text));
    return out;
  }

  const Chart& chart_;
  bool empty_ = true;
  Axis x_ = {}, y_ = {};
};

std::string legend(const Chart& chart) {
  std::string out;
  bool dots = false, warnings = false, gaps = false;
  for (const auto& s : chart.series) {
    dots |= !s.dots.empty();
    warnings |= !s.warnings.empty();
    gaps |= !s.gaps.empty();
    if (s.points.empty()) continue;
    out += fmt::format(
        "<span><svg class=\"key\" viewBox=\"0 0 24 8\"><path class=\"c{} d{}\" d=\"M0 4L24 4\"/></svg>{}</span>\n",
        s.color, s.dash, escaped(s.name));
  }
  if (dots)
    out +=
        "<span><svg class=\"key\" viewBox=\"0 0 24 8\"><circle class=\"any dot\" cx=\"12\" cy=\"4\" "
        "r=\"3.5\"/></svg>held out</span>\n";
  if (warnings)
    out +=
        "<span><svg class=\"key\" viewBox=\"0 0 24 8\"><path class=\"warning\" d=\"M8 0l8 8m0 -8l-8 "
        "8\"/></svg>outlier</span>\n";
  if (gaps)
    out +=
        "<span><svg class=\"key\" viewBox=\"0 0 24 8\"><path class=\"gap\" d=\"M12 8v-8\"/></svg>left "
        "out</span>\n";
  return out;
}

}  // namespace

std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        if (static_cast<unsigned char>(c) >= 0x20) out += c;
    }
  }
  return out;
}

std::string short_number(double v) {
  double a = std::abs(v);
  if (!std::isfinite(v)) return "-";
  if (a < 1e-12) return "0";
  if (a < 1e-3) return fmt::format("{:.2g}", v);
  if (a < 10000) return fmt::format("{:.4g}", v);
  const char* units[] = {"k", "M", "G", "T", "P"};
  int unit = -1;
  for (; std::abs(v) >= 1000 && unit < 4; ++unit) v /= 1000;
  return fmt::format("{:.3g}{}", v, units[unit]);
}

// Every chart under one cursor: the numbers of the lines next to it.
std::string chart_script() {
  return R"(<script>
for (const svg of document.querySelectorAll('svg[data-x]')) {
  const [low, high, from, to] = svg.dataset.x.split(' ').map(Number), width = svg.viewBox.baseVal.width;
  const lines = [...svg.querySelectorAll('[data-v]')].map(line => ({name: line.dataset.name,
    color: (line.getAttribute('class').match(/c\d/) || [''])[0],
    points: line.dataset.v.split(',').map(p => p.split(' ').map(Number))}));
  const cursor = svg.querySelector('.cursor'), box = document.createElement('div');
  box.className = 'box';
  const figure = svg.closest('figure');
  figure.appendChild(box);
  const nearest = (points, x) => {
    let a = 0, b = points.length - 1;
    while (b - a > 1) { const m = (a + b) >> 1; if (points[m][0] < x) a = m; else b = m; }
    return Math.abs(points[a][0] - x) <= Math.abs(points[b][0] - x) ? points[a] : points[b];
  };
  const text = v => Math.abs(v) >= 1e6 || (v && Math.abs(v) < 1e-3) ? v.toExponential(3) : String(+v.toPrecision(5));
  svg.addEventListener('pointermove', event => {
    const frame = svg.getBoundingClientRect(), scale = width / frame.width;
    const at = Math.min(to, Math.max(from, (event.clientX - frame.left) * scale));
    const x = low + (at - from) / (to - from) * (high - low);
    const found = lines.map(line => nearest(line.points, x));
    if (!found.length) return;
    const step = found.reduce((best, p) => Math.abs(p[0] - x) < Math.abs(best - x) ? p[0] : best, found[0][0]);
    cursor.setAttribute('transform', `translate(${from + (step - low) / (high - low) * (to - from)} 0)`);
    box.replaceChildren(...[`step ${step}`, ...lines].map((line, i) => {
      const row = document.createElement('div');
      if (!i) { row.textContent = line; return row; }
      const p = found[i - 1], key = document.createElement('i');
      key.className = line.color;
      row.append(key, `${line.name}  `, Object.assign(document.createElement('b'), {textContent: text(p[1])}));
      if (p.length > 2 && p[2] !== p[3]) row.append(` (mean; ${text(p[2])} to ${text(p[3])})`);
      if (p[0] !== step) row.append(` at ${p[0]}`);
      return row;
    }));
    figure.classList.add('pointed');
    const around = figure.getBoundingClientRect(), left = event.clientX - around.left;
    box.style.left = `${Math.max(0, left > around.width / 2 ? left - box.offsetWidth - 14 : left + 14)}px`;
    box.style.top = `${event.clientY - around.top + 12}px`;
  });
  svg.addEventListener('pointerleave', () => figure.classList.remove('pointed'));
}
</script>
)";
}

std::string to_svg(const Chart& chart) {
  Drawing drawing(chart);
  return fmt::format(
      "<figure>\n<figcaption>{} <span>{}{}</span></figcaption>\n<div class=\"scroll\">{}</div>"
      "<div class=\"legend\">{}</div>\n</figure>\n",
      escaped(chart.title), escaped(chart.y_label), drawing.logarithmic() ? ", logarithmic" : "", drawing.svg(),
      legend(chart));
}

}  // namespace gpt
