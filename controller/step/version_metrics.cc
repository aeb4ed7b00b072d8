#include "controller/step/version_metrics.h"

#include <algorithm>

#include "controller/store/metric_names.h"

namespace tandem {
namespace {

double PartOfWhole(double part, double whole) { return whole > 0 ? part / whole : 0; }

}  // namespace

void AddVersionMetrics(const PartialFacts& facts,
                       const std::vector<SampleMeta>& samples,
                       std::map<std::string, double>& metrics) {
  // Integers, however many: sums without rounding.
  int64_t partial = 0, span = 0, responses = 0, trained = 0, stale = 0, ages = 0, oldest = 0;
  for (const SampleMeta& sample : samples) {
    const int64_t versions = sample.newest_version - sample.weight_version;
    partial += versions > 0 ? 1 : 0;
    span = std::max(span, versions);
    responses += sample.response_tokens;
    for (const Segment& segment : sample.response_segments) {
      if (!segment.trained) continue;
      trained += segment.length;
      const int64_t age = facts.version - segment.weight_version;
      if (age <= 0) continue;
      stale += segment.length;
      ages += age * segment.length;
      oldest = std::max(oldest, age);
    }
  }
  const auto count = static_cast<double>(samples.size());
  const auto old = static_cast<double>(stale);
  metrics["partial/total_partial_num"] = static_cast<double>(partial);
  metrics["partial/partial_ratio"] = PartOfWhole(static_cast<double>(partial), count);
  metrics["partial/max_partial_span"] = static_cast<double>(span);
  metrics[kStaleTokens] = old;
  metrics["partial/stale_tokens_share"] = PartOfWhole(old, static_cast<double>(trained));
  metrics["partial/staleness_mean"] = PartOfWhole(static_cast<double>(ages), old);
  metrics["partial/staleness_max"] = static_cast<double>(oldest);
  metrics["partial/trained_tokens_mean"] = PartOfWhole(static_cast<double>(responses), count);
  metrics["partial/issued_tokens_mean"] = facts.issued_tokens_mean;
}

}  // namespace tandem
