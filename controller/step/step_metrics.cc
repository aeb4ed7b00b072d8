#include "controller/step/step_metrics.h"

#include <algorithm>
#include <numeric>
#include <string_view>

#include "controller/balance/rank_assignment.h"
#include "controller/partial_rollout/tail_model.h"
#include "controller/store/run_store.h"

namespace tandem {
namespace {

using MetricMap = std::map<std::string, double>;

void AddMeanMaxMin(MetricMap& metrics, const std::string& name, const std::vector<double>& values) {
  if (values.empty()) return;
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  metrics[name + "/mean"] = sum / static_cast<double>(values.size());
  metrics[name + "/max"] = *std::max_element(values.begin(), values.end());
  metrics[name + "/min"] = *std::min_element(values.begin(), values.end());
}

double CountShare(int64_t count, size_t total) {
  return total == 0 ? 0.0 : static_cast<double>(count) / static_cast<double>(total);
}

void AddLengths(MetricMap& metrics,
                const StepFacts& facts,
                const std::vector<SampleMeta>& samples) {
  std::vector<double> prompts, responses, scores, rewards;
  std::vector<int64_t> lengths, response_lengths;
  std::vector<std::vector<int64_t>> ranks(static_cast<size_t>(facts.ranks));
  int64_t clipped_prompts = 0, clipped_responses = 0, aborted = 0;
  for (const SampleMeta& sample : samples) {
    prompts.push_back(static_cast<double>(sample.prompt_tokens));
    responses.push_back(static_cast<double>(sample.response_tokens));
    response_lengths.push_back(sample.response_tokens);
    scores.push_back(sample.outcome.score);
    rewards.push_back(sample.outcome.reward);
    clipped_prompts += sample.prompt_tokens >= facts.max_prompt_tokens ? 1 : 0;
    clipped_responses += sample.response_tokens >= facts.max_response_tokens ? 1 : 0;
    aborted += sample.response_tokens == 0 ? 1 : 0;
    ranks[static_cast<size_t>(sample.rank)].push_back(std::ssize(lengths));
    lengths.push_back(sample.prompt_tokens + sample.response_tokens);
  }
  AddMeanMaxMin(metrics, "prompt_length", prompts);
  AddMeanMaxMin(metrics, "response_length", responses);
  if (!responses.empty()) {
    metrics[kResponseLengthP50] = static_cast<double>(NearestRank(response_lengths, 0.5));
    metrics[kResponseLengthP99] = static_cast<double>(NearestRank(response_lengths, 0.99));
  }
  AddMeanMaxMin(metrics, "critic/score", scores);
  AddMeanMaxMin(metrics, "critic/rewards", rewards);
  metrics["prompt_length/clip_ratio"] = CountShare(clipped_prompts, samples.size());
  metrics["response_length/clip_ratio"] = CountShare(clipped_responses, samples.size());
  metrics["response/aborted_ratio"] = CountShare(aborted, samples.size());
  const SeqlenImbalance imbalance = MeasureImbalance(lengths, ranks);
  metrics["global_seqlen/min"] = static_cast<double>(imbalance.min);
  metrics["global_seqlen/max"] = static_cast<double>(imbalance.max);
  metrics["global_seqlen/minmax_diff"] = static_cast<double>(imbalance.max - imbalance.min);
  metrics["global_seqlen/balanced_min"] = static_cast<double>(imbalance.balanced_min);
  metrics["global_seqlen/balanced_max"] = static_cast<double>(imbalance.balanced_max);
  metrics["global_seqlen/mean"] = imbalance.mean;
}

void AddTimes(MetricMap& metrics,
              const StepFacts& facts,
              const std::vector<SampleMeta>& samples,
              const PhaseRecorder& phases) {
  const auto generated = static_cast<double>(facts.generated_tokens);
  double all_tokens = 0;
  for (const SampleMeta& sample : samples) {
    all_tokens += static_cast<double>(sample.prompt_tokens + sample.response_tokens);
  }
  const double train = phases.Seconds("train") + phases.Seconds("optimize");
  const double total = phases.TotalSeconds();
  metrics[kGenerationSeconds] = phases.Seconds("generate");
  metrics["timing_s/reward"] = phases.Seconds("score");
  metrics["timing_s/adv"] = phases.Seconds("advantage");
  metrics["timing_s/update_actor"] = train;
  metrics["timing_s/update_weights"] =
      phases.Seconds("sync") + phases.Seconds("check") + phases.Seconds("wake");
  metrics["timing_s/step"] = total;
  const double recompute = phases.Seconds("old_log_prob"), reference = phases.Seconds("reference");
  const double compare = phases.Seconds("compare");
  if (recompute > 0) metrics["timing_s/old_log_prob"] = recompute;
  if (compare > 0) metrics["timing_s/compare_log_probs"] = compare;
  if (const double waited = phases.Seconds("wait_generate"); waited > 0) {
    metrics["timing_s/wait_generate"] = waited;
  }
  if (reference > 0) metrics["timing_s/ref"] = reference;
  const double generating = facts.generation_seconds.value_or(phases.Seconds("generate"));
  if (generated > 0) metrics["timing_per_token_ms/gen"] = 1e3 * generating / generated;
  if (all_tokens > 0) metrics["timing_per_token_ms/update_actor"] = 1e3 * train / all_tokens;
  if (generating > 0) metrics[kGenerationThroughput] = generated / generating;
  metrics[kGeneratedTokens] = generated;
  if (train > 0) metrics["perf/training_tokens_per_second"] = all_tokens / train;
  metrics["perf/total_num_tokens"] = all_tokens;
  metrics["perf/time_per_step"] = total;
  if (total > 0) metrics["perf/throughput"] = all_tokens / total / facts.devices;
  double peak = 0;
  for (const PhaseTime& phase : phases.phases()) {
    peak = std::max(peak, static_cast<double>(phase.peak_bytes));
  }
  metrics["perf/max_memory_allocated_gb"] = peak / (1024.0 * 1024.0 * 1024.0);
}

constexpr std::string_view kActor = "actor/", kFirst = "actor/first_";
constexpr std::string_view kCurrent = "actor/current_";

// The first mini-batch's metrics that show whether it was on-policy, renamed to actor/first_*.
MetricMap OfFirst(const MetricMap& mini_batch) {
  // Where older weights sampled some tokens, ratios of the step's own weights have their own name.
  const bool stale = mini_batch.contains(kStaleTokens);
  const std::string_view ratios = stale ? kCurrent : kActor;
  MetricMap first;
  for (const char* name : {"ratio_min", "ratio_mean", "ratio_max"}) {
    const auto found = mini_batch.find(std::string(ratios) + name);
    if (found != mini_batch.end()) first[std::string(kFirst) + name] = found->second;
  }
  const auto clipped = mini_batch.find("actor/pg_clipfrac");
  if (clipped != mini_batch.end()) first["actor/first_pg_clipfrac"] = clipped->second;
  return first;
}

double ValueOf(const MetricMap& metrics, const char* name) {
  const auto found = metrics.find(name);
  return found == metrics.end() ? 0 : found->second;
}

// Whether a metric is a mean over tokens of older weights, which mini-batches have different
// numbers of.
bool IsStaleMean(std::string_view name) {
  return name == "partial/stale_ratio_mean" || name == "partial/stale_kl";
}

bool IsExtreme(std::string_view name) { return name.ends_with("_min") || name.ends_with("_max"); }

}  // namespace

std::map<std::string, double> StepMetrics(const StepFacts& facts,
                                          const std::vector<SampleMeta>& samples,
                                          const PhaseRecorder& phases) {
  MetricMap metrics = facts.trainer;
  AddLengths(metrics, facts, samples);
  AddTimes(metrics, facts, samples, phases);
  if (facts.partial) AddVersionMetrics(*facts.partial, samples, metrics);
  for (const auto& [name, mean] : facts.reward_terms) metrics["reward/" + name + "/mean"] = mean;
  metrics["training/global_step"] = static_cast<double>(facts.step);
  metrics["training/epoch"] = static_cast<double>(facts.epoch);
  if (facts.log_probs.compared > 0) {
    metrics["training/rollout_log_probs_identical"] =
        CountShare(facts.log_probs.identical, static_cast<size_t>(facts.log_probs.compared));
    metrics["training/rollout_log_probs_compared"] = static_cast<double>(facts.log_probs.compared);
    metrics["training/rollout_log_probs_diff_max"] = facts.log_probs.max_abs_difference;
    metrics["training/rollout_log_probs_diff_mean"] = facts.log_probs.mean_abs_difference;
  }
  return metrics;
}

void AddMiniBatchMetric(MetricMap& metrics, const std::string& name, double value, double share) {
  if (!IsExtreme(name)) {
    metrics[name] += value * share;
    return;
  }
  double& extreme = metrics.try_emplace(name, value).first->second;
  extreme = name.ends_with("_min") ? std::min(extreme, value) : std::max(extreme, value);
}

void AddMiniBatchMetrics(StepFacts& facts, const MetricMap& mini_batch, double share, bool first) {
  const double stale = ValueOf(mini_batch, kStaleTokens);
  const double stale_so_far = stale + ValueOf(facts.trainer, kStaleTokens);
  for (const auto& [name, value] : mini_batch) {
    if (IsStaleMean(name)) {
      double& mean = facts.trainer[name];
      mean += (value - mean) * (stale / stale_so_far);
    } else if (name == kStaleTokens) {
      facts.trainer[name] = stale_so_far;
    } else {
      AddMiniBatchMetric(facts.trainer, name, value, share);
      ++facts.mini_batches[name];
    }
  }
  if (first) facts.trainer.merge(OfFirst(mini_batch));
}

void AverageUpdateMetrics(StepFacts& facts, int64_t updates) {
  for (const auto& [name, count] : facts.mini_batches) {
    if (count == updates || IsExtreme(name)) continue;
    facts.trainer.at(name) *= static_cast<double>(updates) / static_cast<double>(count);
  }
}

namespace {

double PartOfWhole(double part, double whole) { return whole > 0 ? part / whole : 0; }

}  // namespace

void AddVersionMetrics(const PartialFacts& facts,
                       const std::vector<SampleMeta>& samples,
                       std::map<std::string, double>& metrics) {
  // Integer sums are exact however many samples there are.
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
