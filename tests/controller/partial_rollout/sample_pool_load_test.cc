// A pool that does not fit the run is refused by name, with the remedy.
#include <functional>
#include <optional>

#include <catch2/catch.hpp>

#include "tests/controller/partial_rollout/saved_pool_fixture.h"

namespace tandem {
namespace {

using testing::kStep;
using testing::PoolRun;
using testing::RowOf;
using testing::SavedPoolFixture;
using testing::Says;
using testing::SomePrompt;

}  // namespace

TEST_CASE("A pool of another tokenizer is refused", "[saved_pool]") {
  const SavedPoolFixture f;
  PoolOptions options = f.run.options;
  options.tokenizer_digest = "other";
  const absl::Status refused = f.Loaded(options);
  REQUIRE(absl::IsInvalidArgument(refused));
  REQUIRE(Says(refused, "partial_pool holds 3 groups that are not trained yet"));
  REQUIRE(
      Says(refused, "another tokenizer made their tokens (digest with 50 ids, here other with"));
  REQUIRE(Says(refused, "set model.path to the model that the run was started with"));
  REQUIRE(Says(refused, "trainer.resume_mode=disable, which keeps the old checkpoints aside"));
  options = f.run.options;
  options.vocab_limit = 51;
  REQUIRE(Says(f.Loaded(options), "another tokenizer"));
}

TEST_CASE("A pool of other data is refused by row", "[saved_pool]") {
  const SavedPoolFixture f;
  const auto with_row = [&](std::optional<Prompt> row) {
    const absl::Status refused = f.Loaded(f.run.options, [&](uint64_t number) -> const Prompt* {
      return number == 1 ? (row ? &*row : nullptr) : RowOf(number);
    });
    REQUIRE(absl::IsInvalidArgument(refused));
    REQUIRE(Says(refused, "give data.train_files"));
    return refused;
  };
  REQUIRE(Says(with_row(std::nullopt), "row 1 of the training data is not there any more"));
  Prompt other = SomePrompt(1);
  other.tokens.back() -= 1;
  REQUIRE(Says(with_row(other), "row 1 of the training data is another prompt"));
  // Texts may be others: a template for people, a corrected answer.
  other = SomePrompt(1);
  other.text = "other";
  REQUIRE(f.Loaded(f.run.options, [&](uint64_t number) {
             return number == 1 ? &other : RowOf(number);
           }).ok());
}

TEST_CASE("Settings that samples cannot change on their way are refused, all by name",
          "[saved_pool]") {
  const SavedPoolFixture f;
  const auto refused = [&](const std::function<void(PoolOptions&)>& change,
                           const std::string& text) {
    PoolOptions options = f.run.options;
    change(options);
    const absl::Status status = f.Loaded(options);
    REQUIRE(absl::IsInvalidArgument(status));
    REQUIRE(Says(status, text));
  };
  refused([](PoolOptions& o) { o.samples_per_prompt = 4; },
          "rollout.n is 4 and was 3; set it back");
  refused([](PoolOptions& o) { o.sampling.temperature = 0.7f; },
          "rollout.temperature is 0.7 and was 1;");
  refused([](PoolOptions& o) { o.sampling.top_p = 0.9f; }, "rollout.top_p is 0.9 and was 1;");
  refused([](PoolOptions& o) { o.sampling.top_k = 5; }, "rollout.top_k is 5 and was -1;");
  refused([](PoolOptions& o) { o.sampling.seed = 6; }, "rollout.seed is 6 and was 5;");
  refused([](PoolOptions& o) { o.sampling.stop = {"###"}; },
          "rollout.stop is [\"###\"] and was []");
  refused([](PoolOptions& o) { o.sampling.ignore_eos = true; }, "rollout.ignore_eos is true");
  refused([](PoolOptions& o) { o.sampling.stop_token_ids = {2}; }, "end-of-sequence ids) is [2]");
  refused([](PoolOptions& o) { o.log_probs = false; }, "rollout.calculate_log_probs is false");
  refused(
      [](PoolOptions& o) {
        o.sampling.seed = 6;
        o.sampling.top_k = 5;
      },
      "rollout.seed is 6 and was 5, rollout.top_k is 5 and was -1; set them back");
}

TEST_CASE("Cuts are followed by runs of the same settings alone", "[saved_pool]") {
  const PoolOptions options = SavedPoolFixture().run.options;
  const std::string same = CutsIdentity(options);
  REQUIRE(CutsIdentity(options) == same);
  const auto other = [&](const std::function<void(PoolOptions&)>& change) {
    PoolOptions changed = options;
    change(changed);
    return CutsIdentity(changed) != same;
  };
  REQUIRE(other([](PoolOptions& o) { o.tokenizer_digest = "other"; }));
  REQUIRE(other([](PoolOptions& o) { o.sampling.max_tokens = 11; }));
  REQUIRE(other([](PoolOptions& o) { o.sampling.seed = 6; }));
  REQUIRE(other([](PoolOptions& o) { o.samples_per_prompt = 2; }));
}

TEST_CASE("An empty pool holds nobody to anything", "[saved_pool]") {
  const PoolRun run;
  const testing::TempDir checkpoint;
  REQUIRE(run.pool->Save(checkpoint.path(), kStep).ok());
  const PoolRun other({.tokenizer_digest = "other", .vocab_limit = 3});
  REQUIRE(other.pool->Load(checkpoint.path(), RowOf, kStep).ok());
  REQUIRE(CheckNoPool(checkpoint.path()).ok());
}

TEST_CASE("Another response length is refused only where it matters", "[saved_pool]") {
  const SavedPoolFixture f;  // samples of 2 (finished), 4 and 7 tokens, of at most 10
  const auto with = [&](int64_t length) {
    PoolOptions options = f.run.options;
    options.sampling.max_tokens = length;
    return f.Loaded(options);
  };
  REQUIRE(with(8).ok());
  REQUIRE(with(7).ok());
  REQUIRE(with(12).ok());
  const absl::Status shorter = with(6);
  REQUIRE(absl::IsInvalidArgument(shorter));
  REQUIRE(Says(shorter, "data.max_response_length is 6 and was 10: sample 0x"));
  REQUIRE(Says(shorter, "has 7 tokens; set it back"));
  // Those that have all that is left to them are over.
  PoolRun exact(f.run.options);
  exact.options.sampling.max_tokens = 7;
  exact.pool = exact.OpenPool();
  REQUIRE(exact.pool->Load(f.checkpoint(), RowOf, kStep).ok());
  REQUIRE(exact.pool->whole() == 2);

  // Ended by length at 10: it would go on at 12.
  f.run.Round({.step = 3, .version = 3});
  REQUIRE(f.run.pool->Save(f.checkpoint(), kStep).ok());
  const absl::Status longer = with(12);
  REQUIRE(absl::IsInvalidArgument(longer));
  REQUIRE(Says(longer, "was ended by length at 10 tokens; set it back"));
  REQUIRE(with(10).ok());
}

TEST_CASE("A run with partial rollout off does not lose a pool without a word", "[saved_pool]") {
  const SavedPoolFixture f;
  const absl::Status refused = CheckNoPool(f.checkpoint());
  REQUIRE(absl::IsFailedPrecondition(refused));
  REQUIRE(Says(refused, "holds 3 groups"));
  REQUIRE(Says(refused, "give rollout.partial the keys that the run had"));
  REQUIRE(Says(refused, "rollout.partial.max_tokens_per_round=10, which cuts nothing"));
  REQUIRE(Says(refused, "trainer.resume_mode=disable"));
  REQUIRE(CheckNoPool(f.run.dir.path() / "none").ok());
}

}  // namespace tandem
