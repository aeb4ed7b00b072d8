#include <catch2/catch.hpp>

#include "tests/fakes/fake_run.h"

namespace tandem {

// Two prompts of four samples with two response tokens each; the mask takes one token of one
// sample.
TEST_CASE("Every optimizer step of a batch is told the denominators of its own mini-batch",
          "[train_loop]") {
  testing::FakeRun run(2);
  run.options.total_steps = 1;
  run.options.mini_batch_prompts = 1;
  run.options.epochs = 2;
  run.options.need_reference = true;
  run.journal.OnCall("trainer 0 ComputeLogProbs(step 1, reference", [&] {
    const uint64_t first = run.samples->Metas().front().sample_id;
    REQUIRE(run.samples->PutArray(1, TokenArray::kMask, first, {0.0f, 1.0f}).ok());
  });
  std::vector<ForwardBackwardCall> commands;
  run.on_forward_backward = [&](const ForwardBackwardCall& command, ForwardBackwardReply&) {
    commands.push_back(command);
  };
  REQUIRE(run.Run().ok());
  REQUIRE(commands.size() == 4);
  for (size_t i = 0; i < commands.size(); ++i) {
    REQUIRE(commands[i].mini_batch == static_cast<int64_t>(i % 2));
    REQUIRE(commands[i].mini_batches == 4);
    REQUIRE(commands[i].version == static_cast<int64_t>(i));
    REQUIRE(commands[i].global_samples == 4);
    REQUIRE(commands[i].global_tokens == (i % 2 == 0 ? 7 : 8));
    REQUIRE(commands[i].compare_log_probs == (i == 0));
  }
}

}  // namespace tandem
