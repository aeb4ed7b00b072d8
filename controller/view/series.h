// Curves of a run: metrics by step, in few enough points to draw.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tandem {

// (step, value) in ascending order of step; NaN: not a number.
using MetricPoints = std::vector<std::pair<int64_t, double>>;

// The values of one metric, in ascending order of step. Where is_exact, each entry is one step, and
// low and high are empty. Else each entry is a bucket of consecutive steps: the last step of the
// bucket, and the mean, the smallest and the largest of the values in it that are numbers.
struct Series {
  std::string name;
  bool is_exact = true;
  std::vector<int64_t> steps;
  std::vector<double> mean;  // NaN: no value was a number
  std::vector<double> low, high;
};

// The curves of `names`, in that order; one that `points` lacks is empty. If they go over more than
// `most` steps together, all of them are put into the same at most `most` buckets of equally many
// steps, so that what is drawn on top of each other belongs together. `most` is at least 1.
std::vector<Series> MakeSeries(const std::vector<std::string>& names,
                               const std::map<std::string, MetricPoints>& points,
                               size_t most);

}  // namespace tandem
