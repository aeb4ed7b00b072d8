#include "controller/view/unsaved_steps.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/config/config.h"
#include "controller/store/checkpoint_index.h"
#include "controller/store/sqlite/run_reader.h"
#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

// trainer.default_local_dir of the configuration that a run was started with; "" if it is not
// there.
std::string RecordedCheckpointDir(const std::string& config_yaml) {
  const auto changes = DiffConfig(config_yaml, DefaultConfig());
  if (!changes.ok()) return "";
  for (const ConfigChange& change : *changes) {
    if (change.key != "trainer.default_local_dir") continue;
    const auto value = nlohmann::json::parse(change.before, nullptr, /*allow_exceptions=*/false);
    return value.is_string() ? value.get<std::string>() : "";
  }
  return "";
}

std::string FindCheckpointDirectory(const std::string& run_dir, SqliteRunReader& records) {
  const absl::StatusOr<RunInfo> info = records.NewestRun();
  const std::string dir = info.ok() ? RecordedCheckpointDir(info->config_yaml) : "";
  if (dir.empty()) return run_dir + "/checkpoints";
  // What was in the run directory has moved with it.
  const bool within = !info->run_dir.empty() && dir.starts_with(info->run_dir + "/");
  return within ? run_dir + dir.substr(info->run_dir.size()) : dir;
}

}  // namespace

std::string UnsavedStepsText(const std::string& run_dir,
                             SqliteRunReader& records,
                             int64_t first,
                             int64_t last) {
  const std::string dir = FindCheckpointDirectory(run_dir, records);
  const FoundCheckpoint found = CheckpointIndex::OpenReadOnly(dir).FindNewest();
  const int64_t saved = found.newest ? found.newest->step : 0;
  first = std::max(first, saved + 1);
  if (first > last) return "";
  const bool one = first == last;
  return fmt::format(
      "{} in no checkpoint ({}): a start that continues the run makes {} again",
      one ? fmt::format("step {} is", first) : fmt::format("steps {} to {} are", first, last),
      found.newest ? fmt::format("the newest in {} is of step {}", dir, saved)
                   : fmt::format("none is complete in {}", dir),
      one ? "it" : "them");
}

}  // namespace tandem
