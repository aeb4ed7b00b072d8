#include "controller/assembly/run_takeover.h"

#include <functional>

#include <fmt/format.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "controller/assembly/run_outputs.h"
#include "controller/store/earlier_run.h"
#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

absl::Status BeginAnew(const TakeoverParts& parts) {
  TANDEM_RETURN_IF_ERROR(parts.records.ContinueIn(RecordsPath(parts.config)));
  // The folder was moved with the samples in it.
  TANDEM_RETURN_IF_ERROR(MakeFolder(parts.config.cluster().run_dir() + "/samples"));
  return parts.journal == nullptr ? absl::OkStatus() : parts.journal->Clear();
}

// Returns where the files are, for the user; "": nothing was moved.
absl::StatusOr<std::string> MoveEarlier(const TakeoverParts& parts) {
  EarlierRun earlier(parts.config.cluster().run_dir(), parts.checkpoints, parts.start.set_aside,
                     parts.start.step);
  // An interrupted move has already settled the store; since then the database and its log may be
  // in different folders.
  if (parts.start.set_aside == SetAside::kWholeRun && !earlier.WasInterrupted()) {
    TANDEM_RETURN_IF_ERROR(SettleStore(RecordsPath(parts.config)));
  }
  return earlier.Move();
}

void TellMoved(const TakeoverParts& parts, const std::string& moved) {
  const bool whole = parts.start.set_aside == SetAside::kWholeRun;
  const std::string text = fmt::format(
      "{} moved to {}", whole ? "the earlier run was" : "later checkpoints were", moved);
  LogInfo("{}", text);
  parts.progress.OnMessage(text);
}

}  // namespace

std::string RecordsPath(const v1::Config& config) { return config.cluster().run_dir() + "/run.db"; }

absl::Status TakeOverRunDir(const TakeoverParts& parts) {
  const std::string& run_dir = parts.config.cluster().run_dir();
  const auto until = [&](const char* what, const std::function<absl::Status()>& write) {
    return parts.disk.Until({.what = what, .folder = run_dir}, write);
  };
  std::string moved;
  TANDEM_RETURN_IF_ERROR(until("the move of an earlier run", [&]() -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(moved, MoveEarlier(parts));
    return absl::OkStatus();
  }));
  if (!moved.empty()) TellMoved(parts, moved);
  if (parts.start.set_aside == SetAside::kWholeRun) {
    TANDEM_RETURN_IF_ERROR(until("run.db of a new run", [&] { return BeginAnew(parts); }));
  }
  parts.tracker.Use(MakeTrackers(parts.config, parts.log_json, RealClock()));
  return until("the mark of a launch", [&] { return ClaimForLaunch(run_dir, parts.launch_id); });
}

}  // namespace tandem
