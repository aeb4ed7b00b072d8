#include "controller/balance/seqlen_imbalance.h"

#include <algorithm>
#include <numeric>

#include "common/base/check.h"

namespace tandem {
namespace {

std::vector<int64_t> SumsOfRuns(const std::vector<int64_t>& lengths, size_t run) {
  std::vector<int64_t> sums;
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (i % run == 0) sums.push_back(0);
    sums.back() += lengths[i];
  }
  return sums;
}

}  // namespace

SeqlenImbalance MeasureImbalance(const std::vector<int64_t>& lengths,
                                 const std::vector<std::vector<int64_t>>& parts) {
  TANDEM_CHECK(!parts.empty(), "sequences of no part");
  SeqlenImbalance result;
  if (lengths.empty()) return result;
  const auto runs = SumsOfRuns(lengths, std::max<size_t>(lengths.size() / parts.size(), 1));
  std::vector<int64_t> balanced;
  for (const std::vector<int64_t>& part : parts) {
    balanced.push_back(0);
    for (const int64_t item : part) balanced.back() += lengths[static_cast<size_t>(item)];
  }
  result.min = *std::min_element(runs.begin(), runs.end());
  result.max = *std::max_element(runs.begin(), runs.end());
  result.balanced_min = *std::min_element(balanced.begin(), balanced.end());
  result.balanced_max = *std::max_element(balanced.begin(), balanced.end());
  result.mean = static_cast<double>(std::accumulate(lengths.begin(), lengths.end(), int64_t{0})) /
                static_cast<double>(parts.size());
  return result;
}

}  // namespace tandem
