#include "controller/view/series.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tandem {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// Adds the bucket of the points in [first, last).
void AddBucket(const std::pair<int64_t, double>* first,
               const std::pair<int64_t, double>* last,
               Series& series) {
  double sum = 0, low = kNone, high = kNone;
  int64_t numbers = 0;
  for (const auto* point = first; point != last; ++point) {
    if (std::isnan(point->second)) continue;
    sum += point->second;
    low = std::fmin(low, point->second);  // the other one, where one is NaN
    high = std::fmax(high, point->second);
    ++numbers;
  }
  series.steps.push_back(last[-1].first);
  series.mean.push_back(numbers == 0 ? kNone : sum / static_cast<double>(numbers));
  series.low.push_back(low);
  series.high.push_back(high);
}

}  // namespace

Series MakeSeries(std::string name,
                  const std::vector<std::pair<int64_t, double>>& points,
                  size_t most) {
  Series series;
  series.name = std::move(name);
  if (points.size() <= most) {
    for (const auto& [step, value] : points) {
      series.steps.push_back(step);
      series.mean.push_back(value);
    }
    return series;
  }
  series.is_exact = false;
  const int64_t first_step = points.front().first;
  const int64_t steps = points.back().first - first_step + 1;
  const int64_t width = (steps + static_cast<int64_t>(most) - 1) / static_cast<int64_t>(most);
  for (size_t begin = 0; begin < points.size();) {
    const int64_t bucket = (points[begin].first - first_step) / width;
    size_t end = begin;
    while (end < points.size() && (points[end].first - first_step) / width == bucket) ++end;
    AddBucket(points.data() + begin, points.data() + end, series);
    begin = end;
  }
  return series;
}

}  // namespace tandem
