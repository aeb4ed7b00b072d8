#include "controller/run/weight_phases.h"

#include <optional>
#include <utility>
#include <vector>

#include "common/base/log.h"
#include "common/base/status.h"
#include "controller/step/training_phase.h"

namespace tandem {
namespace {

void ReportSync(const WeightSyncResult& result, PhaseRecorder& phases) {
  for (const auto& [rank, report] : result.wakes) {
    phases.Report({WorkerRole::kRollout, rank}, report);
  }
  for (const RoundReports& round : result.rounds) phases.Report(WorkerRole::kTrainer, round);
}

}  // namespace

absl::Status WeightPhases::Verify(StepBatch& batch) {
  if (!options_.probe) return absl::OkStatus();
  batch.phases.Begin("verify");
  std::vector<std::optional<PhaseReport>> reports(
      static_cast<size_t>(context_.pool.topology().rollouts));
  const auto verify = [&](RolloutClient& rollout, int rank, StatusDone done) {
    std::optional<PhaseReport>& own = reports[static_cast<size_t>(rank)];
    const auto keep = [&own](PhaseReport report) { own = std::move(report); };
    rollout.VerifyWeights(position_.version, Keeping<PhaseReport>(keep, std::move(done)));
  };
  TANDEM_RETURN_IF_ERROR(context_.fleet.CallAll(position_.version, verify));
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    if (!reports[rank]) continue;  // it does not take part
    batch.phases.Report({WorkerRole::kRollout, static_cast<int>(rank)}, *reports[rank]);
  }
  return absl::OkStatus();
}

absl::Status WeightPhases::CompareProbe(StepBatch& batch) {
  if (!options_.probe) return absl::OkStatus();
  batch.phases.Begin("probe");
  // A rollout that was restarted in this step has one set of probe samples per process. They are
  // scored one set at a time to save trainer memory.
  for (int attempt = 0; attempt < context_.probe.attempts(); ++attempt) {
    context_.probe.SelectAttempt(attempt);
    TANDEM_RETURN_IF_ERROR(
        ComputeLogProbs(context_.pool, ScoredPolicy::kProbe, batch.step, batch).status());
  }
  TANDEM_ASSIGN_OR_RETURN(const int64_t tokens, context_.probe.Compare());
  LogInfo("probe: {} of {} token log-probs identical", tokens, tokens);
  batch.facts.trainer["weights/probe_tokens"] = static_cast<double>(tokens);
  return absl::OkStatus();
}

absl::Status WeightPhases::SyncAndWake(StepBatch& batch) {
  std::vector<int64_t> tried_with;  // the incarnations of all workers in the attempt before
  int in_vain = 0;                  // attempts since a worker was replaced, without the first
  while (true) {
    std::vector<int64_t> workers = context_.pool.Incarnations();
    in_vain = workers == tried_with ? in_vain + 1 : 0;
    tried_with = std::move(workers);
    batch.phases.Begin("sync");
    absl::Status status = [&]() -> absl::Status {
      const auto begin_check = [&batch](const WeightSyncResult& result) {
        ReportSync(result, batch.phases);
        batch.phases.Begin("check");
      };
      TANDEM_ASSIGN_OR_RETURN(
          const WeightSyncResult synced,
          context_.weights.Sync(position_.version, "", context_.interrupted, begin_check));
      if (synced.checks.empty()) ReportSync(synced, batch.phases);
      for (const RoundReports& round : synced.checks) {
        batch.phases.Report(WorkerRole::kTrainer, round);
      }
      if (!synced.checked.empty()) context_.progress.OnMessage(synced.checked);
      batch.facts.trainer["weights/changed_share"] = synced.changed_share;
      batch.details.weight_bytes = 0;
      for (const auto& [rank, sent] : synced.sent) batch.details.weight_bytes += sent.bytes;
      if (synced.sent_bytes > 0) {
        batch.facts.trainer["perf/weights_sent_bytes"] = static_cast<double>(synced.sent_bytes);
        batch.facts.trainer["perf/weights_received_bytes"] =
            static_cast<double>(synced.received_bytes);
        batch.facts.trainer["perf/weights_forwarded_bytes"] =
            static_cast<double>(synced.forwarded_bytes);
      }
      batch.details.weight_digest = synced.digest;
      batch.phases.Begin("wake");
      TANDEM_ASSIGN_OR_RETURN(const auto wakes, context_.weights.Wake(context_.interrupted));
      for (const auto& [rank, report] : wakes) {
        batch.phases.Report({WorkerRole::kRollout, rank}, report);
      }
      return absl::OkStatus();
    }();
    if (!status.ok() && !absl::IsDataLoss(status) && !CheckInterrupted(context_).ok()) {
      // The optimizer steps are done, and the final checkpoint will contain them.
      context_.progress.OnMessage(fmt::format(
          "stopping: the sync of weight version {} was aborted; the step is kept, and the next "
          "start syncs from its checkpoint",
          position_.version));
      return absl::OkStatus();
    }
    if (status.ok()) return status;
    // A sync is repeated for a worker that was replaced. If none was, though one death may show up
    // in two calls, the group of trainers is broken, as after a collective for which one of them
    // came too late, and only a recovery makes another.
    if (in_vain > 1) return status;
    TANDEM_RETURN_IF_ERROR(recovery_.AwaitRollouts(status));
    TANDEM_RETURN_IF_ERROR(context_.budget.Charge(WorkerRole::kRollout, status));
  }
}

}  // namespace tandem
