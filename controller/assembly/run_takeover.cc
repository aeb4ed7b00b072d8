#include "controller/assembly/run_takeover.h"

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

}  // namespace

std::string RecordsPath(const v1::Config& config) { return config.cluster().run_dir() + "/run.db"; }

absl::Status TakeOverRunDir(const TakeoverParts& parts) {
  const std::string& run_dir = parts.config.cluster().run_dir();
  const bool whole = parts.start.set_aside == SetAside::kWholeRun;
  if (whole) SettleStore(RecordsPath(parts.config));
  EarlierRun earlier(run_dir, parts.checkpoints, parts.start.set_aside, parts.start.step);
  TANDEM_ASSIGN_OR_RETURN(const std::string moved, earlier.Move());
  if (!moved.empty()) {
    const std::string text = fmt::format(
        "{} moved to {}", whole ? "the earlier run was" : "later checkpoints were", moved);
    LogInfo("{}", text);
    parts.progress.OnMessage(text);
  }
  if (whole) TANDEM_RETURN_IF_ERROR(BeginAnew(parts));
  parts.tracker.Use(MakeTrackers(parts.config, RealClock()));
  return ClaimForLaunch(run_dir, parts.launch_id);
}

}  // namespace tandem
