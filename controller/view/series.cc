#include "controller/view/series.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tandem {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// Buckets of `width` steps from `first` to `last`.
struct Buckets {
  int64_t first = 0, last = -1;
  int64_t width = 1;
  int64_t IndexOf(int64_t step) const { return (step - first) / width; }
  int64_t LastStepOf(int64_t index) const {
    return std::min(last, first + (index + 1) * width - 1);
  }
};

Buckets BucketsFor(const std::vector<std::string>& names,
                   const std::map<std::string, MetricPoints>& points,
                   size_t most) {
  Buckets buckets{.first = std::numeric_limits<int64_t>::max()};
  for (const std::string& name : names) {
    const auto found = points.find(name);
    if (found == points.end() || found->second.empty()) continue;
    buckets.first = std::min(buckets.first, found->second.front().first);
    buckets.last = std::max(buckets.last, found->second.back().first);
  }
  const int64_t steps = std::max<int64_t>(0, buckets.last - buckets.first + 1);
  buckets.width = (steps + static_cast<int64_t>(most) - 1) / static_cast<int64_t>(most);
  return buckets;
}

// Adds the bucket of the points in [first, last).
void AddBucket(const std::pair<int64_t, double>* first,
               const std::pair<int64_t, double>* last,
               int64_t last_step,
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
  series.steps.push_back(last_step);
  series.mean.push_back(numbers == 0 ? kNone : sum / static_cast<double>(numbers));
  series.low.push_back(low);
  series.high.push_back(high);
}

void AddBuckets(const MetricPoints& points, const Buckets& buckets, Series& series) {
  series.is_exact = false;
  for (size_t begin = 0; begin < points.size();) {
    const int64_t bucket = buckets.IndexOf(points[begin].first);
    size_t end = begin;
    while (end < points.size() && buckets.IndexOf(points[end].first) == bucket) ++end;
    AddBucket(points.data() + begin, points.data() + end, buckets.LastStepOf(bucket), series);
    begin = end;
  }
}

}  // namespace

std::vector<Series> MakeSeries(const std::vector<std::string>& names,
                               const std::map<std::string, MetricPoints>& points,
                               size_t most) {
  const Buckets buckets = BucketsFor(names, points, most);
  std::vector<Series> list;
  for (const std::string& name : names) {
    Series& series = list.emplace_back();
    series.name = name;
    const auto found = points.find(name);
    if (found == points.end()) continue;
    if (buckets.width > 1) {
      AddBuckets(found->second, buckets, series);
      continue;
    }
    for (const auto& [step, value] : found->second) {
      series.steps.push_back(step);
      series.mean.push_back(value);
    }
  }
  return list;
}

}  // namespace tandem
