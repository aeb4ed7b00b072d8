#include "controller/step/summary/histograms.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/base/status.h"
#include "common/types/response_tokens.h"

namespace tandem {
namespace {

using Histograms = std::map<std::string, Histogram>;

// Goes through the numbers twice: the first pass finds their range, the second one counts.
class HistogramPasses {
 public:
  void Look(const char* name, double value) {
    if (!std::isfinite(value)) return;
    if (counting_) {
      histograms_.at(name).Add(value);
      return;
    }
    const auto [found, first] = histograms_.try_emplace(name);
    Histogram& histogram = found->second;
    histogram.low = first ? value : std::min(histogram.low, value);
    histogram.high = first ? value : std::max(histogram.high, value);
  }
  void BeginCounting() { counting_ = true; }
  Histograms Take() { return std::move(histograms_); }

 private:
  bool counting_ = false;
  Histograms histograms_;
};

// Of the tokens that the losses count.
void LookAtTokens(const Sample& sample, HistogramPasses& passes) {
  const std::vector<float> counted = CountedTokens(sample);
  for (size_t t = 0; t < counted.size(); ++t) {
    if (counted[t] == 0) continue;
    passes.Look(kAdvantageHistogram, sample.advantages[t]);
    if (t >= sample.log_probs.size()) continue;
    passes.Look(kLogProbHistogram, sample.log_probs[t]);
    if (t >= sample.old_log_probs.size()) continue;
    passes.Look(kRatioHistogram, std::exp(static_cast<double>(sample.old_log_probs[t]) -
                                          static_cast<double>(sample.log_probs[t])));
  }
}

absl::Status LookAtAll(const SampleStore& samples,
                       const std::vector<SampleMeta>& metas,
                       const std::vector<SampleRecord>& records,
                       HistogramPasses& passes) {
  for (const SampleRecord& record : records) passes.Look(kRewardHistogram, record.reward);
  for (const SampleMeta& meta : metas) {
    passes.Look(kLengthHistogram, static_cast<double>(meta.response_tokens));
    TANDEM_ASSIGN_OR_RETURN(const Sample sample, samples.Read(meta.sample_id));
    LookAtTokens(sample, passes);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Histograms> StepHistograms(const SampleStore& samples,
                                          const std::vector<SampleMeta>& metas,
                                          const std::vector<SampleRecord>& records) {
  HistogramPasses passes;
  TANDEM_RETURN_IF_ERROR(LookAtAll(samples, metas, records, passes));
  passes.BeginCounting();
  TANDEM_RETURN_IF_ERROR(LookAtAll(samples, metas, records, passes));
  return passes.Take();
}

}  // namespace tandem
