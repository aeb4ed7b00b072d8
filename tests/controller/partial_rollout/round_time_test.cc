// Rounds that end by time, and an engine that needs longer than a round for one token.
#include <map>
#include <optional>
#include <utility>

#include <catch2/catch.hpp>

#include "controller/partial_rollout/round_runner.h"
#include "tests/controller/partial_rollout/buffer_run.h"
#include "tests/fakes/fake_clock.h"

namespace tandem {
namespace {

constexpr int64_t kLength = 6;  // tokens of every response

// One group of three samples that all get a token whenever `token_time` is over.
struct RoundTimeFixture {
  explicit RoundTimeFixture(double round_seconds)
      : options{.enabled = true,
                .round_seconds = round_seconds,
                .groups_per_round = 1,
                .train_batch_size = 1,
                .response_length = 10} {
    run.lengths = [](uint64_t) { return kLength; };
    Open();
    REQUIRE(runner->buffer().Add(SomePrompts(0, 1)).ok());
  }

  // As a new process does, which has the journal.
  void Open() {
    auto journal = RoundJournal::Open(run.dir.path() / "journal.jsonl", "test");
    REQUIRE(journal.ok());
    runner = std::make_unique<RoundRunner>(options, run.OpenBuffer(), *std::move(journal), clock);
  }

  // The next round, on a clock that is looked at every 0.1 s. Tokens that each sample got, nullopt
  // where nothing was asked of the rollouts.
  std::optional<int64_t> Round() {
    const auto requests = runner->BeginRound(1, rounds++, 0, {});
    INFO(requests.status().ToString());
    REQUIRE(requests.ok());
    absl::Duration passed;
    const bool cuttable = !requests->empty() && requests->front().interruptible;
    while (cuttable && !runner->RoundIsOver()) {
      REQUIRE(passed < absl::Hours(1));
      passed += absl::Milliseconds(100);
      clock.Advance(absl::Milliseconds(100));
    }
    const int64_t most = cuttable ? absl::IDivDuration(passed, token_time, &passed) : kAll;
    for (const GroupRequest& request : *requests) {
      for (const uint64_t id : request.sample_ids) {
        REQUIRE(runner->Put(run.Generated(request, id, most)).ok());
      }
    }
    REQUIRE(runner->EndRound().ok());
    if (requests->empty()) return std::nullopt;
    return runner->Counts().generated_tokens / 3;
  }

  std::map<uint64_t, int64_t> TokensBySample() const {
    std::map<uint64_t, int64_t> tokens;
    for (const auto& [number, group] : runner->buffer().state().groups) {
      for (const BufferedSample& sample : group.samples) tokens[sample.sample_id] = sample.tokens();
    }
    return tokens;
  }

  BufferRun run;
  testing::FakeClock clock;
  PartialOptions options;
  absl::Duration token_time = absl::Seconds(1);
  std::unique_ptr<RoundRunner> runner;
  int64_t rounds = 0;
};

}  // namespace

TEST_CASE("Rounds too short for a token get twice the time, until one comes", "[partial]") {
  RoundTimeFixture f(0.2);
  std::vector<int64_t> tokens;
  while (f.runner->buffer().complete() == 0) {
    tokens.push_back(f.Round().value());
    REQUIRE(tokens.size() < 20);
    // One notice, after the first round that was long enough.
    const std::vector<std::string> notices = f.runner->TakeNotices();
    if (tokens.size() == 4) {
      REQUIRE(notices == std::vector<std::string>{
                             "step 1: rollout.partial.round_seconds=0.2 is too short for a token; "
                             "rounds last 1.6s from here on"});
    } else {
      REQUIRE(notices.empty());
    }
  }
  // 0.2, 0.4, 0.8 and then 1.6 s, which stays.
  REQUIRE(tokens == std::vector<int64_t>{0, 0, 0, 1, 1, 1, 1, 1, 1});
}

TEST_CASE("A round time that is enough stays as it is", "[partial]") {
  RoundTimeFixture f(2);
  for (int round = 0; round < 3; ++round) REQUIRE(f.Round() == 2);
  REQUIRE(f.runner->buffer().complete() == 1);
  REQUIRE(f.runner->TakeNotices().empty());
  // One that ends without a token for another reason says nothing of the time.
  RoundTimeFixture g(2);
  REQUIRE(g.runner->BeginRound(1, g.rounds++, 0, {}).ok());
  REQUIRE(g.runner->RoundIsOver(/*stop=*/true));
  REQUIRE(g.runner->EndRound().ok());
  REQUIRE(g.Round() == 2);
}

TEST_CASE("Rounds without a token are made again from the journal as they were", "[partial]") {
  RoundTimeFixture f(0.2);
  std::vector<int64_t> tokens;
  for (int round = 0; round < 5; ++round) tokens.push_back(f.Round().value());
  REQUIRE(tokens == std::vector<int64_t>{0, 0, 0, 1, 1});
  const std::map<uint64_t, int64_t> tokens_of_samples = f.TokensBySample();
  // The clock of the second life stands still: nothing but the journal cuts.
  f.Open();
  f.rounds = 0;
  REQUIRE(f.runner->buffer().Add(SomePrompts(0, 1)).ok());
  for (int round = 0; round < 5; ++round) {
    const std::optional<int64_t> again = f.Round();
    REQUIRE(again == (tokens[static_cast<size_t>(round)] == 0 ? std::nullopt : std::optional(1)));
  }
  REQUIRE(f.TokensBySample() == tokens_of_samples);
  REQUIRE(f.runner->TakeNotices().empty());
  // From here on the clock counts again, from the beginning.
  REQUIRE(f.Round() == 0);
  REQUIRE(f.Round() == 0);
  REQUIRE(f.Round() == 0);
  REQUIRE(f.Round() == 1);
}

TEST_CASE("A journal that does not fit the buffer is dropped, and its round is planned anew",
          "[partial]") {
  RoundTimeFixture f(2);
  REQUIRE(f.Round() == 2);
  REQUIRE(f.Round() == 2);
  f.Open();
  f.rounds = 0;
  REQUIRE(f.runner->buffer().Add(SomePrompts(1, 1)).ok());
  REQUIRE(f.runner->Journaled(1, 1, 0));
  REQUIRE(f.Round() == 2);
  const std::vector<std::string> notices = f.runner->TakeNotices();
  REQUIRE(notices.size() == 1);
  REQUIRE(testing::Has(notices[0], "step 1, round 0: the journal does not match"));
  REQUIRE(testing::Has(notices[0], "is not in this round"));
  REQUIRE_FALSE(f.runner->Journaled(1, 1, 0));
  REQUIRE(f.Round() == 2);
  REQUIRE(f.runner->TakeNotices().empty());
}

}  // namespace tandem
