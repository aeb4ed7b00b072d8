#include "controller/cli/reading_commands.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/base/status.h"
#include "common/types/shell_word.h"
#include "controller/cli/print_tables.h"
#include "tandem/v1/controller.pb.h"

namespace tandem {

std::string CommandWords(const std::string& option, const std::string& value) {
  if (value.empty()) return "";
  return (option.empty() ? "" : " " + option) + " " + ShellWord(value);
}

absl::Status ReadingCommands::ShowStatus() {
  TANDEM_ASSIGN_OR_RETURN(const auto status, view_.GetStatus());
  std::string newest;
  if (!json_ && status.step() > 0) {
    v1::ListStepsRequest request;
    request.set_first_step(status.step());
    request.set_last_step(status.step());
    request.set_no_ledgers(true);
    // Failure is ignored: the status is complete without this line.
    const auto steps = view_.ListSteps(request);
    if (steps.ok()) newest += NewestStepText(*steps);
  }
  PrintAnswer(out_, json_, status,
              StatusTable(status) + NotMadeAgainText(status) + newest + PostMortemText(status));
  return absl::OkStatus();
}

absl::StatusOr<v1::ListStepsResponse> ReadingCommands::GatherSteps(const StepsOptions& options) {
  v1::ListStepsRequest request;
  request.set_undone(options.undone);
  request.set_first_step(options.step != 0 ? options.step : options.first_step);
  request.set_last_step(options.step != 0 ? options.step : options.last_step);
  request.set_no_ledgers(true);
  request.set_details(options.step != 0);
  request.mutable_metrics()->Assign(options.metrics.begin(), options.metrics.end());
  std::vector<v1::ListStepsResponse> pages;  // from the newest on
  int64_t gathered = 0;
  while (options.newest == 0 || gathered < options.newest) {
    request.set_limit(options.newest == 0 ? 0 : options.newest - gathered);
    TANDEM_ASSIGN_OR_RETURN(auto page, view_.ListSteps(request));
    if (page.steps_size() == 0) break;
    request.set_last_step(page.steps(0).step() - 1);
    gathered += page.steps_size();
    pages.push_back(std::move(page));
    if (request.last_step() < std::max<int64_t>(1, request.first_step())) break;
  }
  v1::ListStepsResponse all;
  for (auto page = pages.rbegin(); page != pages.rend(); ++page) all.MergeFrom(*page);
  return all;
}

absl::Status ReadingCommands::CheckMetrics(const StepsOptions& options,
                                           const v1::ListStepsResponse& steps) {
  for (const std::string& name : options.metrics) {
    const bool found =
        std::any_of(steps.steps().begin(), steps.steps().end(),
                    [&name](const v1::StepRecord& step) { return step.metrics().contains(name); });
    if (found || steps.steps_size() == 0) continue;
    v1::ListStepsRequest request;  // all names of the newest step
    request.set_first_step(steps.steps().rbegin()->step());
    request.set_last_step(request.first_step());
    request.set_no_ledgers(true);
    request.set_undone(options.undone);
    TANDEM_ASSIGN_OR_RETURN(const auto newest, view_.ListSteps(request));
    std::vector<std::string> names;
    for (const v1::StepRecord& step : newest.steps()) {
      for (const auto& [known, value] : step.metrics()) names.push_back(known);
    }
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return MakeStatus(absl::StatusCode::kNotFound,
                      "no step shown has the metric \"{}\"; step {} has: {}", name,
                      request.first_step(), fmt::join(names, ", "));
  }
  return absl::OkStatus();
}

std::string ReadingCommands::StepsEnd(const StepsOptions& options,
                                      const v1::ListStepsResponse& steps) {
  if (steps.steps_size() == 0) return "";
  const int64_t first = steps.steps(0).step(), last = steps.steps().rbegin()->step();
  std::string text;
  if (options.step == 0 && options.newest > 0 && first > std::max<int64_t>(1, options.first_step)) {
    text =
        fmt::format("earlier steps: tandemctl steps{}{} --to {} --last {}{}{}\n", options.run_words,
                    options.first_step > 1 ? fmt::format(" --from {}", options.first_step) : "",
                    first - 1, options.newest,
                    CommandWords("--metrics", fmt::format("{}", fmt::join(options.metrics, ","))),
                    options.undone ? " --undone" : "");
  }
  const std::string note = options.undone ? "" : view_.NoteOnSteps(first, last);
  return note.empty() ? text : text + note + "\n";
}

absl::Status ReadingCommands::Steps(const StepsOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const v1::ListStepsResponse steps, GatherSteps(options));
  if (options.step != 0 && steps.steps_size() == 0) {
    return MakeStatus(absl::StatusCode::kNotFound,
                      "no step {} in this run: tandemctl steps{} lists all", options.step,
                      options.undone ? " --undone" : "");
  }
  TANDEM_RETURN_IF_ERROR(CheckMetrics(options, steps));
  if (json_) {
    PrintAnswer(out_, json_, steps, "");
    return absl::OkStatus();
  }
  std::string table = options.metrics.empty() ? StepsText(steps, options.undone)
                                              : MetricsTable(steps, options.metrics);
  if (options.step != 0) {
    for (const v1::StepRecord& step : steps.steps()) table += StepDetailsText(step);
  }
  PrintAnswer(out_, json_, steps, table + StepsEnd(options, steps));
  return absl::OkStatus();
}

namespace {

// Why there are no samples.
absl::Status NoSamples(const SamplesOptions& options) {
  const int64_t step = options.step.value_or(0);
  const std::string of_step = step == 0 ? "" : fmt::format(" of step {}", step);
  std::string text;
  if (!options.where.empty() || !options.contains.empty()) {
    text = fmt::format("no sample{} matches{}{}: leave them out to see all", of_step,
                       CommandWords("--where", options.where),
                       CommandWords("--contains", options.contains));
  } else if (options.undone_by != 0) {
    text = fmt::format("generation {} has undone no step {}: tandemctl steps --undone lists all",
                       options.undone_by, step);
  } else if (options.evaluation) {
    text = fmt::format(
        "no response of a validation{} is recorded: the run has not validated then "
        "(data.val_files, "
        "trainer.test_freq), or a build before schema version 6 of run.db recorded the numbers "
        "alone",
        options.step ? fmt::format(" after step {}", step) : "");
  } else if (options.prompt_id != 0) {
    text = fmt::format("no sample{} has the prompt {}: tandemctl samples shows their numbers",
                       of_step, options.prompt_id);
  } else if (options.evicted) {
    text = fmt::format(
        "dynamic sampling (algorithm.filter_groups) dropped no sample{}, or a build before schema "
        "version 6 of run.db recorded none",
        of_step);
  } else {
    text = fmt::format("no step {} in this run: tandemctl steps lists all", step);
  }
  return absl::NotFoundError(text);
}

}  // namespace

absl::Status ReadingCommands::Samples(SamplesOptions options) {
  const bool newest = options.step.value_or(0) == 0;
  if (newest && !options.evaluation && options.prompt_id == 0) {
    TANDEM_ASSIGN_OR_RETURN(const auto status, view_.GetStatus());
    options.step = status.step();
  }
  v1::ListSamplesResponse all;
  while (all.samples_size() < options.limit || all.samples_size() == 0) {
    v1::ListSamplesRequest request;
    if (options.step) request.set_step(*options.step);
    request.set_limit(options.limit <= 0 ? 0 : options.limit - all.samples_size());
    request.set_offset(options.offset + all.samples_size());
    request.set_undone_by(options.undone_by);
    request.set_prompt_id(options.prompt_id);
    request.set_evicted(options.evicted);
    request.set_evaluation(options.evaluation);
    request.set_where(options.where);
    request.set_contains(options.contains);
    request.set_sort(options.sort);
    TANDEM_ASSIGN_OR_RETURN(auto page, view_.ListSamples(request));
    if (all.samples_size() > 0) page.clear_groups();  // each page has all of them
    all.MergeFrom(page);
    if (page.samples_size() == 0) break;
  }
  if (all.total() == 0) return NoSamples(options);
  PrintAnswer(out_, json_, all, SamplesTable(all, options.width));
  return absl::OkStatus();
}

absl::Status ReadingCommands::Memory(MemoryOptions options) {
  options.json = json_;
  TANDEM_ASSIGN_OR_RETURN(const auto status, view_.GetStatus());
  v1::ListStepsRequest request;
  request.set_first_step(options.step > 0 ? options.step : status.step());
  request.set_last_step(request.first_step());
  v1::ListStepsResponse steps;
  if (request.first_step() > 0) {
    TANDEM_ASSIGN_OR_RETURN(steps, view_.ListSteps(request));
  }
  if (options.step > 0 && steps.steps_size() == 0) {
    return MakeStatus(absl::StatusCode::kNotFound, "step {} is not finished; the newest is {}",
                      options.step, status.step());
  }
  if (status.from_files() && steps.steps_size() == 0) {
    return MakeStatus(absl::StatusCode::kNotFound, "the run in {} has not finished a step",
                      status.run_dir());
  }
  return PrintMemory(MakeStepMemory(status, steps), options, out_);
}

}  // namespace tandem
