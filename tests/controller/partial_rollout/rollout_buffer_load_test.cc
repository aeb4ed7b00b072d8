// A buffer that does not fit the run is refused by name, with the remedy.
#include <functional>
#include <optional>

#include <catch2/catch.hpp>

#include "tests/controller/partial_rollout/saved_buffer_fixture.h"

namespace tandem {
TEST_CASE("A buffer of another tokenizer is refused", "[saved_buffer]") {
  const SavedBufferFixture f;
  BufferOptions options = f.run.options;
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

TEST_CASE("A buffer of other data is refused by row", "[saved_buffer]") {
  const SavedBufferFixture f;
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
          "[saved_buffer]") {
  const SavedBufferFixture f;
  const auto refused = [&](const std::function<void(BufferOptions&)>& change,
                           const std::string& text) {
    BufferOptions options = f.run.options;
    change(options);
    const absl::Status status = f.Loaded(options);
    REQUIRE(absl::IsInvalidArgument(status));
    REQUIRE(Says(status, text));
  };
  refused([](BufferOptions& o) { o.samples_per_prompt = 4; },
          "rollout.n is 4 and was 3; set it back");
  refused([](BufferOptions& o) { o.sampling.temperature = 0.7f; },
          "rollout.temperature is 0.7 and was 1;");
  refused([](BufferOptions& o) { o.sampling.top_p = 0.9f; }, "rollout.top_p is 0.9 and was 1;");
  refused([](BufferOptions& o) { o.sampling.top_k = 5; }, "rollout.top_k is 5 and was -1;");
  refused([](BufferOptions& o) { o.sampling.seed = 6; }, "rollout.seed is 6 and was 5;");
  refused([](BufferOptions& o) { o.sampling.stop = {"###"}; },
          "rollout.stop is [\"###\"] and was []");
  refused([](BufferOptions& o) { o.sampling.ignore_eos = true; }, "rollout.ignore_eos is true");
  refused([](BufferOptions& o) { o.sampling.stop_token_ids = {2}; }, "end-of-sequence ids) is [2]");
  refused([](BufferOptions& o) { o.log_probs = false; }, "rollout.calculate_log_probs is false");
  refused(
      [](BufferOptions& o) {
        o.sampling.seed = 6;
        o.sampling.top_k = 5;
      },
      "rollout.seed is 6 and was 5, rollout.top_k is 5 and was -1; set them back");
}

TEST_CASE("Cuts are followed by runs of the same settings alone", "[saved_buffer]") {
  const BufferOptions options = SavedBufferFixture().run.options;
  const std::string same = RoundJournalIdentity(options);
  REQUIRE(RoundJournalIdentity(options) == same);
  const auto other = [&](const std::function<void(BufferOptions&)>& change) {
    BufferOptions changed = options;
    change(changed);
    return RoundJournalIdentity(changed) != same;
  };
  REQUIRE(other([](BufferOptions& o) { o.tokenizer_digest = "other"; }));
  REQUIRE(other([](BufferOptions& o) { o.sampling.max_tokens = 11; }));
  REQUIRE(other([](BufferOptions& o) { o.sampling.seed = 6; }));
  REQUIRE(other([](BufferOptions& o) { o.samples_per_prompt = 2; }));
}

TEST_CASE("An empty buffer holds nobody to anything", "[saved_buffer]") {
  const BufferRun run;
  const testing::TempDir checkpoint;
  REQUIRE(run.buffer->Save(checkpoint.path(), kStep).ok());
  const BufferRun other({.tokenizer_digest = "other", .vocab_limit = 3});
  REQUIRE(other.buffer->Load(checkpoint.path(), RowOf, kStep).ok());
  REQUIRE(CheckNoBuffer(checkpoint.path()).ok());
}

TEST_CASE("Another response length is refused only where it matters", "[saved_buffer]") {
  const SavedBufferFixture f;  // samples of 2 (finished), 4 and 7 tokens, of at most 10
  const auto with = [&](int64_t length) {
    BufferOptions options = f.run.options;
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
  BufferRun exact(f.run.options);
  exact.options.sampling.max_tokens = 7;
  exact.buffer = exact.OpenBuffer();
  REQUIRE(exact.buffer->Load(f.checkpoint(), RowOf, kStep).ok());
  REQUIRE(exact.buffer->complete() == 2);

  // Ended by length at 10: it would go on at 12.
  f.run.RunRound({.step = 3, .version = 3});
  REQUIRE(f.run.buffer->Save(f.checkpoint(), kStep).ok());
  const absl::Status longer = with(12);
  REQUIRE(absl::IsInvalidArgument(longer));
  REQUIRE(Says(longer, "was ended by length at 10 tokens; set it back"));
  REQUIRE(with(10).ok());
}

TEST_CASE("A run with partial rollout off does not lose a buffer without a word",
          "[saved_buffer]") {
  const SavedBufferFixture f;
  const absl::Status refused = CheckNoBuffer(f.checkpoint());
  REQUIRE(absl::IsFailedPrecondition(refused));
  REQUIRE(Says(refused, "holds 3 groups"));
  REQUIRE(Says(refused, "give the keys that the run had"));
  REQUIRE(Says(refused, "rollout.partial.max_tokens_per_round=10, which interrupts nothing"));
  REQUIRE(Says(refused, "trainer.resume_mode=disable"));
  REQUIRE(CheckNoBuffer(f.run.dir.path() / "none").ok());
}

TEST_CASE("One step off refuses groups that partial rollout has left", "[saved_buffer]") {
  const SavedBufferFixture f;
  const auto check = [](const std::string& checkpoint, int64_t batch_groups) {
    return CheckWholeGroups(ReadSavedBuffer(checkpoint).value().value(), batch_groups);
  };
  const absl::Status refused = check(f.checkpoint(), 3);
  REQUIRE(absl::IsFailedPrecondition(refused));
  REQUIRE(Says(refused, "of them unfinished, with tokens of 2 weight versions"));
  const BufferRun whole;
  REQUIRE(whole.buffer->Add(SomePrompts(0, 2)).ok());
  whole.RunRound({.step = 1, .version = 1});
  REQUIRE(whole.buffer->Save(whole.dir.path() / "step_1", 1).ok());
  REQUIRE(check(whole.dir.path() / "step_1", 2).ok());
  const absl::Status too_many = check(whole.dir.path() / "step_1", 1);
  REQUIRE(absl::IsFailedPrecondition(too_many));
  REQUIRE(Says(too_many, "data.train_batch_size=1 trains so few"));
}

}  // namespace tandem
