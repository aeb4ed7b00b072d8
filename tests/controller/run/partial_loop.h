// Runs whose batches are made of rounds over a rollout buffer of carried groups.
#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <absl/synchronization/notification.h>
#include <catch2/catch.hpp>

#include "tests/fakes/fake_run.h"
#include "tests/support/patience.h"

namespace tandem::testing {

inline constexpr int64_t kTokens = 12;  // that a response may have

inline PartialOptions PartialOptionsOf(const TrainOptions& train) {
  return {.enabled = true,
          .groups_per_round = train.train_batch_size,
          .max_versions = 8,
          .max_rounds_without_batch = 20,
          .train_batch_size = train.train_batch_size,
          .response_length = kTokens};
}

// Two groups of four in a batch; of every group one sample is long now and then.
class PartialRun : public FakeRun {
 public:
  explicit PartialRun(int pairs) : FakeRun(pairs) {
    options.total_steps = 5;
    options.sampling.max_tokens = kTokens;
    options.partial = PartialOptionsOf(options);
    responses.length = [](uint64_t id) { return LengthOf(id); };
  }

  static int64_t LengthOf(uint64_t id) {
    const uint64_t row = id >> 24, index = id & 0xfffu;
    return (row + index) % 5 == 0 ? 11 : 1 + static_cast<int64_t>((row * 3 + index) % 4);
  }

  // The training of `step` lasts until a sample is generated beside it. Without this fakes train in
  // no time, and the thread beside them may get none of it. `step` must be the first whose rounds
  // beside training have something to generate; the test fails where they have nothing. Called by
  // the thread that runs the loop.
  void TrainUntilGeneratedBeside(int64_t step) {
    responses.length = [this, loop = std::this_thread::get_id()](uint64_t id) {
      const bool beside = std::this_thread::get_id() != loop;
      if (beside && !generated_beside_.HasBeenNotified()) generated_beside_.Notify();
      return LengthOf(id);
    };
    journal.OnCall(fmt::format("trainer 0 ForwardBackward(step {},", step),
                   [this] { generated_beside_.WaitForNotificationWithTimeout(kPatience); });
  }

  int64_t Metric(int64_t step, const std::string& name) const {
    return static_cast<int64_t>(store.steps.at(step).metrics.at(name));
  }

  // What a step trained on, whole: every token that belongs to it, with versions that ascend.
  void RequireBatch(int64_t step) const {
    INFO("step " << step);
    const auto& records = store.samples.at(step);
    REQUIRE(std::ssize(records) == options.train_batch_size * options.samples_per_prompt);
    for (const SampleRecord& record : records) {
      INFO("sample " << record.sample_id);
      REQUIRE(record.response_tokens == std::min(LengthOf(record.sample_id), kTokens));
      REQUIRE(record.finish_reason != FinishReason::kCut);
    }
  }
  std::set<uint64_t> RowsOf(int64_t step) const {
    std::set<uint64_t> rows;
    for (const SampleRecord& record : store.samples.at(step)) rows.insert(record.sample_id >> 24);
    return rows;
  }

 private:
  absl::Notification generated_beside_;
};

// What a step left in the store, without times.
inline std::vector<std::string> TrainedOn(const MemoryRunStore& store) {
  std::vector<std::string> lines;
  for (const auto& [step, records] : store.samples) {
    for (const SampleRecord& record : records) {
      std::string line = fmt::format("{} {:x} {} {}", step, record.sample_id,
                                     record.response_tokens, record.advantage);
      for (const Segment& segment : record.segments) {
        line += fmt::format(" v{}:{}", segment.weight_version, segment.length);
      }
      lines.push_back(std::move(line));
    }
  }
  return lines;
}

}  // namespace tandem::testing
