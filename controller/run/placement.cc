#include "controller/run/placement.h"

#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/log.h"
#include "common/base/status.h"
#include "controller/step/phase_recorder.h"
#include "controller/workers/rollout_calls.h"

namespace tandem {
namespace {

// A call for CallAll or CallRollouts that drains a rollout, puts it to sleep as deep as `mode`
// says, and keeps its answer in `reports`, which has one place per rank.
auto SleepAndReport(SleepMode mode, std::vector<std::optional<SleepReports>>& reports) {
  return [mode, &reports](RolloutClient& rollout, int rank, StatusDone done) {
    std::optional<SleepReports>& own = reports[static_cast<size_t>(rank)];
    const auto keep = [&own](SleepReports answer) { own = std::move(answer); };
    rollout.Sleep(mode, Keeping<SleepReports>(keep, std::move(done)));
  };
}

// Adds what a rollout reports about falling asleep to the step's phases.
void ReportSleep(int rank, const SleepReports& reports, PhaseRecorder& phases) {
  const WorkerKey key{WorkerRole::kRollout, rank};
  phases.ReportOf("generate", key, reports.generate);
  phases.Report(key, reports.sleep);
}

// Has the rollouts that answer end what they generate and take nothing new, and sleep if `mode`
// asks for it. Reports them in the running phase.
void DrainOrSleep(const StepContext& context, SleepMode mode, StepBatch& batch) {
  std::vector<std::optional<SleepReports>> reports(
      static_cast<size_t>(context.pool.topology().rollouts));
  const auto sleep = SleepAndReport(mode, reports);
  for (const RolloutAnswer& answer :
       CallRollouts(context.pool, AllRanks(context.pool), sleep, context.interrupted)) {
    const auto& report = reports[static_cast<size_t>(answer.rank)];
    if (!answer.status.ok() && !absl::IsCancelled(answer.status)) {
      LogWarn("rollout {} was not drained before the sync: {}", answer.rank,
              std::string(answer.status.message()));
    }
    if (answer.status.ok() && report) ReportSleep(answer.rank, *report, batch.phases);
  }
}

}  // namespace

SyncRoutes Placement::Routes() const {
  std::vector<SyncRoute> routes;
  for (int rank = 0; rank < topology_.rollouts; ++rank) {
    routes.push_back({.trainer = topology_.PublisherOf(rank), .rollout = rank});
  }
  return SyncRoutes(std::move(routes));
}

std::unique_ptr<Placement> MakePlacement(const Topology& topology, const TrainOptions& options) {
  if (topology.apart) return std::make_unique<ApartPlacement>(topology);
  return std::make_unique<ColocatedPlacement>(topology, options);
}

absl::Status ColocatedPlacement::BeforeTraining(const StepContext& context,
                                                StepBatch& batch,
                                                bool rollouts_busy) {
  admission_closed_ = !rollouts_busy;
  if (rollouts_busy) return absl::OkStatus();
  batch.phases.Begin("sleep");
  std::vector<std::optional<SleepReports>> reports(
      static_cast<size_t>(context.pool.topology().rollouts));
  const auto put = [&context](Sample sample) { return context.probe.Put(std::move(sample)); };
  const auto again = [&context](int rank) { return context.probe.Reissue(rank); };
  const auto probe = [&](const std::vector<int>& ranks) {
    std::vector<GroupRequest> groups;
    for (const int rank : ranks) {
      std::vector<GroupRequest> of_rank = again(rank);
      std::move(of_rank.begin(), of_rank.end(), std::back_inserter(groups));
    }
    return context.fleet.Generate(std::move(groups), batch.version, put, {.on_rejoin = again});
  };
  TANDEM_RETURN_IF_ERROR(
      context.fleet.CallAll(batch.version, SleepAndReport(options_.sleep, reports), probe));
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    if (reports[rank]) ReportSleep(static_cast<int>(rank), *reports[rank], batch.phases);
  }
  return absl::OkStatus();
}

void ColocatedPlacement::BeforeSync(const StepContext& context, StepBatch& batch) {
  if (admission_closed_) return;
  admission_closed_ = true;
  batch.phases.Begin("sleep");
  DrainOrSleep(context, options_.sleep, batch);
}

absl::Status ApartPlacement::BeforeTraining(const StepContext& /*context*/,
                                            StepBatch& /*batch*/,
                                            bool /*rollouts_busy*/) {
  return absl::OkStatus();
}

void ApartPlacement::BeforeSync(const StepContext& context, StepBatch& batch) {
  batch.phases.Begin("drain");
  DrainOrSleep(context, SleepMode::kDrainOnly, batch);
}

}  // namespace tandem
