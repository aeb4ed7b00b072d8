// R3: the cases at the edges of a round.
#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "controller/partial_rollout/buffer/rollout_buffer.h"
#include "tests/controller/partial_rollout/buffer_run.h"

namespace tandem {
TEST_CASE("R3: all finished: a round without cuts is what it is without partial rollout",
          "[rollout_buffer]") {
  const BufferRun run;
  REQUIRE(run.buffer->Add(SomePrompts(0, 4)).ok());
  const auto requests = run.Begin({.step = 3, .version = 2, .groups = 4, .cap = 10});
  REQUIRE(requests.ok());
  REQUIRE(requests->size() == 4);
  for (size_t g = 0; g < 4; ++g) {
    const GroupRequest& request = (*requests)[g];
    REQUIRE(request.request_id == fmt::format("3-0-{}", g));
    REQUIRE(request.version == 2);
    REQUIRE(request.group == static_cast<int64_t>(g));
    REQUIRE(request.prompt == SomePrompt(g).tokens);
    REQUIRE(request.sample_ids == std::vector<uint64_t>{Id(g, 0), Id(g, 1), Id(g, 2)});
    REQUIRE(request.params.max_tokens == 10);
    REQUIRE(request.params.seed == 5);
    REQUIRE_FALSE(request.log_probs);
    // The cap is never reached: nothing but what is sent without it.
    REQUIRE(request.continued.empty());
    REQUIRE_FALSE(request.load_continued);
  }
  run.RunRound({.step = 3, .version = 2, .groups = 4, .cap = 10});
  REQUIRE(run.buffer->complete() == 4);
  REQUIRE(run.buffer->Counts().unfinished_groups() == 0);
  REQUIRE(run.round->GetInterruptionPoints().empty());
  TakenGroups taken;
  const std::vector<Sample> samples = run.Taken(4, &taken);
  REQUIRE(samples.size() == 12);
  for (const Sample& sample : samples) {
    RequireWhole(run, sample);
    REQUIRE(sample.segments.size() == 2);
  }
  REQUIRE(taken.prompts.size() == 4);
  REQUIRE(taken.prompts[3].text == SomePrompt(3).text);
  REQUIRE(taken.samples == 12);
  REQUIRE(taken.partial_samples == 0);
  REQUIRE(taken.longest_span == 0);
  REQUIRE(std::ssize(run.buffer->state().groups) == 0);
  REQUIRE(run.Begin({.step = 4})->empty());
}

TEST_CASE("R3: none finished: every sample is carried with what it has", "[rollout_buffer]") {
  BufferRun run;
  run.lengths = [](uint64_t) { return 9; };
  REQUIRE(run.buffer->Add(SomePrompts(0, 2)).ok());
  run.RunRound({.step = 1, .version = 1, .cap = 4});
  const BufferCounts counts = run.buffer->Counts();
  REQUIRE(counts.groups == 2);
  REQUIRE(counts.complete == 0);
  REQUIRE(counts.unfinished_samples == 6);
  REQUIRE(counts.carried_samples == 6);
  REQUIRE(counts.tokens == 24);
  REQUIRE(counts.Text() == "2 groups, 0 of them complete, 6 samples unfinished, 24 tokens so far");
  REQUIRE(run.round->GetInterruptionPoints().size() == 6);
  REQUIRE(run.round->GetInterruptionPoints().at(Id(1, 2)) == 4);
  REQUIRE(Says(run.buffer->Take(1, [](const Sample&) { return absl::OkStatus(); }).status(),
               "1 complete groups requested, the buffer has 2 groups, 0 of them complete"));
  run.RunRound({.step = 1, .round = 1, .version = 1, .cap = 4});
  REQUIRE(run.buffer->complete() == 0);
  run.RunRound({.step = 1, .round = 2, .version = 1, .cap = 4});
  REQUIRE(run.buffer->complete() == 2);
  for (const Sample& sample : run.Taken(2)) RequireWhole(run, sample);
}

TEST_CASE("R3: mixed groups: only the unfinished samples of a group go on", "[rollout_buffer]") {
  BufferRun run;
  run.lengths = [](uint64_t id) { return id == Id(0, 1) ? 9 : 2; };
  REQUIRE(run.buffer->Add(SomePrompts(0, 2)).ok());
  run.RunRound({.step = 1, .version = 4, .groups = 2, .cap = 4});
  REQUIRE(run.buffer->complete() == 1);
  REQUIRE(run.buffer->Counts().unfinished_samples == 1);
  REQUIRE(run.buffer->Add(SomePrompts(2, 1)).ok());
  const auto requests = run.Begin({.step = 2, .round = 5, .version = 5, .groups = 2, .cap = 4});
  REQUIRE(requests->size() == 2);
  // Carried first, and not the whole one.
  REQUIRE(requests->at(0).request_id == "2-5-0");
  REQUIRE(requests->at(0).sample_ids == std::vector<uint64_t>{Id(0, 1)});
  REQUIRE(requests->at(1).group == 2);
  REQUIRE(requests->at(1).sample_ids.size() == 3);
  const std::vector<Continuation> from = requests->at(0).load_continued({Id(0, 1)}).value();
  REQUIRE(from.size() == 1);
  REQUIRE(from[0].tokens.size() == 4);
  REQUIRE(from[0].tokens[3] == TokenAt(Id(0, 1), 3));
  REQUIRE(from[0].log_probs[3] == LogProbAt(Id(0, 1), 3));
  REQUIRE(from[0].versions == std::vector<int64_t>{4, 4, 4, 4});
  REQUIRE(from[0].max_new_tokens == 4);
  run.RunRound({.step = 2, .round = 5, .version = 5, .groups = 2, .cap = 4});
  run.RunRound({.step = 2, .round = 6, .version = 5, .groups = 2, .cap = 4});
  TakenGroups taken;
  const std::vector<Sample> samples = run.Taken(3, &taken);
  REQUIRE(samples[1].versions == std::vector<int64_t>{4, 4, 4, 4, 5, 5, 5, 5, 5});
  REQUIRE(samples[1].segments.size() == 3);
  REQUIRE(samples[1].segments[1].begin == 3);
  REQUIRE(samples[1].segments[1].length == 4);
  REQUIRE(samples[1].segments[1].weight_version == 4);
  REQUIRE(samples[1].segments[1].trained);
  REQUIRE(samples[1].segments[2].begin == 7);
  REQUIRE(samples[1].segments[2].length == 5);
  REQUIRE(samples[1].segments[2].weight_version == 5);
  REQUIRE(samples[1].index == 1);
  REQUIRE(taken.partial_samples == 1);
  REQUIRE(taken.longest_span == 1);
  REQUIRE(taken.tokens == 9 + 8 * 2);
}

TEST_CASE("R3: n = 1 and a cap of 1: one token of one sample at a time", "[rollout_buffer]") {
  BufferRun run(OptionsOf(1, 6));
  run.lengths = [](uint64_t) { return 100; };
  REQUIRE(run.buffer->Add(SomePrompts(0, 1)).ok());
  for (int64_t round = 0; round < 6; ++round) {
    REQUIRE(run.buffer->complete() == 0);
    REQUIRE(run.buffer->Counts().tokens == round);
    run.RunRound({.step = 1, .round = round, .version = 1, .groups = 1, .cap = 1});
    REQUIRE(run.round->Counts().generated_tokens == 1);
  }
  const std::vector<Sample> samples = run.Taken(1);
  RequireWhole(run, samples[0]);
  REQUIRE(samples[0].finish_reason == FinishReason::kLength);
}

TEST_CASE("R3: remaining length 0: a sample is finished by length and not sent again",
          "[rollout_buffer]") {
  BufferRun run(OptionsOf(2, 8));
  run.lengths = [](uint64_t) { return 100; };
  REQUIRE(run.buffer->Add(SomePrompts(0, 1)).ok());
  run.RunRound({.step = 1, .version = 1, .cap = 5});
  const auto requests = run.Begin({.step = 1, .round = 1, .version = 1, .cap = 3});
  REQUIRE(requests->size() == 1);
  // A cap that reaches the budget is not a cap: the sample ends by length.
  REQUIRE(requests->front().load_continued({Id(0, 0)})->front().max_new_tokens == 0);
  // Even where a rollout calls it cut or aborted.
  const FinishReason reasons[] = {FinishReason::kCut, FinishReason::kAborted};
  for (uint64_t i = 0; i < 2; ++i) {
    Sample sample = run.Generated(requests->front(), Id(0, i));
    REQUIRE(sample.response_tokens() == 8);
    sample.finish_reason = reasons[i];
    REQUIRE(run.Put(sample).ok());
  }
  REQUIRE(run.buffer->complete() == 1);
  REQUIRE(run.round->GetInterruptionPoints().empty());
  REQUIRE(run.Begin({.step = 1, .round = 2, .version = 1, .cap = 3})->empty());
  for (const Sample& sample : run.Taken(1)) {
    REQUIRE(sample.finish_reason == FinishReason::kLength);
  }
}

TEST_CASE("R3: prompts with ids at or above the tokenizer's size never enter the buffer",
          "[rollout_buffer]") {
  const BufferRun run;
  Prompt prompt = SomePrompt(1);
  for (const int32_t id : {static_cast<int32_t>(kVocab), -1}) {
    prompt.tokens[1] = id;
    REQUIRE(absl::IsInvalidArgument(run.buffer->Add({SomePrompt(0), prompt})));
    REQUIRE(std::ssize(run.buffer->state().groups) == 0);
  }
  prompt.tokens.clear();
  REQUIRE(Says(run.buffer->Add({prompt}), "has no tokens"));
}

}  // namespace tandem
