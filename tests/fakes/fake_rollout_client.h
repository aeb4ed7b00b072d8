// A rollout whose samples are a function of their ids.
#pragma once

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

// Generate answers before it returns. A failure injected for "Generate" comes after the first
// sample of the request, as when a process dies in the middle.
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
    for (const uint64_t id : request.sample_ids) {
      Sample sample = MakeFakeSample(request, id);
      sample.log_probs.front() = first_log_prob;
      on_sample(std::move(sample));
      if (!status.ok()) break;
    }
    on_done(status);
  }
  absl::Status Abort() override { return journal_.Call(who_, "Abort()"); }
  absl::StatusOr<PhaseReport> Sleep(SleepMode mode) override {
    const char* name = mode == SleepMode::kDrainOnly ? "drain" : "level";
    TANDEM_RETURN_IF_ERROR(journal_.Call(who_, fmt::format("Sleep({})", name)));
    return PhaseReport{.ledger = {.entries = {{.tag = "weights", .peak_bytes = 100}}}};
  }
  absl::StatusOr<PhaseReport> Wake(const std::vector<std::string>& tags) override {
    TANDEM_RETURN_IF_ERROR(journal_.Call(who_, fmt::format("Wake({})", fmt::join(tags, "+"))));
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
