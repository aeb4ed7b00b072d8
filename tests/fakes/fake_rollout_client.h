// A rollout whose samples are a function of their ids.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "controller/workers/rollout_client.h"
#include "tests/fakes/call_journal.h"
#include "tests/fakes/fake_response.h"

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

// Generate answers before it returns, but for samples that FakeResponses::held_after holds up:
// their request ends when it is aborted, or with CancelAll or EndAll. A failure injected for
// "Generate" comes after the first of several samples of the request, as when a process dies in the
// middle.
class FakeRolloutClient : public RolloutClient {
 public:
  FakeRolloutClient(CallJournal& journal, int rank, int64_t incarnation)
      : journal_(journal),
        who_("rollout " + std::to_string(rank)),
        rank_(rank),
        incarnation_(incarnation) {}

  void Generate(const GroupRequest& request,
                std::function<void(Sample)> on_sample,
                StatusDone on_done) override {
    const absl::Status status =
        journal_.Call(who_, fmt::format("Generate(group {}, {} samples, v{})", request.group,
                                        request.sample_ids.size(), request.version));
    const size_t asked = request.sample_ids.size();
    {
      const MutexLock lock(requests_mutex_);
      prefilled_ += std::ssize(request.prompt);
      for (const Continuation& from : request.continued) prefilled_ += std::ssize(from.tokens);
    }
    const size_t made = status.ok() ? asked : std::min<size_t>(1, asked - 1);
    if (responses.length) return Respond(request, made, status, on_sample, on_done);
    for (size_t i = 0; i < made; ++i) {
      Sample sample = MakeFakeSample(request, request.sample_ids[i]);
      sample.log_probs.front() = first_log_prob;
      on_sample(std::move(sample));
    }
    on_done(status);
  }
  void Abort(const std::vector<std::string>& request_ids, StatusDone done) override {
    const absl::Status status =
        journal_.Call(who_, fmt::format("Abort({})", fmt::join(request_ids, ",")));
    if (!status.ok()) return done(status);
    for (const Held& held : TakeHeld(request_ids)) {
      for (const Sample& sample : held.samples) held.on_sample(sample);
      held.on_done(absl::OkStatus());
    }
    done(absl::OkStatus());
  }
  void Sleep(SleepMode mode, Done<SleepReports> done) override {
    const char* name = mode == SleepMode::kDrainOnly ? "drain" : "level";
    const LedgerSnapshot ledger{.entries = {{.tag = "weights", .peak_bytes = 100}},
                                .memory_peak_bytes = 100};
    Answer(fmt::format("Sleep({})", name), SleepReports{{.ledger = ledger}, {.ledger = ledger}},
           done);
  }
  void Wake(const std::vector<std::string>& tags, Done<PhaseReport> done) override {
    Answer(fmt::format("Wake({})", fmt::join(tags, "+")), PhaseReport{}, done);
  }
  void VerifyWeights(int64_t version, Done<PhaseReport> done) override {
    Answer(fmt::format("VerifyWeights(v{})", version), PhaseReport{}, done);
  }
  void PrefilledTokens(Done<int64_t> done) override {
    int64_t tokens = 0;
    {
      const MutexLock lock(requests_mutex_);
      tokens = prefilled_;
    }
    done(tokens);
  }
  void AbortUpdate(const std::string& /*reason*/, StatusDone done) override {
    done(journal_.Call(who_, "AbortUpdate()"));
  }
  void Shutdown(StatusDone done) override { done(journal_.Call(who_, "Shutdown()")); }
  void CancelAll() override { EndAll(absl::CancelledError("cancelled")); }
  // Ends requests whose samples are held up, without these.
  void EndAll(const absl::Status& status) {
    for (const Held& held : TakeHeld({})) held.on_done(status);
  }
  // All that were sent, with what they go on from; only where `responses.length` is set.
  std::vector<GroupRequest> requests() const {
    const MutexLock lock(requests_mutex_);
    return requests_;
  }
  std::string address() const override { return fmt::format("r{}i{}", rank_, incarnation_); }
  int64_t incarnation() const override { return incarnation_; }

  float first_log_prob = -1.0f;  // of every sample, unless they are long
  FakeResponses responses;       // set before the first request

 private:
  template <typename Result>
  void Answer(const std::string& call, const Result& result, const Done<Result>& done) {
    const absl::Status status = journal_.Call(who_, call);
    done(status.ok() ? absl::StatusOr<Result>(result) : absl::StatusOr<Result>(status));
  }

  struct Held {
    std::string request_id;
    std::vector<Sample> samples;
    std::function<void(Sample)> on_sample;
    std::function<void(absl::Status)> on_done;
  };

  void Respond(const GroupRequest& request,
               size_t made,
               absl::Status status,
               const std::function<void(Sample)>& on_sample,
               const std::function<void(absl::Status)>& on_done) {
    {
      const MutexLock lock(requests_mutex_);
      requests_.push_back(request);
    }
    const absl::Status refused = CheckFakeContinuations(request);
    if (!refused.ok()) return on_done(refused);
    Held held{.request_id = request.request_id, .on_sample = on_sample, .on_done = on_done};
    for (size_t i = 0; i < made; ++i) {
      Sample sample = MakeFakeResponse(request, i, responses);
      if (sample.finish_reason == FinishReason::kAborted) {
        held.samples.push_back(std::move(sample));
      } else {
        on_sample(std::move(sample));
      }
    }
    if (held.samples.empty() || !status.ok()) return on_done(status);
    const MutexLock lock(requests_mutex_);
    held_.push_back(std::move(held));
  }

  // Those of the given requests; of all when empty.
  std::vector<Held> TakeHeld(const std::vector<std::string>& request_ids) {
    const MutexLock lock(requests_mutex_);
    const auto taken = std::stable_partition(held_.begin(), held_.end(), [&](const Held& held) {
      return !request_ids.empty() &&
             std::count(request_ids.begin(), request_ids.end(), held.request_id) == 0;
    });
    std::vector<Held> ended(std::make_move_iterator(taken), std::make_move_iterator(held_.end()));
    held_.erase(taken, held_.end());
    return ended;
  }

  mutable Mutex requests_mutex_;
  std::vector<Held> held_ ABSL_GUARDED_BY(requests_mutex_);
  std::vector<GroupRequest> requests_ ABSL_GUARDED_BY(requests_mutex_);
  int64_t prefilled_ ABSL_GUARDED_BY(requests_mutex_) = 0;  // tokens
  CallJournal& journal_;
  const std::string who_;
  const int rank_;
  const int64_t incarnation_;
};

}  // namespace tandem::testing
