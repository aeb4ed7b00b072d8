#include "controller/step/summary/sample_facts.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <tuple>

namespace tandem {

double RepeatedShare(const std::vector<int32_t>& response) {
  using Run = std::array<int32_t, 4>;
  if (response.size() < std::tuple_size_v<Run>) return 0;
  std::vector<Run> runs(response.size() - std::tuple_size_v<Run> + 1);
  for (size_t i = 0; i < runs.size(); ++i) {
    std::copy_n(response.begin() + static_cast<std::ptrdiff_t>(i), runs[i].size(), runs[i].begin());
  }
  std::sort(runs.begin(), runs.end());
  const auto distinct = std::unique(runs.begin(), runs.end()) - runs.begin();
  return 1 - static_cast<double>(distinct) / static_cast<double>(runs.size());
}

void AddTokenFacts(const Sample& sample, SampleRecord& record) {
  record.prompt_tokens = sample.prompt_tokens;
  record.repetition =
      RepeatedShare({sample.tokens.begin() + sample.prompt_tokens, sample.tokens.end()});
  if (sample.log_probs.empty()) return;
  record.min_log_prob = *std::min_element(sample.log_probs.begin(), sample.log_probs.end());
}

}  // namespace tandem
