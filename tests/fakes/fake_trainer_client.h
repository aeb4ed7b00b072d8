// A trainer that computes nothing, remembers everything and answers before a call returns.
#pragma once

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/base/status.h"
#include "controller/workers/trainer_client.h"
#include "tests/fakes/call_journal.h"

namespace tandem::testing {

class FakeTrainerClient : public TrainerClient {
 public:
  FakeTrainerClient(CallJournal& journal,
                    int rank,
                    int64_t incarnation,
                    ForwardBackwardReply forward,
                    std::set<int64_t> skipped = {},
                    WeightCheckResult check = {.expected = 3, .checked = 3})
      : journal_(journal),
        who_("trainer " + std::to_string(rank)),
        rank_(rank),
        incarnation_(incarnation),
        forward_(std::move(forward)),
        skipped_(std::move(skipped)),
        check_(std::move(check)) {}

  void Reset(const ResetCall& command, StatusDone done) override {
    if (on_reset) on_reset(rank_, command);
    done(AnswerReset(command));
  }
  void ForwardBackward(const ForwardBackwardCall& command,
                       Done<ForwardBackwardReply> done) override {
    done(AnswerForwardBackward(command));
  }
  void OptimizerStep(int64_t version, Done<OptimizerStepReply> done) override {
    done(AnswerOptimizerStep(version));
  }
  void ComputeLogProbs(int64_t step, ScoredPolicy policy, Done<LogProbsReply> done) override {
    done(AnswerComputeLogProbs(step, policy));
  }
  void SyncWeights(const SyncCall& command, Done<SyncReply> done) override {
    std::vector<std::string> addresses;
    bool scramble = false, over_tcp = false;
    for (const SyncTarget& target : command.targets) {
      addresses.push_back(target.address);
      scramble = scramble || target.scramble;
      over_tcp = over_tcp || target.over_tcp;
    }
    const bool is_chain = addresses.size() > 1;
    const absl::Status status = journal_.Call(
        who_, fmt::format("SyncWeights(v{}, targets {}, {}{}{})", command.version,
                          fmt::join(command.senders, "+"), fmt::join(addresses, " > "),
                          scramble ? ", scramble" : "", over_tcp && !is_chain ? ", tcp" : ""));
    if (!status.ok()) return done(status);
    SyncReply reply{.tensors = 3, .changed_share = 0.25, .digest = "d"};
    if (on_chain && is_chain) reply.outcomes = on_chain(command.targets);
    const auto keep = [done, reply](const absl::Status& synced) {
      done(synced.ok() ? absl::StatusOr<SyncReply>(reply) : absl::StatusOr<SyncReply>(synced));
    };
    on_sync ? on_sync(keep) : keep(absl::OkStatus());
  }
  void CheckWeights(const CheckCall& command, Done<WeightCheckResult> done) override {
    done(AnswerCheckWeights(command.hf_checkpoint));
  }
  void SaveState(const std::string& directory, int64_t version, Done<SaveReply> done) override {
    done(AnswerSaveState(directory, version));
  }
  void Shutdown(StatusDone done) override { done(journal_.Call(who_, "Shutdown()")); }
  void CancelAll() override {
    if (on_cancel) on_cancel();
  }
  int64_t incarnation() const override { return incarnation_; }

  static constexpr int64_t kCheckPeak = 60, kSavePeak = 70;  // bytes, in their reports
  std::function<void(int64_t step, int rank)> on_probe;      // sends log-probs
  // The tokens of this rank that a mini-batch (-1: the batch) of a step has to compare, and how
  // many of them differ.
  std::function<int64_t(int64_t step, int64_t mini_batch, int rank)> comparable;
  int64_t differing = 0;
  std::function<void(StatusDone)> on_sync;  // ends a sync, now or later
  // How a sync along a chain ends for each of its rollouts. Empty: they all hold the version.
  std::function<std::vector<SyncOutcome>(const std::vector<SyncTarget>&)> on_chain;
  std::function<void()> on_cancel;
  std::function<void(int rank, const ResetCall&)> on_reset;
  // May change what is answered.
  std::function<void(const ForwardBackwardCall&, ForwardBackwardReply&)> on_forward_backward;

 private:
  absl::Status AnswerReset(const ResetCall& command) {
    const std::string name = std::filesystem::path(command.checkpoint_dir).filename();
    return journal_.Call(who_, fmt::format("Reset({}, v{})", name, command.version));
  }
  absl::StatusOr<ForwardBackwardReply> AnswerForwardBackward(const ForwardBackwardCall& command) {
    TANDEM_RETURN_IF_ERROR(journal_.Call(
        who_, fmt::format("ForwardBackward(step {}, mini {} of {}, v{}{})", command.step,
                          command.mini_batch, command.mini_batches, command.version,
                          !command.first_update       ? ""
                          : command.compare_log_probs ? ", compare"
                                                      : ", fresh")));
    ForwardBackwardReply result = forward_;
    if (command.compare_log_probs) Compare(command.step, command.mini_batch, result.comparison);
    if (on_forward_backward) on_forward_backward(command, result);
    return result;
  }
  absl::StatusOr<OptimizerStepReply> AnswerOptimizerStep(int64_t version) {
    TANDEM_RETURN_IF_ERROR(journal_.Call(who_, fmt::format("OptimizerStep(v{})", version)));
    const bool skipped = skipped_.contains(version);
    return OptimizerStepReply{
        .grad_norm = skipped ? NAN : 0.5, .learning_rate = 1e-6, .skipped = skipped};
  }
  absl::StatusOr<LogProbsReply> AnswerComputeLogProbs(int64_t step, ScoredPolicy policy) {
    const std::map<ScoredPolicy, const char*> names = {{ScoredPolicy::kCurrent, "current"},
                                                       {ScoredPolicy::kReference, "reference"},
                                                       {ScoredPolicy::kProbe, "probe"},
                                                       {ScoredPolicy::kCompared, "compared"}};
    TANDEM_RETURN_IF_ERROR(
        journal_.Call(who_, fmt::format("ComputeLogProbs(step {}, {})", step, names.at(policy))));
    if (policy == ScoredPolicy::kProbe && on_probe) on_probe(step, rank_);
    LogProbsReply reply{.comparison = forward_.comparison};
    if (policy == ScoredPolicy::kCurrent || policy == ScoredPolicy::kCompared) {
      Compare(step, -1, reply.comparison);
    }
    return reply;
  }
  absl::StatusOr<WeightCheckResult> AnswerCheckWeights(const std::string& hf_checkpoint) {
    TANDEM_RETURN_IF_ERROR(journal_.Call(who_, fmt::format("CheckWeights({})", hf_checkpoint)));
    WeightCheckResult result = check_;
    result.report = {.phase = "check", .ledger = {.memory_peak_bytes = kCheckPeak}};
    return result;
  }
  absl::StatusOr<SaveReply> AnswerSaveState(const std::string& directory, int64_t version) {
    TANDEM_RETURN_IF_ERROR(journal_.Call(who_, fmt::format("SaveState(v{})", version)));
    std::ofstream(fmt::format("{}/shard-{}", directory, rank_)) << "state";
    return SaveReply{.bytes = 5,
                     .report = {.phase = "save", .ledger = {.memory_peak_bytes = kSavePeak}}};
  }
  void Compare(int64_t step, int64_t mini_batch, ReportedComparison& comparison) const {
    comparison.compared_tokens = comparable ? comparable(step, mini_batch, rank_) : 0;
    comparison.identical_tokens = comparison.compared_tokens - differing;
  }

  CallJournal& journal_;
  const std::string who_;
  const int rank_;
  const int64_t incarnation_;
  const ForwardBackwardReply forward_;
  const std::set<int64_t> skipped_;  // versions whose update was left out
  const WeightCheckResult check_;
};

}  // namespace tandem::testing
