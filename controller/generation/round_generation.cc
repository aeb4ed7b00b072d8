#include "controller/generation/round_generation.h"

#include <iterator>
#include <optional>
#include <utility>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/types/response_tokens.h"
#include "controller/partial_rollout/buffer/round_spec.h"
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

// Adds what one pass over the rounds prefilled, of which dynamic sampling may make several. If one
// is unknown, so is the step's sum.
void CountPrefilled(const std::optional<int64_t>& tokens, bool* known, StepFacts& facts) {
  *known = *known && tokens.has_value();
  const std::string name = std::string(kPartialPrefix) + "prefilled_tokens";
  if (*known) {
    facts.trainer[name] += static_cast<double>(*tokens);
  } else {
    facts.trainer.erase(name);
  }
}

}  // namespace

absl::Status RoundGeneration::Prepare(StepBatch& /*batch*/) {
  rounds_ = 0;
  prefill_is_known_ = true;
  return absl::OkStatus();
}

absl::Status RoundGeneration::Generate(StepBatch& batch, int64_t missing) {
  batch.phases.Begin("generate");
  PartialRollout& partial = *partial_;
  // Dynamic sampling drops what it gets beyond what it lacks. Where nothing is ever cut the batch
  // is whole anyway, and what is made of it the same as without rounds.
  const int64_t wanted = partial.options().cuts_nothing() ? options_.train_batch_size : missing;
  CountRound(0, {}, batch.facts);
  if (partial.options().overlap) CountAhead(0, 0, batch.facts);
  const PrefillTokenCounter prefill(parts_.pool);
  std::vector<GroupRequest> probe;
  if (options_.probe && batch.prompts.empty()) {
    probe = parts_.probe.Begin(batch.step, batch.version);
  }
  const auto full = [&] {
    return partial.pool().whole() >= wanted && partial.pool().due(DueVersion(batch)) == 0;
  };
  for (int64_t round = 0; !full(); ++round) {
    if (round == partial.options().max_rounds_without_batch) {
      return partial.NoBatch(batch.step, round, wanted);
    }
    TANDEM_RETURN_IF_ERROR(RunRound(batch, std::exchange(probe, {})));
  }
  // A pool that fills the batch by itself asks the rollouts for nothing else.
  if (!probe.empty()) TANDEM_RETURN_IF_ERROR(ServeRound(batch, std::move(probe)));
  CountPrefilled(prefill.Tokens(), &prefill_is_known_, batch.facts);
  batch.facts.generation_seconds = batch.tail.seconds();
  return TakeFromPool(batch, wanted);
}

absl::Status RoundGeneration::RunRound(StepBatch& batch, std::vector<GroupRequest> groups) {
  PartialRollout& partial = *partial_;
  TANDEM_RETURN_IF_ERROR(
      partial.AddFresh(0, [this](int64_t count) { return DrawPrompts(parts_.prompts, count); }));
  TANDEM_ASSIGN_OR_RETURN(
      std::vector<GroupRequest> requests,
      partial.BeginRound(batch.step, rounds_++, batch.version, DueVersion(batch)));
  if (const std::string note = partial.TakeNote(); !note.empty()) parts_.progress.OnMessage(note);
  std::move(requests.begin(), requests.end(), std::back_inserter(groups));
  TANDEM_RETURN_IF_ERROR(ServeRound(batch, std::move(groups)));
  TANDEM_RETURN_IF_ERROR(partial.EndRound());
  CountRound(1, partial.pool().round(), batch.facts);
  LogInfo("step {}, round {}: {}", batch.step, rounds_ - 1, partial.pool().Counts().Text());
  return absl::OkStatus();
}

int64_t RoundGeneration::DueVersion(const StepBatch& batch) const {
  const PartialOptions& options = partial_->options();
  if (!options.overlap) return -1;
  return StalenessLimit(options.train_batch_size, options.max_staleness)
      .DueVersion(batch.version, options.updates_per_step);
}

absl::Status RoundGeneration::ServeRound(StepBatch& batch, std::vector<GroupRequest> groups) {
  PartialRollout& partial = *partial_;
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
      parts_.serving.Generate(std::move(groups), batch.version, take,
                              {.on_return = [this](int rank) { return parts_.probe.Again(rank); },
                               .cut = [&partial] { return partial.RoundIsOver(); }}));
  batch.tail.End();
  return absl::OkStatus();
}

void RoundGeneration::StartBackground(const StepBatch& batch) {
  if (!partial_->options().overlap || batch.is_last) return;
  overlap_ = std::make_unique<Overlap>(
      OverlapParts{.partial = *partial_,
                   .draw = [this](int64_t count) { return DrawPrompts(parts_.prompts, count); },
                   .replicas = parts_.serving.Present(batch.version),
                   .max_in_flight_samples = parts_.serving.max_in_flight_samples(),
                   .interrupted = parts_.interrupted},
      batch.step, rounds_, batch.version);
}

absl::Status RoundGeneration::StopBackground(StepBatch& batch) {
  if (overlap_ == nullptr) return absl::OkStatus();
  // The wait for samples that may not be cut is time of generation.
  batch.phases.Begin("generate");
  const absl::Status ahead = overlap_->End();
  int64_t tokens = 0;
  for (RoundCounts round : overlap_->rounds()) {
    // Not of this phase's seconds, which rates are made of.
    tokens += std::exchange(round.generated_tokens, 0);
    CountRound(0, round, batch.facts);
  }
  CountAhead(std::ssize(overlap_->rounds()), tokens, batch.facts);
  overlap_.reset();
  return ahead;
}

void RoundGeneration::RollBackStep() {
  overlap_.reset();
  partial_->pool().GoBack();
}

absl::Status RoundGeneration::TakeFromPool(StepBatch& batch, int64_t wanted) {
  SamplePool& pool = partial_->pool();
  const int64_t first = std::ssize(batch.prompts);
  const auto take = [&](int64_t position, Sample sample) -> absl::Status {
    sample.group = first + position;
    return parts_.samples.Put(sample, batch.version, TokenVersions::kUpTo);
  };
  TANDEM_ASSIGN_OR_RETURN(TakenGroups taken, pool.Take(wanted, take));
  std::move(taken.prompts.begin(), taken.prompts.end(), std::back_inserter(batch.prompts));
  const PoolCounts left = pool.Counts();
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
  set("whole_groups_left", left.whole);
  return absl::OkStatus();
}

absl::Status RoundGeneration::Restore(const std::string& checkpoint, int64_t step) {
  const auto row = [this](uint64_t data_row) { return parts_.prompts.Row(data_row); };
  return partial_->Load(checkpoint, row, step);
}

}  // namespace tandem
