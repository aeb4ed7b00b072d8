#include "controller/generation/round_generation.h"

#include <iterator>
#include <optional>
#include <utility>

#include "common/base/log.h"
#include "common/base/status.h"
#include "controller/generation/round_facts.h"
#include "controller/workers/rollout_calls.h"

namespace tandem {

absl::Status RoundGeneration::Prepare(StepBatch& /*batch*/) {
  rounds_ = 0;
  prefill_is_known_ = true;
  return absl::OkStatus();
}

absl::Status RoundGeneration::Generate(StepBatch& batch, int64_t missing) {
  batch.phases.Begin("generate");
  RoundRunner& runner = *runner_;
  // Dynamic sampling drops groups beyond those it lacks, so rounds generate no more than these.
  // Where nothing is ever interrupted a whole batch is generated, as without rounds, so that both
  // give the same result.
  const int64_t wanted = runner.options().cuts_nothing() ? options_.train_batch_size : missing;
  CountRound(/*is_own_round=*/false, {}, batch.facts);
  const PrefillTokenCounter prefill(context_.pool);
  std::vector<GroupRequest> probe;
  if (options_.probe && batch.prompts.empty()) {
    probe = context_.probe.Begin(batch.step, batch.version);
  }
  const auto full = [&] {
    return runner.buffer().complete() >= wanted && DueGroups(batch).empty();
  };
  for (int64_t round = 0; !full(); ++round) {
    if (round == runner.options().max_rounds_without_batch) {
      return runner.NoBatch(batch.step, round, wanted);
    }
    TANDEM_RETURN_IF_ERROR(RunRound(batch, wanted, std::exchange(probe, {})));
  }
  // A buffer that fills the batch without a round leaves the probe to be generated alone.
  if (!probe.empty()) TANDEM_RETURN_IF_ERROR(Dispatch(batch, std::move(probe)));
  CountPrefilled(prefill.Tokens(), &prefill_is_known_, batch.facts);
  batch.facts.generation_seconds = batch.tail.seconds();
  return TakeBatch(batch, wanted);
}

absl::Status RoundGeneration::RunRound(StepBatch& batch,
                                       int64_t wanted,
                                       std::vector<GroupRequest> others) {
  RoundRunner& runner = *runner_;
  TANDEM_RETURN_IF_ERROR(runner.TopUpPrompts(MayAdmit(options_.train_batch_size - wanted), draw()));
  TANDEM_ASSIGN_OR_RETURN(
      std::vector<GroupRequest> requests,
      runner.BeginRound(batch.step, rounds_++, batch.version, DueGroups(batch)));
  ReportNotices();
  std::move(requests.begin(), requests.end(), std::back_inserter(others));
  TANDEM_RETURN_IF_ERROR(Dispatch(batch, std::move(others)));
  TANDEM_RETURN_IF_ERROR(EndRound());
  ReportNotices();
  CountRound(/*is_own_round=*/true, runner.Counts(), batch.facts);
  LogInfo("step {}, round {}: {}", batch.step, rounds_ - 1, runner.buffer().Counts().Text());
  return absl::OkStatus();
}

absl::Status RoundGeneration::EndRound() {
  return context_.disk.Until({.what = "the round journal", .folder = options_.run_dir},
                             [this] { return runner_->EndRound(); });
}

void RoundGeneration::ReportNotices() {
  for (const std::string& notice : runner_->TakeNotices()) context_.progress.OnMessage(notice);
}

RoundRunner::Draw RoundGeneration::draw() const {
  return [this](int64_t count) { return DrawPrompts(context_.prompts, count); };
}

absl::Status RoundGeneration::Dispatch(StepBatch& batch, std::vector<GroupRequest> groups) {
  RoundRunner& runner = *runner_;
  int64_t total = 0, done = 0;
  for (const GroupRequest& group : groups) total += std::ssize(group.sample_ids);
  const auto take = [&](Sample sample) -> absl::Status {
    context_.progress.OnPhaseProgress(batch.step, ++done, total);
    if (ParityProbe::Owns(sample)) return context_.probe.Put(std::move(sample));
    batch.tail.Arrived(sample);
    return runner.Put(sample);
  };
  batch.tail.Begin();
  TANDEM_RETURN_IF_ERROR(context_.fleet.Generate(
      std::move(groups), batch.version, take,
      {.on_rejoin = [this](int rank) { return context_.probe.Reissue(rank); },
       .end_round = [&runner] { return runner.RoundIsOver(); }}));
  batch.tail.End();
  return absl::OkStatus();
}

absl::Status RoundGeneration::TakeBatch(StepBatch& batch, int64_t wanted) {
  RolloutBuffer& buffer = runner_->buffer();
  const int64_t first = std::ssize(batch.prompts);
  const auto take = [&](Sample sample) -> absl::Status {
    sample.group += first;
    return context_.samples.Put(sample, batch.version, TokenVersions::kUpTo,
                                absl::ToUnixMicros(context_.clock.WallNow()));
  };
  TANDEM_ASSIGN_OR_RETURN(TakenGroups taken, buffer.Take(wanted, take));
  std::move(taken.prompts.begin(), taken.prompts.end(), std::back_inserter(batch.prompts));
  const BufferCounts left = buffer.Counts();
  const int64_t issued = taken.samples + left.groups * options_.samples_per_prompt;
  batch.facts.partial =
      PartialFacts{.version = batch.version,
                   .issued_tokens_mean = static_cast<double>(taken.tokens + left.tokens) /
                                         static_cast<double>(issued)};
  const auto set = [&batch](const char* name, int64_t value) {
    batch.facts.trainer[std::string(kPartialPrefix) + name] = static_cast<double>(value);
  };
  set("carried_groups", left.unfinished_groups());
  set("carried_samples", left.carried_samples);
  set("pool_tokens", left.tokens);
  set("whole_groups_left", left.complete);
  return absl::OkStatus();
}

std::unique_ptr<BackgroundGeneration> RoundGeneration::StartRounds(const StepBatch& batch,
                                                                   const StalenessLimit& limit) {
  return std::make_unique<BackgroundGeneration>(
      BackgroundGenerationParts{.runner = runner(),
                                .limit = limit,
                                .draw = draw(),
                                .replicas = context_.fleet.Present(batch.version),
                                .max_in_flight_samples = context_.fleet.max_in_flight_samples(),
                                .vocab_limit = context_.fleet.vocab_limit(),
                                .interrupted = context_.interrupted,
                                .end_round = [this] { return EndRound(); },
                                .clock = context_.clock},
      batch.step, rounds(), batch.version);
}

void RoundGeneration::CountBackgroundRounds(const BackgroundGeneration& ended, StepBatch& batch) {
  int64_t tokens = 0;
  for (RoundCounts round : ended.rounds()) {
    // Kept out of the step's generated tokens, whose rate is per second of the generation phase.
    tokens += std::exchange(round.generated_tokens, 0);
    CountRound(/*is_own_round=*/false, round, batch.facts);
  }
  CountBackground(std::ssize(ended.rounds()), tokens, batch.facts);
  ReportNotices();
}

absl::Status RoundGeneration::Restore(const std::string& checkpoint, int64_t step) {
  const auto row = [this](uint64_t data_row) { return context_.prompts.Row(data_row); };
  return runner_->buffer().Load(checkpoint, row, step);
}

}  // namespace tandem
