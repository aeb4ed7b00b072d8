#include "controller/report/run_tables.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include <fmt/format.h>

#include "controller/report/format.h"
#include "controller/store/run_store.h"

namespace tandem {
namespace {

double Find(const std::map<std::string, double>& metrics, const std::string& name) {
  const auto found = metrics.find(name);
  return found == metrics.end() ? std::numeric_limits<double>::quiet_NaN() : found->second;
}

std::string WithInterval(const EvaluationRecord& evaluation) {
  const double interval = MetricOf(evaluation, kValRewardInterval);
  const std::string mean = FormatShare(MetricOf(evaluation, kValRewardMean));
  return std::isnan(interval) ? mean : mean + " ± " + FormatShare(interval);
}

// The change of the held-out reward between two validations, compared with the expectation.
std::string RiseText(const EvaluationRecord& first,
                     const EvaluationRecord& last,
                     double expected_rise) {
  const double rise = MetricOf(last, kValRewardMean) - MetricOf(first, kValRewardMean);
  const double interval =
      std::hypot(MetricOf(first, kValRewardInterval), MetricOf(last, kValRewardInterval));
  const double noise = std::isnan(interval) ? 0 : interval;
  const std::string size =
      std::isnan(interval)
          ? FormatShare(std::abs(rise))
          : fmt::format("{} ± {} (95 %)", FormatShare(std::abs(rise)), FormatShare(interval));
  std::string text = "rose by " + size;
  if (rise < -noise) {
    text = "fell by " + size;
  } else if (!(rise > noise)) {
    text = fmt::format("did not rise: {}{}, within its interval", rise < 0 ? "-" : "+", size);
  }
  if (expected_rise > 0 && !(rise >= expected_rise)) {
    text += fmt::format(", less than the {} expected", FormatShare(expected_rise));
  }
  return text;
}

}  // namespace

double MetricOf(const StepRecord& step, const std::string& name) {
  return Find(step.metrics, name);
}
double MetricOf(const EvaluationRecord& evaluation, const std::string& name) {
  return Find(evaluation.metrics, name);
}

std::vector<CoreMetric> CoreMetrics(const EvaluationRecord& evaluation) {
  // val-core/<source>/<key>/<metric>@<n>[/mean or /std]; a source may contain slashes.
  const std::string section = "val-core/";
  std::vector<CoreMetric> metrics;
  for (const auto& [name, value] : evaluation.metrics) {
    const size_t at = name.rfind('@');
    if (!name.starts_with(section) || at == std::string::npos || name.ends_with("/std")) continue;
    const size_t metric = name.rfind('/', at);
    const size_t key = name.rfind('/', metric - 1);
    if (key == std::string::npos || key < section.size()) continue;
    metrics.push_back({.source = name.substr(section.size(), key - section.size()) + " " +
                                 name.substr(key + 1, metric - key - 1),
                       .metric = name.substr(metric + 1, name.find('/', at) - metric - 1),
                       .value = value});
  }
  return metrics;
}

std::vector<std::string> CoreMetricLines(const EvaluationRecord& evaluation) {
  const std::vector<CoreMetric> metrics = CoreMetrics(evaluation);
  std::vector<std::string> lines;
  if (metrics.size() < 2) return lines;
  for (size_t i = 0; i < metrics.size(); ++i) {
    const bool first = i == 0 || metrics[i].source != metrics[i - 1].source;
    if (first) lines.push_back(metrics[i].source + ":");
    lines.back() += fmt::format("{}{} {}", first ? " " : "  ", metrics[i].metric,
                                FormatShare(metrics[i].value));
  }
  return lines;
}

std::vector<PhaseTotal> TotalPhases(const std::vector<StepRecord>& steps) {
  std::vector<PhaseTotal> totals;
  std::vector<int64_t> counts;
  double all = 0;
  for (const StepRecord& step : steps) {
    for (const PhaseTime& phase : step.phases) {
      auto at = std::find_if(totals.begin(), totals.end(),
                             [&](const PhaseTotal& t) { return t.phase == phase.phase; });
      if (at == totals.end()) {
        totals.push_back({phase.phase});
        counts.push_back(0);
        at = totals.end() - 1;
      }
      at->seconds += phase.seconds;
      at->peak_bytes = std::max(at->peak_bytes, phase.peak_bytes);
      ++counts[static_cast<size_t>(at - totals.begin())];
      all += phase.seconds;
    }
  }
  for (size_t i = 0; i < totals.size(); ++i) {
    totals[i].mean_seconds = totals[i].seconds / static_cast<double>(counts[i]);
    totals[i].share = all > 0 ? totals[i].seconds / all : 0;
  }
  return totals;
}

std::string PhaseTable(const std::vector<StepRecord>& steps) {
  std::vector<std::vector<std::string>> rows = {{"phase", "per step", "share", "peak memory"}};
  for (const PhaseTotal& total : TotalPhases(steps)) {
    rows.push_back({total.phase, FormatSeconds(total.mean_seconds),
                    fmt::format("{:.1f} %", 100 * total.share), FormatBytes(total.peak_bytes)});
  }
  return FormatTable(rows);
}

std::string ResentText(const std::vector<StepRecord>& steps) {
  int64_t all = 0;
  std::string where;
  for (const StepRecord& step : steps) {
    const auto found = step.metrics.find(kResentWeights);
    if (found == step.metrics.end()) continue;
    const int64_t rollouts = std::llround(found->second);
    all += rollouts;
    where += fmt::format("{}{} in step {}", where.empty() ? "" : ", ", rollouts, step.step);
  }
  if (all == 0) return "";
  return fmt::format("weights were sent again to {} rollout{} that had lost them: {}", all,
                     all == 1 ? "" : "s", where);
}

std::string RewardCurve(const std::vector<StepRecord>& steps) {
  std::vector<double> rewards;
  for (const StepRecord& step : steps) {
    const double reward = MetricOf(step, kRewardMean);
    if (!std::isnan(reward)) rewards.push_back(reward);
  }
  if (rewards.empty()) return "no step was finished\n";
  return fmt::format("{}  step {}: {}, step {}: {}, best {}\n", Sparkline(rewards),
                     steps.front().step, FormatShare(rewards.front()), steps.back().step,
                     FormatShare(rewards.back()),
                     FormatShare(*std::max_element(rewards.begin(), rewards.end())));
}

std::string EvaluationText(const std::vector<EvaluationRecord>& evaluations, double expected_rise) {
  if (evaluations.empty()) return "";
  const EvaluationRecord& first = evaluations.front();
  const EvaluationRecord& last = evaluations.back();
  if (evaluations.size() == 1) {
    return fmt::format("held-out reward after step {}: {} ({} prompts){}\n", first.step,
                       WithInterval(first), first.prompts,
                       expected_rise > 0 ? "; a rise takes two validations to tell" : "");
  }
  return fmt::format("held-out reward: {} before (step {}) -> {} after step {}: {}\n",
                     WithInterval(first), first.step, WithInterval(last), last.step,
                     RiseText(first, last, expected_rise));
}

}  // namespace tandem
