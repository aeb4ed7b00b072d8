#include "controller/report/svg_plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "controller/report/format.h"

namespace tandem {
namespace {

constexpr int kPlotWidth = 640, kPlotHeight = 240, kPlotLeft = 60, kPlotRight = 16, kPlotTop = 34,
              kPlotBottom = 28;
constexpr int kBarHeight = 22, kBarLeft = 110;
constexpr std::array<const char*, 6> kColours = {"#2563eb", "#dc2626", "#059669",
                                                 "#d97706", "#7c3aed", "#4b5563"};

const char* SeriesColour(size_t i) { return kColours[i % kColours.size()]; }

struct Range {
  double low = 0, high = 1;
  // Position of `value` between 0 and 1.
  double Share(double value) const { return (value - low) / (high - low); }
};

Range RangeOf(const std::vector<PlotSeries>& series, double PlotPoint::*axis) {
  Range range{std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
  for (const PlotSeries& s : series) {
    for (const PlotPoint& point : s.points) {
      if (std::isnan(point.y)) continue;
      range.low = std::min(range.low, point.*axis);
      range.high = std::max(range.high, point.*axis);
    }
  }
  if (range.low > range.high) return Range{};
  if (range.low == range.high) return Range{range.low - 0.5, range.high + 0.5};
  return range;
}

std::string Text(double x, double y, const char* anchor, const std::string& text) {
  return fmt::format(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>)", x, y, anchor,
                     EscapeHtml(text));
}

std::string Axes(const Range& x, const Range& y) {
  std::string svg;
  for (int tick = 0; tick <= 4; ++tick) {
    const double share = tick / 4.0;
    const double at = kPlotHeight - kPlotBottom - share * (kPlotHeight - kPlotTop - kPlotBottom);
    svg += fmt::format(R"(<line class="grid" x1="{}" y1="{:.1f}" x2="{}" y2="{:.1f}"/>)", kPlotLeft,
                       at, kPlotWidth - kPlotRight, at);
    svg +=
        Text(kPlotLeft - 6, at + 4, "end", fmt::format("{:.3g}", y.low + share * (y.high - y.low)));
    svg += Text(kPlotLeft + share * (kPlotWidth - kPlotLeft - kPlotRight), kPlotHeight - 8,
                "middle", fmt::format("{:.4g}", x.low + share * (x.high - x.low)));
  }
  return svg;
}

std::string Curve(const PlotSeries& series, const Range& x, const Range& y, const char* colour) {
  std::string points, dots;
  for (const PlotPoint& point : series.points) {
    if (std::isnan(point.y)) continue;
    const double px = kPlotLeft + x.Share(point.x) * (kPlotWidth - kPlotLeft - kPlotRight);
    const double py =
        kPlotHeight - kPlotBottom - y.Share(point.y) * (kPlotHeight - kPlotTop - kPlotBottom);
    points += fmt::format("{:.1f},{:.1f} ", px, py);
    dots += fmt::format(R"(<circle cx="{:.1f}" cy="{:.1f}" r="4" fill="{}"/>)", px, py, colour);
  }
  if (series.markers) return dots;
  return fmt::format(R"(<polyline fill="none" stroke="{}" stroke-width="2" points="{}"/>)", colour,
                     points);
}

}  // namespace

std::string SvgLines(const std::string& title, const std::vector<PlotSeries>& series) {
  const Range x = RangeOf(series, &PlotPoint::x), y = RangeOf(series, &PlotPoint::y);
  std::string svg = fmt::format(R"(<svg viewBox="0 0 {} {}" role="img">)", kPlotWidth, kPlotHeight);
  svg +=
      fmt::format(R"(<text class="title" x="{}" y="16">{}</text>)", kPlotLeft, EscapeHtml(title));
  svg += Axes(x, y);
  double legend = kPlotWidth - kPlotRight;
  for (size_t i = series.size(); i-- > 0;) {
    svg += fmt::format(R"(<text x="{:.1f}" y="16" text-anchor="end" fill="{}">{}</text>)", legend,
                       SeriesColour(i), EscapeHtml(series[i].name));
    legend -= 8.0 * static_cast<double>(series[i].name.size()) + 14;
  }
  for (size_t i = 0; i < series.size(); ++i) svg += Curve(series[i], x, y, SeriesColour(i));
  return svg + "</svg>";
}

std::string SvgBars(const std::string& title, const std::vector<PlotBar>& bars) {
  double high = 0;
  for (const PlotBar& bar : bars) high = std::max(high, bar.value);
  const int height = kPlotTop + kBarHeight * static_cast<int>(bars.size()) + 8;
  std::string svg = fmt::format(R"(<svg viewBox="0 0 {} {}" role="img">)", kPlotWidth, height);
  svg += fmt::format(R"(<text class="title" x="{}" y="16">{}</text>)", 8, EscapeHtml(title));
  for (size_t i = 0; i < bars.size(); ++i) {
    const int y = kPlotTop + kBarHeight * static_cast<int>(i);
    const double width = high > 0 ? bars[i].value / high * (kPlotWidth - kBarLeft - 130) : 0;
    svg += Text(kBarLeft - 6, y + 14, "end", bars[i].name);
    svg += fmt::format(R"(<rect x="{}" y="{}" width="{:.1f}" height="{}" fill="{}"/>)", kBarLeft, y,
                       std::max(width, 0.0), kBarHeight - 6, SeriesColour(i));
    svg += Text(kBarLeft + width + 6, y + 14, "start", bars[i].label);
  }
  return svg + "</svg>";
}

}  // namespace tandem
