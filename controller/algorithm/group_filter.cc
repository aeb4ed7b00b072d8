#include "controller/algorithm/group_filter.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/base/status.h"

namespace tandem {

GroupFilter::GroupFilter(GroupFilterOptions options, int64_t wanted)
    : options_(std::move(options)), wanted_(wanted) {}

GroupFilter::Verdict GroupFilter::Judge(const std::vector<double>& values) {
  ++judged_;
  const double first = values.front();
  if (std::all_of(values.begin(), values.end(), [=](double value) { return value == first; })) {
    ++all_equal_[first];
    return Verdict::kAllEqual;
  }
  if (full()) {
    ++surplus_;
    return Verdict::kSurplus;
  }
  ++kept_;
  return Verdict::kKept;
}

absl::Status GroupFilter::EndBatch() {
  const bool capped = options_.max_batches > 0;
  const int64_t most = capped ? options_.max_batches : kMostBatches;
  if (full() || judged_ < most * wanted_) return absl::OkStatus();
  return MakeStatus(
      absl::StatusCode::kOutOfRange,
      "{} batches of {} prompts were generated, and only {} of the {} groups that a step needs "
      "have samples that differ in \"{}\"; {} groups were dropped as all their samples are equal: "
      "{}. {}, choose prompts that the model solves now and then, raise rollout.n or "
      "rollout.temperature, lower data.train_batch_size, or set "
      "algorithm.filter_groups.enable=false",
      batches(), wanted_, kept_, wanted_, options_.metric, all_equal(), AllEqualText(),
      capped ? fmt::format("Raise algorithm.filter_groups.max_num_gen_batches (now {})", most)
             : fmt::format("{} is the limit as algorithm.filter_groups.max_num_gen_batches is 0: "
                           "set it higher",
                           most));
}

int64_t GroupFilter::all_equal() const {
  int64_t groups = 0;
  for (const auto& [value, count] : all_equal_) groups += count;
  return groups;
}

double GroupFilter::mean_of_all_equal() const {
  if (all_equal_.empty()) return std::numeric_limits<double>::quiet_NaN();
  double sum = 0;
  for (const auto& [value, count] : all_equal_) sum += value * static_cast<double>(count);
  return sum / static_cast<double>(all_equal());
}

// For example "90 with 0, 7 with 1": the most frequent values first.
std::string GroupFilter::AllEqualText() const {
  constexpr size_t kShown = 5;
  std::vector<std::pair<double, int64_t>> values(all_equal_.begin(), all_equal_.end());
  std::stable_sort(values.begin(), values.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (size_t i = 0; i < std::min(kShown, values.size()); ++i) {
    text += fmt::format("{}{} with {:g}", i == 0 ? "" : ", ", values[i].second, values[i].first);
  }
  if (values.size() > kShown) text += fmt::format(" and {} other values", values.size() - kShown);
  return text.empty() ? "none" : text;
}

}  // namespace tandem
