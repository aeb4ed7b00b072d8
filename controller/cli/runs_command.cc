#include "controller/cli/runs_command.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "controller/cli/api_commands.h"
#include "controller/cli/print_tables.h"
#include "controller/report/format.h"
#include "controller/report/terminal_text.h"
#include "controller/store/run_store.h"
#include "controller/view/run_catalog.h"
#include "controller/view/run_dir_view.h"
#include "tandem/v1/controller.pb.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

struct RunRow {
  std::string dir;
  std::string unreadable;  // why the run cannot be read
  v1::GetStatusResponse status;
  std::optional<double> reward;  // of the newest step
};

absl::Status FillRow(RunRow& row) {
  TANDEM_ASSIGN_OR_RETURN(const auto view, RunDirView::Open(row.dir));
  TANDEM_ASSIGN_OR_RETURN(row.status, view->GetStatus());
  v1::ListStepsRequest request;
  request.set_limit(1);
  request.add_metrics(kRewardMean);
  TANDEM_ASSIGN_OR_RETURN(const auto newest, view->ListSteps(request));
  for (const v1::StepRecord& step : newest.steps()) {
    const auto found = step.metrics().find(kRewardMean);
    if (found != step.metrics().end()) row.reward = found->second;
  }
  return absl::OkStatus();
}

std::vector<RunRow> GatherRows(const std::string& root) {
  std::vector<fs::path> folders = RunDirectories(root);
  folders.emplace_back(root);
  std::vector<RunRow> rows;
  for (const fs::path& folder : folders) {
    if (!IsRunDirectory(folder)) continue;
    RunRow row{.dir = folder.string()};
    const absl::Status filled = FillRow(row);
    if (!filled.ok()) row.unreadable = std::string(filled.message());
    rows.push_back(std::move(row));
  }
  std::sort(rows.begin(), rows.end(), [](const RunRow& a, const RunRow& b) {
    return std::pair(a.status.as_of(), a.dir) > std::pair(b.status.as_of(), b.dir);
  });
  return rows;
}

std::string RunsTable(const std::vector<RunRow>& rows) {
  std::vector<std::vector<std::string>> table = {
      {"run", "state", "step", "reward", "ran", "as of", "directory"}};
  for (const RunRow& row : rows) {
    if (!row.unreadable.empty()) {
      table.push_back({"-", "cannot be read", "-", "-", "-", "-", row.dir});
      continue;
    }
    const v1::GetStatusResponse& status = row.status;
    table.push_back({status.run_id(), status.state(),
                     fmt::format("{}/{}", status.step(), status.total_steps()),
                     row.reward ? fmt::format("{:.4g}", *row.reward) : "-",
                     FormatSeconds(status.uptime_seconds()), status.as_of(), row.dir});
  }
  std::string text = FormatTable(table);
  for (const RunRow& row : rows) {
    if (!row.unreadable.empty()) text += OneLine(row.dir + ": " + row.unreadable, 0) + "\n";
  }
  return text;
}

std::string RunsJson(const std::vector<RunRow>& rows) {
  nlohmann::json list = nlohmann::json::array();
  for (const RunRow& row : rows) {
    nlohmann::json run = {{"run_dir", row.dir}};
    if (!row.unreadable.empty()) {
      run["unreadable"] = row.unreadable;
    } else {
      run["run_id"] = row.status.run_id();
      run["state"] = row.status.state();
      run["step"] = row.status.step();
      run["total_steps"] = row.status.total_steps();
      const bool number = row.reward && std::isfinite(*row.reward);
      run["reward"] = number ? nlohmann::json(*row.reward) : nlohmann::json();
      run["seconds"] = row.status.uptime_seconds();
      run["ended_at"] = row.status.ended_at();
      run["as_of"] = row.status.as_of();
      run["attempt"] = row.status.attempt();
      run["error"] = row.status.error();
    }
    list.push_back(std::move(run));
  }
  return nlohmann::json{{"runs", list}}.dump(-1, ' ', false,
                                             nlohmann::json::error_handler_t::replace) +
         "\n";
}

}  // namespace

absl::Status RunsCommand(const std::string& root, bool json, std::ostream& out) {
  const std::vector<RunRow> rows = GatherRows(root);
  if (rows.empty()) {
    return MakeStatus(absl::StatusCode::kNotFound,
                      "there is no run below {}: name a folder that holds run directories", root);
  }
  out << (json ? RunsJson(rows) : RunsTable(rows));
  return absl::OkStatus();
}

}  // namespace tandem
