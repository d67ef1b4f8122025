// Line charts as SVG, for a page that gives the classes their colors.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace gpt {

struct ChartMark {
  double x, y;
  std::string text;  ///< shown when pointed at
};

/// A line; numbers that are not finite are gaps.
struct ChartSeries {
  std::string name;
  int color = 0;  ///< class c0, c1, ... of the page
  int dash = 0;   ///< 0: a full line; 1, 2, ...: kinds of broken ones
  std::vector<std::pair<double, double>> points;
  std::vector<ChartMark> dots = {};      ///< filled circles on a thin line: numbers taken now and then
  std::vector<ChartMark> warnings = {};  ///< crosses
  std::vector<ChartMark> gaps = {};      ///< short lines at the bottom: what is missing; y does not matter
};

struct Chart {
  std::string title, x_label, y_label;
  std::vector<ChartSeries> series;
  bool from_zero = false;    ///< the y axis begins at 0
  bool logarithmic = false;  ///< where all numbers are positive and span more than a factor of 30
};

/// `&`, `<`, `>` and quotes as entities.
std::string escaped(const std::string& text);
/// A number for people: 12, 0.031, 4.1e-05, 12.3k, 4.5M.
std::string short_number(double value);
/// A figure with axes, ticks, labels and a legend; a note in place of the lines if there is no finite number. Of a
/// longer line the means of 400 spans are drawn, on a band from the least to the greatest of each. The figure carries
/// its numbers, for `chart_script`.
std::string to_svg(const Chart& chart);
/// What shows the numbers of a page's charts under the pointer.
std::string chart_script();

}  // namespace gpt
