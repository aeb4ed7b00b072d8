#include "controller/report/run_tables.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

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
double NumberOf(const StepRecord& step, const std::string& name) {
  const double value = MetricOf(step, name);
  return std::isnan(value) ? 0 : value;
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

std::vector<PhaseTotal> TotalPhases(const RunFigures& figures) {
  std::vector<PhaseTotal> totals = figures.phases;
  double all = 0;
  for (const PhaseTotal& total : totals) all += total.seconds;
  for (PhaseTotal& total : totals) {
    total.mean_seconds = total.seconds / static_cast<double>(total.steps);
    total.share = all > 0 ? total.seconds / all : 0;
  }
  return totals;
}

std::string PhaseTable(const RunFigures& figures) {
  std::vector<std::vector<std::string>> rows = {{"phase", "per step", "share", "peak memory"}};
  for (const PhaseTotal& total : TotalPhases(figures)) {
    rows.push_back({total.phase, FormatSeconds(total.mean_seconds),
                    fmt::format("{:.1f} %", 100 * total.share), FormatBytes(total.peak_bytes)});
  }
  return FormatTable(rows);
}

std::string ResentText(const RunFigures& figures) {
  const int64_t all = figures.resent_rollouts;
  if (all == 0) return "";
  std::vector<std::string> where;
  int64_t named = 0;
  for (const NotedStep& step : figures.resent) {
    where.push_back(fmt::format("{} in step {}", step.rollouts, step.step));
    named += step.rollouts;
  }
  return fmt::format("weights were sent again to {} rollout{} that had lost them: {}{}", all,
                     all == 1 ? "" : "s", fmt::join(where, ", "),
                     named < all ? fmt::format(", {} later", all - named) : "");
}

std::string TimeOfSteps(int64_t steps, int64_t first_step, double seconds) {
  if (first_step == 0) return " in " + FormatSeconds(seconds);
  // A run that ends before it has loaded its checkpoint has not run any step.
  return fmt::format(": the {} since the resume took {}", std::max<int64_t>(0, steps - first_step),
                     FormatSeconds(seconds));
}

std::string UndoneText(const RunFigures& figures) {
  if (figures.undone_steps == 0) return "";
  std::vector<std::string> which;
  for (const NotedStep& step : figures.undone) {
    which.push_back(fmt::format("{} by generation {}", step.step, step.undone_by));
  }
  const int64_t more = figures.undone_steps - std::ssize(figures.undone);
  const bool all_again = figures.last_undone <= figures.last_step;
  return fmt::format(
      "{} undone by recoveries{} (tandemctl steps --undone): step {}{}{}",
      figures.undone_steps == 1 ? "1 step was" : fmt::format("{} steps were", figures.undone_steps),
      all_again ? " and made again" : "", fmt::join(which, ", "),
      more > 0 ? fmt::format(" and {} more", more) : "",
      all_again ? "" : fmt::format("; those after step {} were not made again", figures.last_step));
}

namespace {

constexpr size_t kSparks = 120;  // characters of the reward curve

// The means of about equal parts of the curve, if it has more points than are shown.
std::vector<double> Sparks(const std::vector<PlotPoint>& points) {
  const size_t parts = std::min(points.size(), kSparks);
  std::vector<double> values;
  for (size_t part = 0; part < parts; ++part) {
    const size_t begin = part * points.size() / parts, end = (part + 1) * points.size() / parts;
    double sum = 0;
    for (size_t i = begin; i < end; ++i) sum += points[i].y;
    values.push_back(sum / static_cast<double>(end - begin));
  }
  return values;
}

}  // namespace

std::string RewardCurve(const RunFigures& figures) {
  const std::vector<double> rewards = Sparks(figures.Curve(kRewardMean));
  if (rewards.empty()) return "no step was finished\n";
  return fmt::format("{}  step {}: {}, step {}: {}, best {}\n", Sparkline(rewards),
                     figures.first_step, FormatShare(figures.first_reward), figures.last_step,
                     FormatShare(figures.last_reward), FormatShare(figures.best_reward));
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
