#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "common/base/philox.h"
#include "controller/partial_rollout/buffer/round_spec.h"
#include "tests/controller/partial_rollout/buffer_run.h"

namespace tandem {
namespace {

// Groups admitted in order; the oldest B train once they are finished, whatever finished meanwhile.
// In the middle the run may lose its counters, as a recovery does.
struct Simulation {
  struct Group {
    int64_t admitted_at = 0;  // batches trained by then
    bool finished = false;
  };

  void Admit() {
    const int64_t carried = std::ssize(groups) - taken;
    const int64_t training = taken - trained * batch;
    const int64_t may = StalenessLimit(batch, staleness).MayAdmit(carried, training);
    REQUIRE(may >= 0);
    groups.resize(groups.size() + static_cast<size_t>(may), {.admitted_at = trained});
    // The paper's form of the rule, and no group less than it allows.
    REQUIRE((std::ssize(groups) - 1) / batch <= trained + staleness);
    REQUIRE(std::ssize(groups) / batch > trained + staleness);
  }
  void Finish(uint64_t word) {
    if (taken == std::ssize(groups)) return;
    const auto waiting = static_cast<uint64_t>(std::ssize(groups) - taken);
    groups[static_cast<size_t>(taken) + word % waiting].finished = true;
  }
  bool Ready() const {
    for (int64_t g = taken; g < taken + batch; ++g) {
      if (g >= std::ssize(groups) || !groups[static_cast<size_t>(g)].finished) return false;
    }
    return true;
  }

  int64_t batch = 1, staleness = 0;
  std::vector<Group> groups;
  int64_t taken = 0, trained = 0;
};

}  // namespace

TEST_CASE("S1: no batch that trains in order of drawing is begun more than eta versions before",
          "[staleness]") {
  int64_t stalest = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Simulation run{.batch = 1 + static_cast<int64_t>(seed % 7),
                   .staleness = static_cast<int64_t>(seed % 4)};
    INFO("batch " << run.batch << ", eta " << run.staleness << ", seed " << seed);
    for (uint64_t at = 0; run.trained < 30; ++at) {
      REQUIRE(at < 100000);
      const auto words = RandomWords(seed, 1, at);
      run.Admit();
      run.Finish(words[0]);
      const bool trains = run.taken > run.trained * run.batch;
      if (trains && words[1] % 3 == 0) ++run.trained;  // its weights are served from now on
      if (run.taken > run.trained * run.batch || !run.Ready()) continue;
      for (int64_t g = run.taken; g < run.taken + run.batch; ++g) {
        const int64_t behind = run.trained - run.groups[static_cast<size_t>(g)].admitted_at;
        REQUIRE(behind <= run.staleness);
        stalest = std::max(stalest, behind);
      }
      run.taken += run.batch;
    }
  }
  REQUIRE(stalest == 3);  // the bound is met, not only kept
}

TEST_CASE("without staleness nothing is begun while a batch trains", "[staleness]") {
  const StalenessLimit limit(8, 0);
  REQUIRE(limit.MayAdmit(0, 0) == 8);
  REQUIRE(limit.MayAdmit(5, 0) == 3);
  REQUIRE(limit.MayAdmit(0, 8) == 0);
  REQUIRE(limit.MayAdmit(20, 0) == 0);
  REQUIRE(StalenessLimit(8, 1).MayAdmit(3, 8) == 5);
}

// A step of `updates` makes that many versions, or fewer where some are left out.
TEST_CASE("what is not due may wait for another step, whatever updates are left out",
          "[staleness]") {
  constexpr int64_t kVersion = 30;
  int64_t furthest = 0;
  for (const int64_t staleness : {0, 1, 3}) {
    for (const int64_t updates : {1, 2, 5}) {
      const StalenessLimit limit(4, staleness);
      for (int64_t begun = 0; begun <= 30; ++begun) {
        const bool due = begun <= limit.DueVersion(kVersion, updates);
        if (due) continue;
        REQUIRE(kVersion + updates - begun <= staleness * updates);
        furthest = std::max(furthest, kVersion + updates - begun);
      }
      // Nothing is due that could have waited.
      const int64_t last = limit.DueVersion(kVersion, updates);
      REQUIRE(kVersion + updates - last == staleness * updates + 1);
    }
  }
  REQUIRE(furthest == 15);
}

// Rounds end anywhere and groups finish in any order: newer ones overtake older ones again and
// again.
TEST_CASE("S2: whichever groups finish first, no batch has a token older than eta versions",
          "[staleness]") {
  constexpr int64_t kVersions = 12;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const int64_t batch = 1 + static_cast<int64_t>(seed % 3);
    const auto staleness = static_cast<int64_t>(seed / 3 % 4);
    INFO("batch " << batch << ", eta " << staleness << ", seed " << seed);
    const StalenessLimit limit(batch, staleness);
    testing::BufferRun run(testing::OptionsOf(1, 40));
    uint64_t drawn = 0, rolls = 0, rounds = 0;
    const auto round = [&](int64_t version, int64_t training, std::set<int64_t> due) {
      const int64_t fresh = limit.MayAdmit(run.buffer->Counts().groups, training);
      REQUIRE(run.buffer->Add(testing::SomePrompts(drawn, fresh)).ok());
      drawn += static_cast<uint64_t>(fresh);
      run.RunRound({.step = version + 1, .version = version, .due_groups = std::move(due)},
                   [&](uint64_t) -> int64_t {
                     const uint64_t roll = RandomWords(seed, 7, rolls++)[0] % 4;
                     return roll == 0 ? testing::kAll : static_cast<int64_t>(roll) - 1;
                   });
    };
    int64_t oldest = 0;
    for (int64_t version = 0; version < kVersions; ++version) {
      const TrainingDeadlines deadlines = limit.Deadlines(version, 1);
      while (run.buffer->complete() < batch || !DueGroups(run.buffer->state(), deadlines).empty()) {
        REQUIRE(++rounds < 10000);
        round(version, 0, DueGroups(run.buffer->state(), deadlines));
      }
      for (const Sample& sample : run.Taken(batch)) {
        oldest = std::max(oldest, version - sample.versions.front());
      }
      for (uint64_t beside = RandomWords(seed, 8, rolls++)[0] % 3; beside > 0; --beside) {
        round(version, batch, {});
      }
    }
    REQUIRE(oldest == staleness);
  }
}

}  // namespace tandem
