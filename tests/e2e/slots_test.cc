// Slots of every size carry the same weights: many small ones, the embedding in pieces, everything
// in one.
#include <catch2/catch.hpp>

#include "tests/e2e/recovery.h"

namespace tandem::testing {
namespace {

TEST_CASE("slots of 4, 64 and 512 MiB give equal digests for an embedding of 54 MiB") {
  ClusterRig rig({.model = {.vocab_size = 49152,
                            .hidden_size = 576,
                            .num_layers = 1,
                            .num_heads = 9,
                            .num_kv_heads = 3,
                            .head_dim = 64,
                            .intermediate_size = 1536},
                  .config = {{"trainer.total_training_steps", "1"},
                             {"trainer.save_freq", "-1"},
                             {"data.train_batch_size", "2"},
                             {"rollout.n", "2"},
                             {"data.max_response_length", "4"},
                             {"weight_sync.check", "always"},
                             {"actor.checkpoint.save_contents", "[hf_model]"}}});
  rig.SetPairs(2);  // a single trainer sends without slots
  Outcome first;
  for (const char* mebibytes : {"4", "64", "512"}) {
    INFO("slots of " << mebibytes << " MiB");
    rig.UseRunDir(std::string("slots-") + mebibytes);
    rig.Set("weight_sync.bucket_mb", mebibytes);
    const int code = rig.Launch().Wait();
    INFO(rig.Log("launcher"));
    REQUIRE(code == 0);
    REQUIRE(rig.LeftBehind() == "");
    REQUIRE(rig.Log("trainer").find("without slots") == std::string::npos);
    const Outcome outcome = OutcomeOf(rig, 1);
    REQUIRE_FALSE(outcome.weights.empty());
    if (first.weights.empty()) first = outcome;
    REQUIRE(outcome.weights == first.weights);
    REQUIRE(outcome.metrics == first.metrics);
  }
}

}  // namespace
}  // namespace tandem::testing
