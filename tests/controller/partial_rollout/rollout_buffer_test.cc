#include "controller/partial_rollout/buffer/rollout_buffer.h"

#include <cmath>
#include <set>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "tests/common/formats/file_size_limit.h"
#include "tests/controller/partial_rollout/buffer_run.h"

namespace tandem {
TEST_CASE("a sample that does not go on as it was, bit for bit, is told and changes nothing",
          "[rollout_buffer]") {
  BufferRun run;
  run.lengths = [](uint64_t) { return 9; };
  REQUIRE(run.buffer->Add(SomePrompts(0, 1)).ok());
  run.RunRound({.step = 1, .version = 3, .cap = 4});
  const auto requests = run.Begin({.step = 2, .version = 5, .cap = 4});
  const Sample good = run.Generated(requests->front(), Id(0, 0));
  const auto refused = [&](const std::function<void(Sample&)>& change, const std::string& why) {
    Sample sample = good;
    change(sample);
    const absl::Status put = run.Put(sample);
    REQUIRE(absl::IsDataLoss(put));
    REQUIRE(Says(put, "sample 0x0: "));
    REQUIRE(Says(put, why));
    REQUIRE(run.buffer->Counts().tokens == 12);
  };
  refused([](Sample& s) { s.tokens[3 + 3] ^= 1; }, "the id of response token 3 is not the one");
  refused([](Sample& s) { s.log_probs[0] = std::nextafter(s.log_probs[0], 0.0f); },
          "the log-prob of response token 0");
  refused([](Sample& s) { s.versions[2] = 2; }, "the weight version of response token 2");
  refused([](Sample& s) { s.versions[4] = 3; },
          "version 3 sampled response token 4, version 5 was asked for");
  refused([](Sample& s) { s.versions.back() = 6; }, "version 6 sampled response token 7");
  refused(
      [](Sample& s) {
        s.tokens.push_back(1);
        s.log_probs.push_back(-1);
        s.versions.push_back(5);
      },
      "it has 9 response tokens, and 8 were allowed");
  refused(
      [](Sample& s) {
        s.tokens.resize(6);
        s.log_probs.resize(3);
        s.versions.resize(3);
      },
      "requested with 4 tokens, returned with 3");
  refused([](Sample& s) { s.log_probs.clear(); }, "it has 0 log-probs for 8 response tokens");
  REQUIRE(run.Put(good).ok());
  REQUIRE(run.buffer->Counts().tokens == 16);
}

TEST_CASE("samples of a round come once, and only those that were asked for", "[rollout_buffer]") {
  const BufferRun run;
  REQUIRE(run.buffer->Add(SomePrompts(0, 2)).ok());
  const auto requests = run.Begin({.step = 1, .version = 1, .groups = 1});
  REQUIRE(requests->size() == 1);
  const Sample sample = run.Generated(requests->front(), Id(0, 2));
  REQUIRE(run.Put(sample).ok());
  REQUIRE(absl::IsAlreadyExists(run.Put(sample)));
  Sample other = sample;
  other.group = 1;
  REQUIRE(absl::IsNotFound(run.Put(other)));
  other.sample_id = Id(1, 0);
  REQUIRE(absl::IsAlreadyExists(run.Put(other)));
  other.group = 7;
  REQUIRE(absl::IsNotFound(run.Put(other)));
}

TEST_CASE("a row that is carried is not added again", "[rollout_buffer]") {
  const BufferRun run;
  REQUIRE(run.buffer->Add(SomePrompts(0, 2)).ok());
  const absl::Status again = run.buffer->Add({SomePrompt(5), SomePrompt(1)});
  REQUIRE(absl::IsAlreadyExists(again));
  REQUIRE(Says(again, "row 1 of epoch 0"));
  REQUIRE(std::ssize(run.buffer->state().groups) == 2);
  REQUIRE(absl::IsAlreadyExists(run.buffer->Add({SomePrompt(6), SomePrompt(6)})));
  REQUIRE(run.buffer->Add({SomePrompt(1, 1)}).ok());
}

TEST_CASE("a sample of the last version that it may have runs to its end", "[rollout_buffer]") {
  BufferRun run(OptionsOf(2, 100));
  run.lengths = [](uint64_t id) { return id == Id(0, 0) ? 40 : 7; };
  REQUIRE(run.buffer->Add(SomePrompts(0, 1)).ok());
  run.RunRound({.step = 1, .version = 1, .cap = 3, .max_versions = 3});
  // More rounds of one version count once.
  run.RunRound({.step = 1, .round = 1, .version = 1, .cap = 1, .max_versions = 3});
  REQUIRE(run.round->Counts().final_samples == 0);
  run.RunRound({.step = 2, .version = 2, .cap = 2, .max_versions = 3});
  REQUIRE(run.round->Counts().final_samples == 0);
  REQUIRE(run.buffer->Counts().tokens == 12);
  REQUIRE(run.buffer->Add(SomePrompts(1, 1)).ok());
  const RoundSpec spec{.step = 3, .version = 4, .cap = 2, .max_versions = 3};
  const auto requests = run.Begin(spec);
  REQUIRE(requests->size() == 2);
  REQUIRE(requests->at(0).request_id == "3-0-0-final");
  REQUIRE_FALSE(requests->at(0).interruptible);
  REQUIRE(requests->at(0).load_continued({Id(0, 1), Id(0, 0)})->at(1).max_new_tokens == 0);
  REQUIRE(requests->at(1).interruptible);
  // Until the final ones are back, they are where they were.
  const InterruptionPoints before{{Id(0, 0), 6}, {Id(0, 1), 6}, {Id(1, 0), 0}, {Id(1, 1), 0}};
  REQUIRE(run.round->GetInterruptionPoints() == before);
  run.RunRound(spec, [](uint64_t) { return 0; });
  REQUIRE(run.round->Counts().final_samples == 2);
  REQUIRE(run.buffer->complete() == 1);
  REQUIRE(run.round->GetInterruptionPoints() == InterruptionPoints{{Id(1, 0), 0}, {Id(1, 1), 0}});
  const std::vector<Sample> samples = run.Taken(1);
  for (const Sample& sample : samples) RequireWhole(run, sample);
  REQUIRE(samples[0].segments.size() == 4);
}

TEST_CASE("final samples of a group make a request of their own", "[rollout_buffer]") {
  BufferRun run(OptionsOf(2, 100));
  run.lengths = [](uint64_t) { return 40; };
  REQUIRE(run.buffer->Add(SomePrompts(0, 1)).ok());
  // One of the two does not come in the first round.
  const auto first = [](uint64_t id) -> int64_t { return id == Id(0, 0) ? 5 : -1; };
  run.RunRound({.step = 1, .version = 1, .max_versions = 2}, first);
  const auto requests = run.Begin({.step = 2, .version = 2, .cap = 9, .max_versions = 2});
  REQUIRE(requests->size() == 2);
  REQUIRE(requests->at(0).request_id == "2-0-0");
  REQUIRE(requests->at(0).sample_ids == std::vector<uint64_t>{Id(0, 1)});
  REQUIRE(requests->at(0).interruptible);
  REQUIRE(requests->at(1).request_id == "2-0-0-final");
  REQUIRE(requests->at(1).sample_ids == std::vector<uint64_t>{Id(0, 0)});
}

TEST_CASE("a batch waits for the oldest groups that later batches have no room for",
          "[rollout_buffer]") {
  BufferRun run(OptionsOf(1, 100));
  run.lengths = [](uint64_t) { return 40; };
  REQUIRE(run.buffer->Add(SomePrompts(0, 4)).ok());
  run.RunRound({.step = 1, .version = 0, .cap = 5});
  // Version 0 is due in step 3, which trains two groups: no more than two may be unfinished when
  // step 2 trains.
  const auto due = [&](int64_t version) {
    return DueGroups(run.buffer->state(),
                     {.due_version = version - 2, .max_staleness = 2, .batch_groups = 2});
  };
  REQUIRE(due(0).empty());
  REQUIRE(due(1) == std::set<int64_t>{0, 1});
  run.RunRound({.step = 2, .version = 1, .groups = 1, .cap = 5, .due_groups = due(1)});
  REQUIRE(run.buffer->complete() == 2);  // beyond the one group that the round may have, too
  REQUIRE(due(1).empty());
  REQUIRE(due(2) == std::set<int64_t>{2, 3});
}

TEST_CASE("the groups that are taken are those of the oldest weights", "[rollout_buffer]") {
  BufferRun run(OptionsOf(1, 100));
  run.lengths = [](uint64_t) { return 5; };
  REQUIRE(run.buffer->Add(SomePrompts(0, 3)).ok());
  const auto but_first = [](uint64_t id) -> int64_t { return id == Id(0, 0) ? -1 : kAll; };
  run.RunRound({.step = 1, .version = 1}, but_first);
  run.RunRound({.step = 2, .version = 2});
  REQUIRE(run.buffer->complete() == 3);
  TakenGroups groups;
  const std::vector<Sample> samples = run.Taken(2, &groups);
  REQUIRE(samples[0].sample_id == Id(1, 0));
  REQUIRE(samples[1].sample_id == Id(2, 0));
  REQUIRE(run.buffer->complete() == 1);
}

TEST_CASE("counts of a round: what was issued, cut, generated and computed once more",
          "[rollout_buffer]") {
  BufferRun run;
  run.lengths = [](uint64_t id) { return id == Id(0, 1) ? 2 : 9; };
  REQUIRE(run.buffer->Add(SomePrompts(0, 2)).ok());
  run.RunRound({.step = 1, .version = 1, .groups = 2, .cap = 4});
  RoundCounts counts = run.round->Counts();
  REQUIRE(counts.groups == 2);
  REQUIRE(counts.samples == 6);
  REQUIRE(counts.interrupted_samples == 5);
  REQUIRE(counts.tokens == 22);
  REQUIRE(counts.generated_tokens == 22);
  REQUIRE(counts.prefilled_again_tokens == 0);
  // Group 1 waits where it is, and is not computed.
  const auto most = [](uint64_t id) -> int64_t { return id >= Id(1, 0) ? -1 : 3; };
  run.RunRound({.step = 2, .version = 2, .groups = 2, .cap = 4}, most);
  counts = run.round->Counts();
  REQUIRE(counts.groups == 2);
  REQUIRE(counts.samples == 5);
  REQUIRE(counts.interrupted_samples == 5);
  REQUIRE(counts.tokens == 14 + 12);
  REQUIRE(counts.generated_tokens == 6);
  REQUIRE(counts.prefilled_again_tokens == 2 * 4 + 3);
  REQUIRE(run.round->GetInterruptionPoints().at(Id(0, 0)) == 7);
  REQUIRE(run.round->GetInterruptionPoints().at(Id(1, 0)) == 4);
}

TEST_CASE("what a request goes on from is read when it is sent, whatever the buffer does meanwhile",
          "[rollout_buffer]") {
  BufferOptions options = OptionsOf(1, 100);
  options.compact_above_bytes = 0;
  BufferRun run(options);
  run.lengths = [](uint64_t) { return 50; };
  REQUIRE(run.buffer->Add(SomePrompts(0, 3)).ok());
  run.RunRound({.step = 1, .version = 1, .cap = 10});
  const auto old = run.Begin({.step = 1, .round = 1, .version = 1, .cap = 10});
  for (int64_t round = 2; round < 5; ++round) {
    run.RunRound({.step = 1, .round = round, .version = 1, .cap = 10});
  }
  run.buffer.reset();
  const std::vector<Continuation> from = old->at(1).load_continued({Id(1, 0)}).value();
  REQUIRE(from[0].tokens.size() == 10);
  REQUIRE(from[0].tokens[9] == TokenAt(Id(1, 0), 9));
  REQUIRE_FALSE(old->at(1).load_continued({Id(0, 0)}).ok());
}

TEST_CASE("a batch that cannot be stored leaves the buffer as it was", "[rollout_buffer]") {
  const BufferRun run;
  REQUIRE(run.buffer->Add(SomePrompts(0, 3)).ok());
  run.RunRound({.step = 1, .version = 1});
  int64_t seen = 0;
  const auto taken = run.buffer->Take(2, [&](const Sample&) {
    return ++seen == 5 ? absl::ResourceExhaustedError("disk full") : absl::OkStatus();
  });
  REQUIRE(absl::IsResourceExhausted(taken.status()));
  REQUIRE(run.buffer->complete() == 3);
  REQUIRE(run.Taken(3).size() == 9);
}

TEST_CASE("the oldest whole groups are taken, in order of drawing, and the others stay",
          "[rollout_buffer]") {
  BufferRun run(OptionsOf(1, 10));
  run.lengths = [](uint64_t id) { return id == Id(1, 0) ? 9 : 2; };
  REQUIRE(run.buffer->Add(SomePrompts(0, 5)).ok());
  run.RunRound({.step = 1, .version = 1, .cap = 4});
  TakenGroups taken;
  run.Taken(2, &taken);
  REQUIRE(taken.prompts[0].data_row == 0);
  REQUIRE(taken.prompts[1].data_row == 2);
  REQUIRE(run.buffer->Counts().complete == 2);
  run.RunRound({.step = 2, .version = 2});
  run.Taken(2, &taken);
  REQUIRE(taken.prompts[0].data_row == 1);
  REQUIRE(taken.prompts[1].data_row == 3);
}

TEST_CASE("a step that is dropped leaves the buffer as it was marked", "[rollout_buffer]") {
  BufferOptions options = OptionsOf(2, 10);
  options.compact_above_bytes = 0;
  BufferRun run(options);
  run.lengths = [](uint64_t) { return 9; };
  REQUIRE(run.buffer->Add(SomePrompts(0, 2)).ok());
  run.RunRound({.step = 1, .version = 1, .cap = 4});
  run.buffer->Commit();
  for (int attempt = 0; attempt < 2; ++attempt) {
    REQUIRE(run.buffer->Add(SomePrompts(2, 2)).ok());
    run.RunRound({.step = 2, .version = 2, .cap = 4});
    run.RunRound({.step = 2, .round = 1, .version = 2, .cap = 4});
    REQUIRE(run.Taken(2).size() == 4);
    run.buffer->Rollback();
    REQUIRE(std::ssize(run.buffer->state().groups) == 2);
    REQUIRE(run.buffer->Counts().tokens == 16);
    REQUIRE(run.round->GetInterruptionPoints().size() == 4);
  }
  REQUIRE(run.buffer->Load("", nullptr, 0).ok());
  REQUIRE(std::ssize(run.buffer->state().groups) == 0);
  run.buffer->Rollback();
  REQUIRE(std::ssize(run.buffer->state().groups) == 0);
}

TEST_CASE("tokens of newer weights than the round's are refused before anything is asked",
          "[rollout_buffer]") {
  BufferRun run;
  run.lengths = [](uint64_t) { return 9; };
  REQUIRE(run.buffer->Add(SomePrompts(0, 1)).ok());
  run.RunRound({.step = 5, .version = 5, .cap = 4});
  const auto requests = run.Begin({.step = 5, .version = 4, .cap = 4});
  REQUIRE(Says(requests.status(), "has tokens of weight version 5, and step 5 samples with"));
}

TEST_CASE("how a sample was drawn goes with it, and one token off the support is enough",
          "[rollout_buffer]") {
  BufferRun run(OptionsOf(1, 10));
  run.lengths = [](uint64_t) { return 9; };
  REQUIRE(run.buffer->Add(SomePrompts(0, 1)).ok());
  for (int64_t round = 0; round < 2; ++round) {
    const auto requests = run.Begin({.step = 1, .round = round, .version = 1, .cap = 5});
    Sample sample = run.Generated(requests->front(), Id(0, 0));
    sample.temperature = 0.5f;
    sample.off_support = round == 0;
    REQUIRE(run.Put(sample).ok());
  }
  const std::vector<Sample> samples = run.Taken(1);
  REQUIRE(samples[0].off_support);
  REQUIRE(samples[0].temperature == 0.5f);
}

TEST_CASE("without log-probs there are none", "[rollout_buffer]") {
  BufferOptions options = OptionsOf(2, 10);
  options.log_probs = false;
  BufferRun run(options);
  REQUIRE(run.buffer->Add(SomePrompts(0, 2)).ok());
  for (int64_t round = 0; round < 4; ++round) {
    run.RunRound({.step = 1, .round = round, .version = round, .cap = 3});
  }
  for (const Sample& sample : run.Taken(2)) RequireWhole(run, sample);
}

TEST_CASE("a full disk is told when a sample comes, and the buffer goes on once there is room",
          "[rollout_buffer]") {
  BufferRun run(OptionsOf(1, 4000));
  run.lengths = [](uint64_t) { return 3000; };
  REQUIRE(run.buffer->Add(SomePrompts(0, 2)).ok());
  const auto requests = run.Begin({.step = 1, .version = 1});
  {
    const testing::FileSizeLimit limit(16384);
    const absl::Status put = run.Put(run.Generated(requests->at(0), Id(0, 0)));
    REQUIRE(absl::IsResourceExhausted(put));
    REQUIRE(Says(put, "cluster.run_dir"));
  }
  REQUIRE(run.buffer->Counts().tokens == 0);
  for (uint64_t g = 0; g < 2; ++g) {
    REQUIRE(run.Put(run.Generated(requests->at(g), Id(g, 0))).ok());
  }
  for (const Sample& sample : run.Taken(2)) RequireWhole(run, sample);
}

}  // namespace tandem
