#include "controller/run/placement.h"

#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/types/response_tokens.h"
#include "controller/workers/rollout_calls.h"

namespace tandem {
namespace {

// A call for CallAll or CallRollouts that puts a rollout to sleep, as deep as `mode` says, and
// keeps its answer in `reports`, which has one place per rank.
auto SleepAndReport(SleepMode mode, std::vector<std::optional<SleepReports>>& reports) {
  return [mode, &reports](RolloutClient& rollout, int rank) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(reports[static_cast<size_t>(rank)], rollout.Sleep(mode));
    return absl::OkStatus();
  };
}

}  // namespace

absl::Status ColocatedPlacement::BeforeTraining(StepBatch& batch, bool rollouts_busy) {
  admission_closed_ = !rollouts_busy;
  if (rollouts_busy) return absl::OkStatus();
  batch.phases.Begin("sleep");
  std::vector<std::optional<SleepReports>> reports(static_cast<size_t>(context_.pool.pairs()));
  const auto put = [this](Sample sample) -> absl::Status {
    TANDEM_RETURN_IF_ERROR(CheckFiniteLogProbs(sample, "rollout"));
    return context_.probe.Put(std::move(sample));
  };
  const auto again = [this](int rank) { return context_.probe.Reissue(rank); };
  const auto probe = [&](const std::vector<int>& ranks) {
    std::vector<GroupRequest> groups;
    for (const int rank : ranks) {
      std::vector<GroupRequest> of_rank = again(rank);
      std::move(of_rank.begin(), of_rank.end(), std::back_inserter(groups));
    }
    return context_.fleet.Generate(std::move(groups), batch.version, put, {.on_rejoin = again});
  };
  TANDEM_RETURN_IF_ERROR(
      context_.fleet.CallAll(batch.version, SleepAndReport(options_.sleep, reports), probe));
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    const WorkerKey key{WorkerRole::kRollout, static_cast<int>(rank)};
    batch.phases.ReportOf("generate", key, reports[rank]->generate);
    batch.phases.Report(key, reports[rank]->sleep);
  }
  return absl::OkStatus();
}

void ColocatedPlacement::BeforeSync(StepBatch& batch) {
  if (admission_closed_) return;
  admission_closed_ = true;
  batch.phases.Begin("sleep");
  std::vector<std::optional<SleepReports>> reports(static_cast<size_t>(context_.pool.pairs()));
  const auto sleep = SleepAndReport(options_.sleep, reports);
  for (const RolloutAnswer& answer :
       CallRollouts(context_.pool, AllRanks(context_.pool), sleep, context_.interrupted)) {
    const auto& report = reports[static_cast<size_t>(answer.rank)];
    if (!answer.status.ok()) {
      LogWarn("rollout {} was not put to sleep before the sync: {}", answer.rank,
              std::string(answer.status.message()));
    }
    if (!answer.status.ok() || !report) continue;
    const WorkerKey key{WorkerRole::kRollout, answer.rank};
    batch.phases.ReportOf("generate", key, report->generate);
    batch.phases.Report(key, report->sleep);
  }
}

}  // namespace tandem
