#include "controller/view/run_facts.h"

#include <cmath>
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "common/config/config.h"
#include "controller/store/sqlite/run_reader.h"
#include "controller/view/run_dir_view.h"
#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

// The text of a value that is JSON.
std::string PlainText(const std::string& json) {
  const auto value = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  return value.is_string() ? value.get<std::string>() : json;
}

absl::Status AddRewards(SqliteRunReader& records, RunFacts& facts) {
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<StepRecord> steps,
      records.ListSteps(
          {.limit = kRewards, .workers = false, .phases = false, .metrics = {kRewardMean}}));
  for (const StepRecord& step : steps) {
    const auto found = step.metrics.find(kRewardMean);
    facts.rewards.push_back(found == step.metrics.end() ? std::numeric_limits<double>::quiet_NaN()
                                                        : found->second);
  }
  return absl::OkStatus();
}

absl::Status AddHeldOut(SqliteRunReader& records, RunFacts& facts) {
  TANDEM_ASSIGN_OR_RETURN(const auto newest, records.ListEvaluations({.newest = true}));
  for (const EvaluationRecord& evaluation : newest) {
    const auto number = [&evaluation](const char* name) -> std::optional<double> {
      const auto found = evaluation.metrics.find(name);
      if (found == evaluation.metrics.end()) return std::nullopt;
      return found->second;
    };
    facts.held_out = number(kValRewardMean);
    facts.held_out_interval = number(kValRewardInterval);
  }
  return absl::OkStatus();
}

}  // namespace

RunFactsReader::ConfigFacts RunFactsReader::FactsOf(const std::string& run_dir,
                                                    const RunInfo& info) {
  const std::string key = run_dir + " " + info.started_at;
  const MutexLock lock(mutex_);
  const auto found = configs_.find(key);
  if (found != configs_.end()) return found->second;
  ConfigFacts facts;
  const v1::Config defaults = DefaultConfig();
  const auto changes = DiffConfig(info.config_yaml, defaults);
  if (!changes.ok()) return facts;
  facts.model = defaults.model().path();
  facts.algorithm = PlainText(KeyToYaml(defaults, "algorithm.adv_estimator"));
  for (const ConfigChange& change : *changes) {
    if (change.key == "model.path") facts.model = PlainText(change.before);
    if (change.key == "algorithm.adv_estimator") facts.algorithm = PlainText(change.before);
  }
  if (configs_.size() == kConfigs) configs_.clear();
  return configs_[key] = std::move(facts);
}

absl::StatusOr<RunFacts> RunFactsReader::Read(RunDirView& view) {
  RunFacts facts;
  SqliteRunReader* const records = view.records();
  if (records == nullptr) return facts;
  absl::StatusOr<RunInfo> info = records->NewestRun();
  if (!info.ok() && !absl::IsNotFound(info.status())) return info.status();
  if (info.ok()) {
    facts.started_at = info->started_at;
    facts.build = info->build;
    facts.numerics_class = info->numerics_class;
    ConfigFacts of_config = FactsOf(view.run_dir(), *info);
    facts.model = std::move(of_config.model);
    facts.algorithm = std::move(of_config.algorithm);
  }
  TANDEM_RETURN_IF_ERROR(AddRewards(*records, facts));
  TANDEM_RETURN_IF_ERROR(AddHeldOut(*records, facts));
  return facts;
}

absl::StatusOr<RunConfig> ReadRunConfig(RunDirView& view) {
  if (view.records() == nullptr) {
    return MakeStatus(absl::StatusCode::kNotFound,
                      "the run ended before its configuration was recorded");
  }
  TANDEM_ASSIGN_OR_RETURN(const RunInfo info, view.records()->NewestRun());
  TANDEM_ASSIGN_OR_RETURN(const auto changes, DiffConfig(info.config_yaml, DefaultConfig()));
  RunConfig config{.yaml = info.config_yaml};
  for (const ConfigChange& change : changes) {
    config.differences.push_back({change.key, change.before, change.now});
  }
  return config;
}

}  // namespace tandem
