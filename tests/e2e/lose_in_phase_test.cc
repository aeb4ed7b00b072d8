// A process dies in a phase that a plain run does not have, or has only for a moment.
#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "tests/e2e/recovery.h"

namespace tandem::testing {
namespace {

// A run with every phase: evaluation, sleep and wake, recomputed old log-probs, a reference.
RigOptions EveryPhase() {
  return {.validation = true,
          .config = {{"actor.use_kl_loss", "true"},
                     {"actor.kl_loss_coef", "0.05"},
                     {"actor.old_log_prob", "recompute"},
                     {"rollout.free_cache_engine", "true"},
                     {"rollout.val_kwargs.n", "1"}}};
}

const Outcome& Expected() {
  static const Outcome outcome = [] {
    Outcome run = RunUndisturbed(EveryPhase());
    REQUIRE(run.evaluations.size() == 4);
    return run;
  }();
  return outcome;
}

TEST_CASE("a process killed in any phase does not change the outcome") {
  const Fault fault = GENERATE(values<Fault>({{"trainer", 1, "old_log_prob", 2},
                                              {"trainer", 0, "reference", 2},
                                              {"rollout", 1, "begin update", 3},
                                              {"controller", 0, "score", 2},
                                              {"controller", 0, "sleep", 2},
                                              {"controller", 0, "advantage", 2},
                                              {"controller", 0, "optimize", 2},
                                              {"controller", 0, "wake", 2}}));
  INFO(fmt::format("{} {} at {}", fault.role, fault.rank, fault.point));
  RequireRecovery(fault, EveryPhase(), Expected());
}

TEST_CASE("a controller killed in an evaluation makes it up") {
  // Before the first step, between two steps, after the last one.
  const int nth = GENERATE(1, 3, 4);
  INFO("evaluation " << nth);
  RequireRecovery({"controller", 0, "evaluate", nth}, EveryPhase(), Expected());
}

}  // namespace
}  // namespace tandem::testing
