#include "controller/cli/runs/compare_command.h"

#include <cmath>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "controller/report/format.h"
#include "controller/report/terminal_text.h"
#include "controller/view/run_comparison.h"
#include "controller/view/run_dir_view.h"

namespace tandem {
namespace {

constexpr size_t kShownCharacters = 200;

std::string Indented(const std::string& label, const std::string& text) {
  return fmt::format("  {}  {}\n", label, OneLine(text, kShownCharacters));
}

std::string DifferenceText(const RunComparison& comparison) {
  const std::string steps =
      comparison.first_step == comparison.last_step
          ? fmt::format("step {}", comparison.first_step)
          : fmt::format("steps {} to {}", comparison.first_step, comparison.last_step);
  const int64_t all = comparison.last_step - comparison.first_step + 1;
  if (!comparison.difference && comparison.token_steps == all) {
    return fmt::format("equal to the last bit in {}\n", steps);
  }
  if (!comparison.difference) {
    return fmt::format(
        "equal in {}: tokens and what is known of each in {} of them, else texts and rewards, of "
        "which the tokens are not kept (trainer.sample_files_to_keep)\n",
        steps, comparison.token_steps);
  }
  const RunDifference& found = *comparison.difference;
  return fmt::format("the runs part in step {}: {}{}\n", found.step, found.what,
                     found.place.empty() ? "" : ", " + OneLine(found.place, 0)) +
         Indented("a", found.a) + Indented("b", found.b);
}

std::string ComparisonText(const CompareOptions& options, const RunComparison& comparison) {
  std::string text = fmt::format("a  {}  {} steps\nb  {}  {} steps\n", OneLine(options.a, 0),
                                 comparison.steps_a, OneLine(options.b, 0), comparison.steps_b);
  text += DifferenceText(comparison);
  if (comparison.config.empty()) {
    text += "the configurations are the same but for names and folders\n";
  } else {
    std::vector<std::vector<std::string>> rows = {{"key", "a", "b"}};
    for (const ConfigPair& pair : comparison.config) rows.push_back({pair.key, pair.a, pair.b});
    text += FormatTable(std::move(rows));
  }
  std::vector<std::vector<std::string>> rows = {
      {fmt::format("step {}", comparison.last_step), "a", "b", "b/a"}};
  for (const MetricPair& pair : comparison.last) {
    rows.push_back({pair.name, fmt::format("{:.6g}", pair.a), fmt::format("{:.6g}", pair.b),
                    pair.a == 0 ? "-" : fmt::format("{:.3g}", pair.b / pair.a)});
  }
  return text + FormatTable(std::move(rows));
}

nlohmann::json NumberJson(double number) {
  return std::isfinite(number) ? nlohmann::json(number) : nlohmann::json(fmt::format("{}", number));
}

std::string ComparisonJson(const RunComparison& comparison) {
  nlohmann::json config = nlohmann::json::array(), last = nlohmann::json::array();
  for (const ConfigPair& pair : comparison.config) {
    config.push_back({{"key", pair.key}, {"a", pair.a}, {"b", pair.b}});
  }
  for (const MetricPair& pair : comparison.last) {
    last.push_back({{"name", pair.name}, {"a", NumberJson(pair.a)}, {"b", NumberJson(pair.b)}});
  }
  nlohmann::json json = {{"equal", !comparison.difference},
                         {"first_step", comparison.first_step},
                         {"last_step", comparison.last_step},
                         {"steps_a", comparison.steps_a},
                         {"steps_b", comparison.steps_b},
                         {"steps_with_tokens", comparison.token_steps},
                         {"config", std::move(config)},
                         {"metrics_of_last_step", std::move(last)},
                         {"difference", nullptr}};
  if (const auto& found = comparison.difference) {
    json["difference"] = {{"step", found->step},
                          {"what", found->what},
                          {"place", found->place},
                          {"a", found->a},
                          {"b", found->b}};
  }
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace

absl::StatusOr<bool> CompareCommand(const CompareOptions& options, std::ostream& out) {
  TANDEM_ASSIGN_OR_RETURN(const auto a, RunDirView::Open(options.a));
  TANDEM_ASSIGN_OR_RETURN(const auto b, RunDirView::Open(options.b));
  TANDEM_ASSIGN_OR_RETURN(const RunComparison comparison, CompareRuns(*a, *b, options.step));
  out << (options.json ? ComparisonJson(comparison) : ComparisonText(options, comparison));
  return !comparison.difference.has_value();
}

}  // namespace tandem
