// What a step asks of the rollouts.
#include <algorithm>
#include <iterator>
#include <utility>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/types/response_tokens.h"
#include "controller/run/train_loop.h"
#include "controller/step/dynamic_sampling.h"
#include "controller/step/scoring.h"
#include "controller/workers/trainer_calls.h"

namespace tandem {
namespace {

void ReportSync(const PublishResult& result, PhaseRecorder& phases) {
  for (const auto& [rank, report] : result.wakes) {
    phases.Report({WorkerRole::kRollout, rank}, report);
  }
  for (size_t rank = 0; rank < result.trainers.size(); ++rank) {
    phases.Report({WorkerRole::kTrainer, static_cast<int>(rank)}, result.trainers[rank].report);
  }
}

}  // namespace

absl::Status TrainLoop::VerifyWeights(StepBatch& batch) {
  if (!options_.probe) return absl::OkStatus();
  batch.phases.Begin("verify");
  std::vector<PhaseReport> reports(static_cast<size_t>(parts_.pool.pairs()));
  const auto verify = [&](RolloutClient& rollout, int rank) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(reports[static_cast<size_t>(rank)],
                            rollout.VerifyWeights(position_.version));
    return absl::OkStatus();
  };
  TANDEM_RETURN_IF_ERROR(parts_.serving.OnAll(position_.version, verify));
  batch.phases.Report(WorkerRole::kRollout, reports);
  return absl::OkStatus();
}

absl::Status TrainLoop::GenerateAndScore(StepBatch& batch) {
  DynamicSampling sampling(options_.filter_groups, options_.train_batch_size);
  for (size_t first = 0;;) {
    TANDEM_RETURN_IF_ERROR(parts_.partial != nullptr ? GenerateByRounds(batch, sampling.missing())
                                                     : Generate(batch, first));
    batch.phases.Begin("score");
    TANDEM_RETURN_IF_ERROR(ScoreSamples(parts_.text, parts_.reward, parts_.samples, batch));
    if (!options_.filter_groups.enable) break;
    const absl::Status filtered = sampling.Filter(parts_.samples, batch);
    if (absl::IsOutOfRange(filtered)) {
      sampling.Report(batch.facts);
      return SavedWith(batch, filtered, sampling.TakeBack(parts_.samples, batch));
    }
    TANDEM_RETURN_IF_ERROR(filtered);
    LogInfo("dynamic sampling: {}", sampling.ProgressText());
    if (sampling.full()) break;
    first = batch.prompts.size();
    if (parts_.partial != nullptr) continue;  // rounds draw for themselves
    TANDEM_ASSIGN_OR_RETURN(std::vector<Prompt> more, DrawPrompts(options_.train_batch_size));
    std::move(more.begin(), more.end(), std::back_inserter(batch.prompts));
  }
  if (options_.filter_groups.enable) sampling.Report(batch.facts);
  batch.tail.Report(options_.tail, batch.facts.trainer);
  if (parts_.partial != nullptr) batch.facts.generation_seconds = batch.tail.seconds();
  if (options_.greedy_baselines) {
    TANDEM_ASSIGN_OR_RETURN(batch.baseline_rewards, batch.baselines.Score(parts_.reward));
  }
  AverageRewardTerms(batch);
  return absl::OkStatus();
}

absl::Status TrainLoop::Generate(StepBatch& batch, size_t first) {
  batch.phases.Begin("generate");
  // First of all, so that the probe shares its decode batches with the step's own samples.
  std::vector<GroupRequest> groups;
  if (options_.probe && first == 0) groups = parts_.probe.Begin(batch.step, position_.version);
  for (size_t g = first; g < batch.prompts.size(); ++g) {
    const Prompt& prompt = batch.prompts[g];
    GroupRequest group{.request_id = fmt::format("{}-{}", batch.step, g),
                       .version = position_.version,
                       .prompt = prompt.tokens,
                       .params = options_.sampling,
                       .group = static_cast<int64_t>(g)};
    for (int64_t i = 0; i < options_.samples_per_prompt; ++i) {
      group.sample_ids.push_back(
          MakeSampleId(prompt.data_row, prompt.epoch, static_cast<uint64_t>(i)));
    }
    groups.push_back(std::move(group));
  }
  if (options_.greedy_baselines) {
    const auto begin = batch.prompts.begin() + static_cast<int64_t>(first);
    std::vector<GroupRequest> greedy =
        batch.baselines.Ask(batch.step, position_.version, {begin, batch.prompts.end()},
                            static_cast<int64_t>(first), options_.sampling);
    std::move(greedy.begin(), greedy.end(), std::back_inserter(groups));
  }
  const auto total =
      static_cast<int64_t>(batch.prompts.size() - first) * options_.samples_per_prompt;
  int64_t done = 0;
  const auto take = [&](Sample sample) -> absl::Status {
    TANDEM_RETURN_IF_ERROR(CheckFiniteLogProbs(sample, "rollout"));
    if (Probe::Owns(sample)) return parts_.probe.Put(std::move(sample));
    batch.tail.Arrived(sample);
    batch.facts.generated_tokens += sample.response_tokens();
    if (GreedyBaselines::Owns(sample)) return batch.baselines.Put(sample, parts_.text);
    // The worker counts samples from 0 in each request; a re-issued request holds fewer.
    sample.index = static_cast<int64_t>(sample.sample_id & 0xfffu);
    TANDEM_RETURN_IF_ERROR(parts_.samples.Put(sample, position_.version));
    parts_.progress.OnPhaseProgress(batch.step, ++done, total);
    return absl::OkStatus();
  };
  batch.tail.Begin();
  TANDEM_RETURN_IF_ERROR(
      parts_.serving.Generate(std::move(groups), position_.version, take,
                              {.on_return = [this](int rank) { return ProbeAgain({rank}); }}));
  batch.tail.End();
  return absl::OkStatus();
}

std::vector<GroupRequest> TrainLoop::ProbeAgain(const std::vector<int>& ranks) {
  std::vector<GroupRequest> groups;
  for (const int rank : ranks) {
    if (!options_.probe) break;
    std::vector<GroupRequest> of_rank = parts_.probe.Again(rank);
    std::move(of_rank.begin(), of_rank.end(), std::back_inserter(groups));
  }
  return groups;
}

absl::Status TrainLoop::SleepRollouts(StepBatch& batch) {
  batch.phases.Begin("sleep");
  std::vector<SleepReports> reports(static_cast<size_t>(parts_.pool.pairs()));
  const auto sleep = [&](RolloutClient& rollout, int rank) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(reports[static_cast<size_t>(rank)], rollout.Sleep(options_.sleep));
    return absl::OkStatus();
  };
  const auto put = [this](Sample sample) -> absl::Status {
    TANDEM_RETURN_IF_ERROR(CheckFiniteLogProbs(sample, "rollout"));
    return parts_.probe.Put(std::move(sample));
  };
  const auto probe = [&](const std::vector<int>& ranks) {
    return parts_.serving.Generate(ProbeAgain(ranks), position_.version, put,
                                   {.on_return = [this](int rank) { return ProbeAgain({rank}); }});
  };
  TANDEM_RETURN_IF_ERROR(parts_.serving.OnAll(position_.version, sleep, probe));
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    const WorkerKey key{WorkerRole::kRollout, static_cast<int>(rank)};
    batch.phases.ReportOf("generate", key, reports[rank].generate);
    batch.phases.Report(key, reports[rank].sleep);
  }
  return absl::OkStatus();
}

// When the rollouts sleep: KV pools and training memory never coexist.
absl::Status TrainLoop::CompareProbe(StepBatch& batch) {
  if (!options_.probe) return absl::OkStatus();
  batch.phases.Begin("probe");
  // One life of every rollout at a time, so that memory is what one takes.
  for (int life = 0; life < parts_.probe.lives(); ++life) {
    parts_.probe.BeginLife(life);
    TANDEM_RETURN_IF_ERROR(ComputeLogProbs(batch, LogProbPolicy::kProbe));
  }
  TANDEM_ASSIGN_OR_RETURN(const int64_t tokens, parts_.probe.Compare());
  LogInfo("probe: {} of {} token log-probs identical", tokens, tokens);
  batch.facts.trainer["weights/probe_tokens"] = static_cast<double>(tokens);
  return absl::OkStatus();
}

absl::Status TrainLoop::SyncWeights(StepBatch& batch) {
  while (true) {
    batch.phases.Begin("sync");
    absl::Status status = [&]() -> absl::Status {
      const auto begin_check = [&batch](const PublishResult& result) {
        ReportSync(result, batch.phases);
        batch.phases.Begin("check");
      };
      TANDEM_ASSIGN_OR_RETURN(
          const PublishResult published,
          parts_.weights.Publish(position_.version, "", parts_.interrupted, begin_check));
      if (published.checks.empty()) ReportSync(published, batch.phases);
      batch.phases.Report(WorkerRole::kTrainer, published.checks);
      if (!published.checked.empty()) parts_.progress.OnMessage(published.checked);
      batch.facts.trainer["weights/changed_share"] = published.changed_share;
      batch.phases.Begin("wake");
      TANDEM_ASSIGN_OR_RETURN(const auto wakes, parts_.weights.Wake(parts_.interrupted));
      for (const auto& [rank, report] : wakes) {
        batch.phases.Report({WorkerRole::kRollout, rank}, report);
      }
      return absl::OkStatus();
    }();
    if (!status.ok() && !absl::IsDataLoss(status) && !CheckInterrupted().ok()) {
      // The optimizer's steps are made, and the checkpoint to come holds them.
      parts_.progress.OnMessage(fmt::format(
          "stopping: the sync of weight version {} was aborted; the step is kept, and the next "
          "start syncs from its checkpoint",
          position_.version));
      return absl::OkStatus();
    }
    if (status.ok()) return status;
    TANDEM_RETURN_IF_ERROR(recovery_.AwaitRollouts(status));
    TANDEM_RETURN_IF_ERROR(parts_.budget.Charge(status));
    parts_.progress.OnMessage(fmt::format("a rollout was lost while weights were synced: {}",
                                          std::string(status.message())));
  }
}

}  // namespace tandem
