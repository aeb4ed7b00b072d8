#include "controller/rollouts/sample_check.h"

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "controller/rollouts/rollout_dispatcher.h"
#include "tests/fakes/fake_rollout_client.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::Says;

GroupRequest AskedGroup() {
  return {.version = 4,
          .prompt = {7, 8},
          .sample_ids = {0x10, 0x11},
          .params = {.max_tokens = 2},
          .group = 3};
}

TEST_CASE("An answer that fits its request is taken", "[sample_check]") {
  const GroupRequest request = AskedGroup();
  REQUIRE(CheckAnswer(request, testing::MakeFakeSample(request, 0x10), 100).ok());
  // Where log-probs are not asked for, a rollout may send none.
  Sample bare = testing::MakeFakeSample(request, 0x10);
  bare.log_probs.clear();
  REQUIRE(CheckAnswer(request, bare, 100).ok());
  GroupRequest strict = request;
  strict.log_probs = true;
  REQUIRE_FALSE(CheckAnswer(strict, bare, 100).ok());
}

TEST_CASE("What does not fit the request is named", "[sample_check]") {
  struct Case {
    std::string says;
    std::function<void(Sample&)> spoil;
  };
  const std::vector<Case> cases = {
      {"came for group 9, and belongs to group 3", [](Sample& s) { s.group = 9; }},
      {"another prompt", [](Sample& s) { s.tokens[1] = 9; }},
      {"another prompt", [](Sample& s) { s.prompt_tokens = 3; }},
      {"another prompt", [](Sample& s) { s.tokens.resize(1); }},
      {"without saying why it ended", [](Sample& s) { s.finish_reason = FinishReason::kNone; }},
      {"has 3 response tokens, and max_tokens is 2",
       [](Sample& s) {
         s.tokens.push_back(1);
         s.log_probs.push_back(-1);
         s.versions.push_back(4);
       }},
      {"but 1 log-probs and 2 weight versions", [](Sample& s) { s.log_probs.pop_back(); }},
      {"but 2 log-probs and 1 weight versions", [](Sample& s) { s.versions.pop_back(); }},
      {"has id 100 as response token 1, and the tokenizer has 100 ids",
       [](Sample& s) { s.tokens.back() = 100; }},
      {"has id -1 as response token 0", [](Sample& s) { s.tokens[2] = -1; }},
      {"is nan, not finite: sample 0x11, position 3, weight version 4, in the rollout",
       [](Sample& s) { s.log_probs[1] = NAN; }},
      {"is infinite, not finite: sample 0x11, position 2",
       [](Sample& s) { s.log_probs[0] = -INFINITY; }},
      {"a response token 1 that weights of version 3 sampled; version 4 was asked for",
       [](Sample& s) { s.versions[1] = 3; }}};
  const GroupRequest request = AskedGroup();
  for (const Case& wrong : cases) {
    Sample sample = testing::MakeFakeSample(request, 0x11);
    wrong.spoil(sample);
    const absl::Status refused = CheckAnswer(request, sample, 100);
    INFO(wrong.says << ": " << refused.ToString());
    REQUIRE(absl::IsDataLoss(refused));
    REQUIRE(Says(refused, "sample 0x11"));
    REQUIRE(Says(refused, wrong.says));
  }
}

TEST_CASE("Tokens of a continuation may be of older weights, never of newer ones",
          "[sample_check]") {
  GroupRequest request = AskedGroup();
  request.continued = {{.tokens = {1}, .versions = {2}}, {.tokens = {1}, .versions = {2}}};
  Sample sample = testing::MakeFakeSample(request, 0x10);
  sample.versions = {2, 4};
  REQUIRE(CheckAnswer(request, sample, 100).ok());
  sample.versions = {2, 5};
  REQUIRE(absl::IsDataLoss(CheckAnswer(request, sample, 100)));
}

// Answers every request with what `spoil` makes of a right answer.
class WrongRollout : public testing::FakeRolloutClient {
 public:
  WrongRollout(testing::CallJournal& journal, std::function<void(Sample&)> spoil)
      : FakeRolloutClient(journal, 0, 1), spoil_(std::move(spoil)) {}
  void Generate(const GroupRequest& request,
                std::function<void(Sample)> on_sample,
                std::function<void(absl::Status)> on_done) override {
    for (const uint64_t id : request.sample_ids) {
      Sample sample = testing::MakeFakeSample(request, id);
      spoil_(sample);
      on_sample(std::move(sample));
    }
    on_done(absl::OkStatus());
  }

 private:
  const std::function<void(Sample&)> spoil_;
};

TEST_CASE("A dispatch ends with the name of a rollout whose answer is wrong", "[sample_check]") {
  testing::CallJournal journal;
  int taken = 0;
  const auto dispatch = [&](std::function<void(Sample&)> spoil) {
    RolloutDispatcher dispatcher({.vocab_limit = 100});
    return dispatcher
        .Dispatch({AskedGroup()}, {{0, std::make_shared<WrongRollout>(journal, std::move(spoil))}},
                  [&](const Sample&) {
                    ++taken;
                    return absl::OkStatus();
                  })
        .status();
  };
  const absl::Status other_group = dispatch([](Sample& sample) { sample.group = 0; });
  REQUIRE(absl::IsDataLoss(other_group));
  REQUIRE(Says(other_group, "rollout 0: sample 0x10 came for group 0"));
  const absl::Status other_id = dispatch([](Sample& sample) { sample.sample_id = 0x99; });
  REQUIRE(absl::IsDataLoss(other_id));
  REQUIRE(Says(other_id, "rollout 0 sent sample 0x99, which was not asked for or came twice"));
  REQUIRE(taken == 0);
  const absl::Status twice = dispatch([](Sample& sample) { sample.sample_id = 0x10; });
  REQUIRE(Says(twice, "came twice"));
  REQUIRE(taken == 1);
}

}  // namespace
}  // namespace tandem
