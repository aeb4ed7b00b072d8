#include "controller/wire/run_answers.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "controller/step/summary/load_log.h"
#include "controller/store/time_stamp.h"
#include "tandem/v1/controller.pb.h"
#include "tests/fakes/fake_run.h"

namespace tandem {
namespace {

// As many load records as a long step keeps of `rollouts` rollouts, with numbers of a busy one.
StepRecord BusyStep(int64_t number, int rollouts) {
  StepRecord step{.step = number};
  constexpr int64_t kCount = 1'000'000;
  for (int rank = 0; rank < rollouts; ++rank) {
    for (size_t i = 0; i < LoadLog::kMostOfRollout; ++i) {
      step.load.push_back({.time_us = static_cast<int64_t>(i) * 1'000'000,
                           .rank = rank,
                           .load = {.queued = kCount,
                                    .running = kCount,
                                    .waiting = kCount,
                                    .kv_blocks = kCount,
                                    .kv_blocks_used = kCount,
                                    .preemptions = kCount,
                                    .generated_tokens = kCount,
                                    .prefill_tokens = kCount,
                                    .prefix_hit_tokens = kCount}});
    }
  }
  return step;
}

v1::ListStepsResponse AnswerOfDetails(testing::MemoryRunStore& store) {
  v1::ListStepsRequest request;
  request.set_details(true);
  return AnswerSteps(store, request).value();
}

}  // namespace

TEST_CASE("The load of a thousand rollouts is thinned until its step fits into a message",
          "[services]") {
  constexpr size_t kMessageBytes = 4 << 20;
  testing::MemoryRunStore store;
  store.steps[1] = BusyStep(1, 4);
  v1::ListStepsResponse answer = AnswerOfDetails(store);
  REQUIRE(answer.steps(0).load_size() == 4 * static_cast<int>(LoadLog::kMostOfRollout));
  store.steps.clear();
  store.steps[2] = BusyStep(2, 1000);
  answer = AnswerOfDetails(store);
  REQUIRE(answer.ByteSizeLong() < kMessageBytes);
  REQUIRE(answer.steps_size() == 1);
  REQUIRE(answer.steps(0).step() == 2);
  // Of every rollout the first, and then others in equal distances.
  std::map<int32_t, std::vector<std::string>> times;  // by rank
  for (const v1::LoadRecord& load : answer.steps(0).load()) {
    times[load.rank()].push_back(load.time());
  }
  REQUIRE(times.size() == 1000);
  const std::vector<std::string>& kept = times[0];
  REQUIRE(kept.size() >= 16);
  REQUIRE(LoadLog::kMostOfRollout % kept.size() == 0);
  const size_t distance = LoadLog::kMostOfRollout / kept.size();
  const auto whole = BusyStep(1, 1).load;
  for (size_t i = 0; i < kept.size(); ++i) {
    REQUIRE(kept[i] == StampText(whole[distance * i].time_us));
  }
  for (const auto& [rank, of_rank] : times) REQUIRE(of_rank == kept);
}

}  // namespace tandem
