#include "controller/report/run_figures.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "controller/report/generation_text.h"
#include "controller/report/run_tables.h"

namespace tandem {
namespace {

constexpr std::array kPlotted = {kRewardMean,
                                 kResponseLengthMean,
                                 kResponseLengthP99,
                                 kLoss,
                                 kPolicyLoss,
                                 kKlLoss,
                                 kEntropy,
                                 kPolicyKl,
                                 kClipFraction,
                                 kGradNorm,
                                 kLearningRate,
                                 kGenerationThroughput,
                                 kTrainingThroughput,
                                 kPartialRatio,
                                 kStaleTokensShare,
                                 kTailShare,
                                 kRounds,
                                 kCarriedGroups,
                                 kPrefilledAgain,
                                 kGeneratedTokens};

void AddPhase(const PhaseTime& phase, std::vector<PhaseTotal>& totals) {
  auto total = std::find_if(totals.begin(), totals.end(),
                            [&](const PhaseTotal& known) { return known.phase == phase.phase; });
  if (total == totals.end()) {
    totals.push_back({.phase = phase.phase});
    total = totals.end() - 1;
  }
  total->seconds += phase.seconds;
  total->peak_bytes = std::max(total->peak_bytes, phase.peak_bytes);
  ++total->steps;
}

}  // namespace

void ThinnedCurve::Bucket::Add(const Bucket& other) {
  if (other.low.y < low.y) low = other.low;
  if (other.high.y > high.y) high = other.high;
  points += other.points;
}

void ThinnedCurve::Add(PlotPoint point) {
  if (std::isnan(point.y)) return;
  const Bucket one{.low = point, .high = point, .points = 1};
  if (!buckets_.empty() && buckets_.back().points < points_of_bucket_) {
    buckets_.back().Add(one);
    return;
  }
  if (buckets_.size() == kMostBuckets) {
    for (size_t i = 0; i < kMostBuckets / 2; ++i) {
      buckets_[i] = buckets_[2 * i];
      buckets_[i].Add(buckets_[2 * i + 1]);
    }
    buckets_.resize(kMostBuckets / 2);
    points_of_bucket_ *= 2;
  }
  buckets_.push_back(one);
}

std::vector<PlotPoint> ThinnedCurve::Points() const {
  std::vector<PlotPoint> points;
  for (const Bucket& bucket : buckets_) {
    const bool falls = bucket.high.x < bucket.low.x;
    points.push_back(falls ? bucket.high : bucket.low);
    if (bucket.high.x != bucket.low.x) points.push_back(falls ? bucket.low : bucket.high);
  }
  return points;
}

void PartialTotals::Add(const StepRecord& step) {
  ++steps;
  rounds += NumberOf(step, kRounds);
  ahead += NumberOf(step, kOverlapRounds);
  cut += NumberOf(step, kCutSamples);
  prefilled += NumberOf(step, kPrefilledAgain);
  generated += NumberOf(step, kGeneratedTokens) + NumberOf(step, kOverlapTokens);
  partial_ratio += NumberOf(step, kPartialRatio);
  stale_share += NumberOf(step, kStaleTokensShare);
  span = std::max(span, NumberOf(step, kPartialSpan));
  const double old = NumberOf(step, kStaleTokens);
  stale += old;
  ages += old * NumberOf(step, kStalenessMean);
  carried_groups = NumberOf(step, kCarriedGroups);
  whole_groups = NumberOf(step, kWholeGroupsLeft);
}

void MeanTail::Add(const StepRecord& step) {
  const double share = MetricOf(step, kTailShare);
  if (std::isnan(share)) return;
  sum_ += share;
  ++steps_;
}

void PredictedSplit::Add(const StepRecord& step) {
  const double seconds_saved = MetricOf(step, fmt::format("{}split_{}", kPredictedSaving, parts));
  if (std::isnan(seconds_saved)) return;
  saved += seconds_saved;
  generation += NumberOf(step, kGenerationSeconds);
  ++steps;
}

RunFigures::RunFigures(const std::vector<StepRecord>& records) {
  for (const StepRecord& record : records) Add(record);
}

RunFigures::RunFigures(std::initializer_list<StepRecord> records) {
  for (const StepRecord& record : records) Add(record);
}

void RunFigures::Add(const StepRecord& step) {
  if (steps++ == 0) first_step = step.step;
  last_step = step.step;
  if (const double reward = MetricOf(step, kRewardMean); !std::isnan(reward)) {
    if (std::isnan(first_reward)) first_reward = best_reward = reward;
    last_reward = reward;
    best_reward = std::max(best_reward, reward);
  }
  skipped_updates += std::llround(NumberOf(step, kSkippedUpdates));
  for (const PhaseTime& phase : step.phases) AddPhase(phase, phases);
  tail.Add(step);
  const bool with_partial = tandem::HasPartial(step);
  (with_partial ? tail_with_partial : tail_without_partial).Add(step);
  if (with_partial) partial.Add(step);
  for (PredictedSplit& split : splits) split.Add(step);
  if (const int64_t rollouts = std::llround(NumberOf(step, kResentWeights)); rollouts > 0) {
    resent_rollouts += rollouts;
    if (resent.size() < kMostNoted) resent.push_back({.step = step.step, .rollouts = rollouts});
  }
  for (const char* metric : kPlotted) {
    curves_[metric].Add({static_cast<double>(step.step), MetricOf(step, metric)});
  }
}

void RunFigures::AddUndone(const StepRecord& step) {
  ++undone_steps;
  last_undone = std::max(last_undone, step.step);
  if (undone.size() == kMostNoted) return;
  undone.push_back(
      {.step = step.step, .undone_by = step.undone_by, .reward = MetricOf(step, kRewardMean)});
}

void RunFigures::Add(const EvaluationRecord& evaluation) {
  if (evaluations.size() == 2) evaluations.pop_back();
  evaluations.push_back(evaluation);
  held_out.Add({static_cast<double>(evaluation.step), MetricOf(evaluation, kValRewardMean)});
}

std::vector<PlotPoint> RunFigures::Curve(const std::string& metric) const {
  const auto found = curves_.find(metric);
  return found == curves_.end() ? std::vector<PlotPoint>() : found->second.Points();
}

}  // namespace tandem
