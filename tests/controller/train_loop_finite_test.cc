// Values that are not finite, and optimizer moments that are not there.
#include <algorithm>
#include <cmath>

#include <catch2/catch.hpp>

#include "tests/fakes/fake_run.h"

namespace tandem {

TEST_CASE("TrainLoop stops on a log-prob of a rollout that is not finite", "[train_loop]") {
  for (const float broken : {NAN, -INFINITY}) {
    testing::FakeRun run(1);
    run.first_log_prob = broken;
    const absl::Status status = run.Run();
    REQUIRE(absl::IsDataLoss(status));
    const std::string message(status.message());
    INFO(message);
    REQUIRE(message.find("not finite: sample 0x0, position 3, weight version 0, in the rollout") !=
            std::string::npos);
    REQUIRE(run.journal.Count("trainer 0 ForwardBackward") == 0);
  }
}

TEST_CASE("Skipped updates are counted, and three in a row end the run", "[train_loop]") {
  testing::FakeRun now_and_then(1);
  now_and_then.options.total_steps = 6;
  now_and_then.skipped_versions = {1, 2, 4, 5};
  REQUIRE(now_and_then.Run().ok());
  REQUIRE(now_and_then.store.steps.at(1).metrics.at("actor/skipped_updates") == 1);
  REQUIRE_FALSE(now_and_then.store.steps.at(3).metrics.contains("actor/skipped_updates"));

  testing::FakeRun always(1);
  always.options.total_steps = 6;
  always.skipped_versions = {2, 3, 4};
  const absl::Status status = always.Run();
  REQUIRE(absl::IsDataLoss(status));
  REQUIRE(std::string(status.message()).find("step 4: 3 updates in a row were skipped") !=
          std::string::npos);
  REQUIRE(always.store.steps.size() == 3);
}

TEST_CASE("Going on without Adam moments is told", "[train_loop][recovery]") {
  for (const bool saved : {true, false}) {
    testing::FakeRun run(1);
    run.options.save_freq = 1;
    run.options.save_moments = saved;
    run.DieAt({WorkerRole::kTrainer, 0}, "ForwardBackward", 1);
    REQUIRE(run.Run().ok());
    const std::vector<std::string>& told = run.progress.messages;
    const bool warned = std::any_of(told.begin(), told.end(), [](const std::string& line) {
      return line.find("step_1 has no Adam moments") != std::string::npos;
    });
    REQUIRE(warned == !saved);
  }
}

}  // namespace tandem
