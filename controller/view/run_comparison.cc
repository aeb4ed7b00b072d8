#include "controller/view/run_comparison.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "common/base/status.h"
#include "common/config/config.h"
#include "controller/store/batch_file.h"
#include "controller/store/saved_batch.h"
#include "controller/store/sqlite/run_reader.h"
#include "controller/view/run_dir_view.h"
#include "controller/view/run_facts.h"

namespace tandem {
namespace {

using Difference = std::optional<RunDifference>;

// The records of both runs.
struct Two {
  RunDirView& a;
  RunDirView& b;
  SqliteRunReader& records_a;
  SqliteRunReader& records_b;
};

// What may differ between runs that are equal: time, the machine, and how the weights travelled.
bool IsOfTheMachine(const std::string& metric) {
  static constexpr std::array<const char*, 7> kPrefixes = {"timing",
                                                           "perf/",
                                                           "partial/tail_",
                                                           "partial/predicted_saving_s",
                                                           "partial/prefilled_tokens",
                                                           "memory/",
                                                           kResentWeights};
  if (metric.ends_with("_bytes")) return true;
  return std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [&](const char* prefix) { return metric.starts_with(prefix); });
}

// Where a run is, and what it is called.
bool NamesTheRun(const std::string& key) {
  static const std::set<std::string> keys = {"trainer.project_name",      "trainer.experiment_name",
                                             "trainer.default_local_dir", "cluster.run_dir",
                                             "cluster.local_dir",         "cluster.listen"};
  return keys.contains(key);
}

std::map<std::string, ConfigDifference> ByKey(std::vector<ConfigDifference> differences) {
  std::map<std::string, ConfigDifference> by_key;
  for (ConfigDifference& difference : differences) by_key[difference.key] = std::move(difference);
  return by_key;
}

absl::StatusOr<std::vector<ConfigPair>> CompareConfigs(const Two& runs) {
  TANDEM_ASSIGN_OR_RETURN(RunConfig config_a, ReadRunConfig(runs.a));
  TANDEM_ASSIGN_OR_RETURN(RunConfig config_b, ReadRunConfig(runs.b));
  const auto a = ByKey(std::move(config_a.differences));
  const auto b = ByKey(std::move(config_b.differences));
  std::map<std::string, ConfigPair> pairs;
  for (const auto& [key, difference] : a) {
    pairs[key] = {key, difference.value, difference.default_value};
  }
  for (const auto& [key, difference] : b) {
    auto [pair, is_new] = pairs.try_emplace(key, ConfigPair{key, difference.default_value, ""});
    pair->second.b = difference.value;
  }
  std::vector<ConfigPair> differing;
  for (auto& [key, pair] : pairs) {
    if (pair.a != pair.b && !NamesTheRun(key)) differing.push_back(std::move(pair));
  }
  return differing;
}

// 0: there is none.
absl::StatusOr<int64_t> NewestStep(SqliteRunReader& records) {
  TANDEM_ASSIGN_OR_RETURN(const auto newest,
                          records.ListSteps({.limit = 1, .workers = false, .phases = false}));
  return newest.empty() ? 0 : newest.back().step;
}

bool AreSameBits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

std::string SampleName(const SavedSample& sample) {
  return fmt::format("sample {} of group {}", sample.index, sample.group);
}

// The first position at which two arrays differ; their lengths may.
template <typename Value>
std::optional<size_t> FirstDifference(const std::vector<Value>& a, const std::vector<Value>& b) {
  const size_t common = std::min(a.size(), b.size());
  for (size_t i = 0; i < common; ++i) {
    if (std::memcmp(&a[i], &b[i], sizeof(Value)) != 0) return i;
  }
  return a.size() == b.size() ? std::nullopt : std::optional(common);
}

template <typename Value>
std::string ValueAt(const std::vector<Value>& values, size_t position) {
  return position < values.size() ? fmt::format("{}", values[position]) : "none";
}

template <typename Value>
Difference CompareArrays(const SavedSample& sample,
                         const std::string& what,
                         int64_t before_response,
                         const std::vector<Value>& a,
                         const std::vector<Value>& b) {
  const auto at = FirstDifference(a, b);
  if (!at) return std::nullopt;
  const auto position = static_cast<int64_t>(*at) - before_response;
  const std::string place =
      position < 0 ? fmt::format("{}, token {} of the prompt", SampleName(sample), *at)
                   : fmt::format("{}, token {} of the response", SampleName(sample), position);
  return RunDifference{.what = what, .place = place, .a = ValueAt(a, *at), .b = ValueAt(b, *at)};
}

Difference CompareSample(const SavedSample& a, const SavedSample& b) {
  if (a.sample_id != b.sample_id) {
    return RunDifference{.what = "samples",
                         .place = "which they are",
                         .a = fmt::format("{} ({:#x})", SampleName(a), a.sample_id),
                         .b = fmt::format("{} ({:#x})", SampleName(b), b.sample_id)};
  }
  if (auto found = CompareArrays(a, "tokens", a.prompt_tokens, a.tokens, b.tokens)) return found;
  if (auto found = CompareArrays(a, kBatchVersions, 0, a.versions, b.versions)) return found;
  for (const SavedArray& array : kSavedArrays) {
    const std::vector<float>& values_a = a.*array.values;
    const std::vector<float>& values_b = b.*array.values;
    if (values_a.empty() || values_b.empty()) continue;  // an array that one run did not keep
    if (auto found = CompareArrays(a, array.name, 0, values_a, values_b)) return found;
  }
  if (AreSameBits(a.score, b.score)) return std::nullopt;
  return RunDifference{.what = "reward",
                       .place = SampleName(a),
                       .a = fmt::format("{}", a.score),
                       .b = fmt::format("{}", b.score)};
}

// Null where the run does not keep the tokens of the step, or has not ended their file.
absl::StatusOr<std::unique_ptr<const BatchReader>> TokensOf(const std::string& run_dir,
                                                            int64_t step) {
  const std::string path = fmt::format("{}/samples/step_{:06}{}", run_dir, step, kSamplesSuffix);
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return nullptr;
  auto batch = BatchReader::Open(path);
  if (absl::IsInvalidArgument(batch.status())) return nullptr;
  return batch;
}

Difference CompareTokens(const BatchReader& a, const BatchReader& b) {
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (auto found = CompareSample(a.Read(i), b.Read(i))) return found;
  }
  if (a.size() == b.size()) return std::nullopt;
  return RunDifference{.what = "samples",
                       .place = "their number",
                       .a = std::to_string(a.size()),
                       .b = std::to_string(b.size())};
}

Difference CompareRecord(const SampleRecord& a, const SampleRecord& b) {
  const std::string place = fmt::format("sample {} of group {}", a.index, a.group);
  if (a.sample_id != b.sample_id) {
    return RunDifference{
        .what = "samples",
        .place = "which they are",
        .a = fmt::format("{} ({:#x})", place, a.sample_id),
        .b = fmt::format("sample {} of group {} ({:#x})", b.index, b.group, b.sample_id)};
  }
  const bool texts = a.texts_kept && b.texts_kept;
  if (texts && a.prompt != b.prompt) return RunDifference{0, "prompt", place, a.prompt, b.prompt};
  if (texts && a.response != b.response) {
    return RunDifference{0, "response", place, a.response, b.response};
  }
  if (!AreSameBits(a.reward, b.reward)) {
    return RunDifference{0, "reward", place, fmt::format("{}", a.reward),
                         fmt::format("{}", b.reward)};
  }
  return std::nullopt;
}

absl::StatusOr<Difference> CompareSamples(const Two& runs, int64_t step, int64_t& token_steps) {
  TANDEM_ASSIGN_OR_RETURN(const auto tokens_a, TokensOf(runs.a.run_dir(), step));
  TANDEM_ASSIGN_OR_RETURN(const auto tokens_b, TokensOf(runs.b.run_dir(), step));
  if (tokens_a != nullptr && tokens_b != nullptr) {
    ++token_steps;
    return CompareTokens(*tokens_a, *tokens_b);
  }
  TANDEM_ASSIGN_OR_RETURN(const SampleRecordPage a, runs.records_a.ListSamples({.step = step}));
  TANDEM_ASSIGN_OR_RETURN(const SampleRecordPage b, runs.records_b.ListSamples({.step = step}));
  for (size_t i = 0; i < std::min(a.samples.size(), b.samples.size()); ++i) {
    if (auto found = CompareRecord(a.samples[i], b.samples[i])) return found;
  }
  if (a.samples.size() == b.samples.size()) return Difference();
  return Difference(RunDifference{0, "samples", "their number", std::to_string(a.samples.size()),
                                  std::to_string(b.samples.size())});
}

Difference CompareMetrics(const StepRecord& a, const StepRecord& b) {
  std::set<std::string> names;
  for (const StepRecord* step : {&a, &b}) {
    for (const auto& metric : step->metrics) names.insert(metric.first);
  }
  const auto text = [](const StepRecord& step, const std::string& name) {
    const auto found = step.metrics.find(name);
    return found == step.metrics.end() ? "none" : fmt::format("{}", found->second);
  };
  for (const std::string& name : names) {
    if (IsOfTheMachine(name)) continue;
    const auto in_a = a.metrics.find(name), in_b = b.metrics.find(name);
    const bool in_both = in_a != a.metrics.end() && in_b != b.metrics.end();
    if (in_both && AreSameBits(in_a->second, in_b->second)) continue;
    return RunDifference{0, "metric", name, text(a, name), text(b, name)};
  }
  return std::nullopt;
}

Difference CompareWeights(const StepRecord& a, const StepRecord& b) {
  std::map<int64_t, std::string> digests;  // by version
  for (const SyncRecord& sync : a.syncs) digests[sync.version] = sync.digest;
  for (const SyncRecord& sync : b.syncs) {
    const auto other = digests.find(sync.version);
    if (other == digests.end() || other->second == sync.digest) continue;
    return RunDifference{0, "weights", fmt::format("version {}", sync.version), other->second,
                         sync.digest};
  }
  return std::nullopt;
}

absl::StatusOr<StepRecord> StepOf(SqliteRunReader& records, int64_t step) {
  TANDEM_ASSIGN_OR_RETURN(auto steps, records.ListSteps({.first_step = step,
                                                         .last_step = step,
                                                         .workers = false,
                                                         .phases = false,
                                                         .details = true}));
  if (steps.empty()) return StepRecord{.step = step};
  return std::move(steps.back());
}

absl::StatusOr<Difference> CompareStep(const Two& runs, int64_t step, int64_t& token_steps) {
  TANDEM_ASSIGN_OR_RETURN(Difference found, CompareSamples(runs, step, token_steps));
  if (!found) {
    TANDEM_ASSIGN_OR_RETURN(const StepRecord a, StepOf(runs.records_a, step));
    TANDEM_ASSIGN_OR_RETURN(const StepRecord b, StepOf(runs.records_b, step));
    // Of the weights that sampled the step, before what the step made of it.
    found = CompareWeights(a, b);
    if (!found) found = CompareMetrics(a, b);
  }
  if (found) found->step = step;
  return found;
}

absl::Status AddLastStep(const Two& runs, RunComparison& comparison) {
  TANDEM_ASSIGN_OR_RETURN(const StepRecord a, StepOf(runs.records_a, comparison.last_step));
  TANDEM_ASSIGN_OR_RETURN(const StepRecord b, StepOf(runs.records_b, comparison.last_step));
  for (const char* name : {kRewardMean, kLoss, kEntropy, kPolicyKl, kGradNorm, kResponseLengthMean,
                           kStepSeconds, kGenerationThroughput, kTrainingThroughput}) {
    const auto in_a = a.metrics.find(name), in_b = b.metrics.find(name);
    if (in_a == a.metrics.end() || in_b == b.metrics.end()) continue;
    comparison.last.push_back({name, in_a->second, in_b->second});
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RunComparison> CompareRuns(RunDirView& a, RunDirView& b, int64_t step) {
  if (a.records() == nullptr || b.records() == nullptr) {
    return FailedPrecondition("{} ended before it had any records",
                              a.records() == nullptr ? a.run_dir() : b.run_dir());
  }
  const Two runs{a, b, *a.records(), *b.records()};
  RunComparison comparison;
  TANDEM_ASSIGN_OR_RETURN(comparison.config, CompareConfigs(runs));
  TANDEM_ASSIGN_OR_RETURN(comparison.steps_a, NewestStep(runs.records_a));
  TANDEM_ASSIGN_OR_RETURN(comparison.steps_b, NewestStep(runs.records_b));
  const int64_t common = std::min(comparison.steps_a, comparison.steps_b);
  if (common == 0 || step > common) {
    return FailedPrecondition("{} has {} steps and {} has {}: there is no {} to compare",
                              a.run_dir(), comparison.steps_a, b.run_dir(), comparison.steps_b,
                              step == 0 ? "step" : fmt::format("step {}", step));
  }
  comparison.first_step = step == 0 ? 1 : step;
  comparison.last_step = step == 0 ? common : step;
  for (int64_t s = comparison.first_step; s <= comparison.last_step && !comparison.difference;
       ++s) {
    TANDEM_ASSIGN_OR_RETURN(comparison.difference, CompareStep(runs, s, comparison.token_steps));
  }
  TANDEM_RETURN_IF_ERROR(AddLastStep(runs, comparison));
  return comparison;
}

}  // namespace tandem
