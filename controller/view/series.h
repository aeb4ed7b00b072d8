// Curves of a run: a metric by step, in few enough points to draw.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tandem {

// The values of one metric, in ascending order of step. Where is_exact, each entry is one step, and
// low and high are empty. Else each entry is a bucket of consecutive steps: the last step in it,
// and the mean, the smallest and the largest of the values in it that are numbers.
struct Series {
  std::string name;
  bool is_exact = true;
  std::vector<int64_t> steps;
  std::vector<double> mean;  // NaN: no value was a number
  std::vector<double> low, high;
};

// `points`: (step, value) in ascending order of step. With more than `most` of them, which is at
// least 1, they are put into at most `most` buckets of equally many steps.
Series MakeSeries(std::string name,
                  const std::vector<std::pair<int64_t, double>>& points,
                  size_t most);

}  // namespace tandem
