// A rollout whose samples are a function of their ids.
#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/base/status_macros.h"
#include "controller/clients/rollout_client.h"
#include "tests/fakes/call_journal.h"

namespace tandem::testing {

// Two response tokens per sample: the last digits of its id.
inline Sample MakeFakeSample(const GroupRequest& request, uint64_t sample_id) {
  Sample sample;
  sample.sample_id = sample_id;
  sample.group = request.group;
  sample.tokens = request.prompt;
  sample.tokens.push_back(static_cast<int32_t>(sample_id % 7));
  sample.tokens.push_back(static_cast<int32_t>(sample_id % 5));
  sample.prompt_tokens = static_cast<int64_t>(request.prompt.size());
  sample.log_probs = {-1.0f, -2.0f};
  sample.versions = {request.version, request.version};
  sample.finish_reason = FinishReason::kStop;
  return sample;
}

// Generate answers before it returns. A failure injected for "Generate" comes after the first of
// several samples of the request, as when a process dies in the middle.
class FakeRolloutClient : public RolloutClient {
 public:
  FakeRolloutClient(CallJournal& journal, int rank, int64_t incarnation)
      : journal_(journal),
        who_("rollout " + std::to_string(rank)),
        rank_(rank),
        incarnation_(incarnation) {}

  void Generate(const GroupRequest& request,
                std::function<void(Sample)> on_sample,
                std::function<void(absl::Status)> on_done) override {
    const absl::Status status =
        journal_.Call(who_, fmt::format("Generate(group {}, {} samples, v{})", request.group,
                                        request.sample_ids.size(), request.version));
    const size_t asked = request.sample_ids.size();
    const size_t made = status.ok() ? asked : std::min<size_t>(1, asked - 1);
    for (size_t i = 0; i < made; ++i) {
      Sample sample = MakeFakeSample(request, request.sample_ids[i]);
      sample.log_probs.front() = first_log_prob;
      on_sample(std::move(sample));
    }
    on_done(status);
  }
  absl::Status Abort(const std::vector<std::string>& request_ids) override {
    return journal_.Call(who_, fmt::format("Abort({})", fmt::join(request_ids, ",")));
  }
  absl::StatusOr<SleepReports> Sleep(SleepMode mode) override {
    const char* name = mode == SleepMode::kDrainOnly ? "drain" : "level";
    TANDEM_RETURN_IF_ERROR(journal_.Call(who_, fmt::format("Sleep({})", name)));
    const LedgerSnapshot ledger{.entries = {{.tag = "weights", .peak_bytes = 100}},
                                .memory_peak_bytes = 100};
    return SleepReports{{.ledger = ledger}, {.ledger = ledger}};
  }
  absl::StatusOr<PhaseReport> Wake(const std::vector<std::string>& tags) override {
    TANDEM_RETURN_IF_ERROR(journal_.Call(who_, fmt::format("Wake({})", fmt::join(tags, "+"))));
    return PhaseReport{};
  }
  absl::StatusOr<PhaseReport> VerifyWeights(int64_t version) override {
    TANDEM_RETURN_IF_ERROR(journal_.Call(who_, fmt::format("VerifyWeights(v{})", version)));
    return PhaseReport{};
  }
  absl::Status AbortUpdate(const std::string& /*reason*/) override {
    return journal_.Call(who_, "AbortUpdate()");
  }
  absl::Status Shutdown() override { return journal_.Call(who_, "Shutdown()"); }
  void CancelAll() override {}
  std::string address() const override { return fmt::format("r{}i{}", rank_, incarnation_); }
  int64_t incarnation() const override { return incarnation_; }

  float first_log_prob = -1.0f;  // of every sample

 private:
  CallJournal& journal_;
  const std::string who_;
  const int rank_;
  const int64_t incarnation_;
};

}  // namespace tandem::testing
