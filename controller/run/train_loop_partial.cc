// How a step's batch is made of rounds of generation (docs/guides/partial_rollout.md).
#include <iterator>
#include <optional>
#include <utility>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/types/response_tokens.h"
#include "controller/partial_rollout/buffer/round_spec.h"
#include "controller/partial_rollout/round_runner.h"
#include "controller/run/train_loop.h"
#include "controller/workers/rollout_calls.h"

namespace tandem {
namespace {

constexpr char kPartialPrefix[] = "partial/";

// What `rounds` (none or one that has just ended) add to their step.
void CountRound(int64_t rounds, const RoundCounts& round, StepFacts& facts) {
  facts.generated_tokens += round.generated_tokens;
  const auto add = [&facts](const char* name, int64_t value) {
    facts.trainer[std::string(kPartialPrefix) + name] += static_cast<double>(value);
  };
  add("rounds", rounds);
  add("issued_samples", round.samples);
  add("final_samples", round.final_samples);
  add("cut_samples", round.cut_samples);
  add("prefilled_again_tokens", round.prefilled_again_tokens);
}

// What was generated while the trainers trained.
void CountAhead(int64_t rounds, int64_t tokens, StepFacts& facts) {
  facts.trainer[std::string(kPartialPrefix) + "overlap_rounds"] = static_cast<double>(rounds);
  facts.trainer[std::string(kPartialPrefix) + "overlap_tokens"] = static_cast<double>(tokens);
}

// Of one pass over the rounds, of which dynamic sampling may make several. What is not known of one
// is not known of the step.
void CountPrefilled(const std::optional<int64_t>& tokens, StepBatch& batch) {
  batch.prefill_is_known = batch.prefill_is_known && tokens.has_value();
  const std::string name = std::string(kPartialPrefix) + "prefilled_tokens";
  if (batch.prefill_is_known) {
    batch.facts.trainer[name] += static_cast<double>(*tokens);
  } else {
    batch.facts.trainer.erase(name);
  }
}

}  // namespace

absl::Status TrainLoop::GenerateByRounds(StepBatch& batch, int64_t missing) {
  batch.phases.Begin("generate");
  PartialRollout& partial = *parts_.partial;
  // Dynamic sampling drops what it gets beyond what it lacks. Where nothing is ever cut the batch
  // is whole anyway, and what is made of it the same as without rounds.
  const int64_t wanted = partial.options().cuts_nothing() ? options_.train_batch_size : missing;
  CountRound(0, {}, batch.facts);
  if (partial.options().overlap) CountAhead(0, 0, batch.facts);
  const PrefillTokenCounter prefill(parts_.pool);
  std::vector<GroupRequest> probe;
  if (options_.probe && batch.prompts.empty()) {
    probe = parts_.probe.Begin(batch.step, position_.version);
  }
  const auto full = [&] {
    return partial.pool().whole() >= wanted && partial.pool().due(DueVersion()) == 0;
  };
  for (int64_t round = 0; !full(); ++round) {
    if (round == partial.options().max_rounds_without_batch) {
      return partial.NoBatch(batch.step, round, wanted);
    }
    TANDEM_RETURN_IF_ERROR(RunRound(batch, std::exchange(probe, {})));
  }
  // A pool that fills the batch by itself asks the rollouts for nothing else.
  if (!probe.empty()) TANDEM_RETURN_IF_ERROR(ServeRound(batch, std::move(probe)));
  CountPrefilled(prefill.Tokens(), batch);
  return TakeFromPool(batch, wanted);
}

absl::Status TrainLoop::RunRound(StepBatch& batch, std::vector<GroupRequest> groups) {
  PartialRollout& partial = *parts_.partial;
  TANDEM_RETURN_IF_ERROR(partial.AddFresh(0, [this](int64_t count) { return DrawPrompts(count); }));
  TANDEM_ASSIGN_OR_RETURN(
      std::vector<GroupRequest> requests,
      partial.BeginRound(batch.step, batch.rounds++, position_.version, DueVersion()));
  if (const std::string note = partial.TakeNote(); !note.empty()) parts_.progress.OnMessage(note);
  std::move(requests.begin(), requests.end(), std::back_inserter(groups));
  TANDEM_RETURN_IF_ERROR(ServeRound(batch, std::move(groups)));
  TANDEM_RETURN_IF_ERROR(partial.EndRound());
  CountRound(1, partial.pool().round(), batch.facts);
  LogInfo("step {}, round {}: {}", batch.step, batch.rounds - 1, partial.pool().Counts().Text());
  return absl::OkStatus();
}

int64_t TrainLoop::DueVersion() const {
  const PartialOptions& options = parts_.partial->options();
  if (!options.overlap) return -1;
  return StalenessLimit(options.train_batch_size, options.max_staleness)
      .DueVersion(position_.version, options.updates_per_step);
}

absl::Status TrainLoop::ServeRound(StepBatch& batch, std::vector<GroupRequest> groups) {
  PartialRollout& partial = *parts_.partial;
  int64_t total = 0, done = 0;
  for (const GroupRequest& group : groups) total += std::ssize(group.sample_ids);
  const auto take = [&](Sample sample) -> absl::Status {
    TANDEM_RETURN_IF_ERROR(CheckFiniteLogProbs(sample, "rollout"));
    parts_.progress.OnPhaseProgress(batch.step, ++done, total);
    if (Probe::Owns(sample)) return parts_.probe.Put(std::move(sample));
    batch.tail.Arrived(sample);
    return partial.pool().Put(sample);
  };
  batch.tail.Begin();
  TANDEM_RETURN_IF_ERROR(
      parts_.serving.Generate(std::move(groups), position_.version, take,
                              {.on_return = [this](int rank) { return ProbeAgain({rank}); },
                               .cut = [&partial] { return partial.RoundIsOver(); }}));
  batch.tail.End();
  return absl::OkStatus();
}

std::unique_ptr<Overlap> TrainLoop::BeginOverlap(const StepBatch& batch) {
  if (parts_.partial == nullptr || !parts_.partial->options().overlap) return nullptr;
  if (batch.step >= options_.total_steps) return nullptr;
  return std::make_unique<Overlap>(
      OverlapParts{.partial = *parts_.partial,
                   .draw = [this](int64_t count) { return DrawPrompts(count); },
                   .replicas = parts_.serving.Present(position_.version),
                   .max_in_flight_samples = parts_.serving.max_in_flight_samples(),
                   .interrupted = parts_.interrupted},
      batch.step, batch.rounds, position_.version);
}

absl::Status TrainLoop::EndOverlap(Overlap& overlap, StepBatch& batch) {
  // The wait for samples that may not be cut is time of generation.
  batch.phases.Begin("generate");
  const absl::Status ahead = overlap.End();
  int64_t tokens = 0;
  for (RoundCounts round : overlap.rounds()) {
    // Not of this phase's seconds, which rates are made of.
    tokens += std::exchange(round.generated_tokens, 0);
    CountRound(0, round, batch.facts);
  }
  CountAhead(std::ssize(overlap.rounds()), tokens, batch.facts);
  SleepForSync(batch);
  return ahead;
}

// Who does not answer is left to the sync, which waits for its successor: brought back here it
// would be asleep already, with the version that the sync would bring.
void TrainLoop::SleepForSync(StepBatch& batch) {
  batch.phases.Begin("sleep");
  std::vector<std::optional<SleepReports>> reports(static_cast<size_t>(parts_.pool.pairs()));
  const auto sleep = [&](RolloutClient& rollout, int rank) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(reports[static_cast<size_t>(rank)], rollout.Sleep(options_.sleep));
    return absl::OkStatus();
  };
  for (const RolloutAnswer& answer :
       CallRollouts(parts_.pool, AllRanks(parts_.pool), sleep, parts_.interrupted)) {
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

absl::Status TrainLoop::TakeFromPool(StepBatch& batch, int64_t wanted) {
  SamplePool& pool = parts_.partial->pool();
  const int64_t first = std::ssize(batch.prompts);
  const auto take = [&](int64_t position, Sample sample) -> absl::Status {
    sample.group = first + position;
    return parts_.samples.Put(sample, position_.version, TokenVersions::kUpTo);
  };
  TANDEM_ASSIGN_OR_RETURN(TakenGroups taken, pool.Take(wanted, take));
  std::move(taken.prompts.begin(), taken.prompts.end(), std::back_inserter(batch.prompts));
  const PoolCounts left = pool.Counts();
  const int64_t issued = taken.samples + left.groups * options_.samples_per_prompt;
  batch.facts.partial =
      PartialFacts{.version = position_.version,
                   .issued_tokens_mean = static_cast<double>(taken.tokens + left.tokens) /
                                         static_cast<double>(issued)};
  const auto set = [&batch](const char* name, int64_t value) {
    batch.facts.trainer[std::string(kPartialPrefix) + name] = static_cast<double>(value);
  };
  set("carried_groups", left.unfinished_groups());
  set("carried_samples", left.carried_samples);
  set("pool_tokens", left.tokens);
  set("whole_groups_left", left.whole);
  return absl::OkStatus();
}

absl::Status TrainLoop::RestorePool(const std::string& checkpoint) {
  if (parts_.partial == nullptr) return absl::OkStatus();
  const auto row = [this](uint64_t data_row) { return parts_.prompts.Row(data_row); };
  absl::Status loaded = parts_.partial->Load(checkpoint, row, position_.finished_steps);
  pool_refused_ = !loaded.ok();
  return loaded;
}

}  // namespace tandem
