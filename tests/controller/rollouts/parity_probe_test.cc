#include "controller/rollouts/parity_probe.h"

#include <cmath>
#include <memory>
#include <set>

#include <catch2/catch.hpp>

#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::Says;

const ParityProbeOptions kTwoPairs{.topology = {.trainers = 2, .rollouts = 2},
                                   .vocab_limit = 50,
                                   .temperature = 0.7f,
                                   .max_tokens = 1024};

// What a rollout would answer.
Sample AnswerTo(const GroupRequest& request) {
  Sample sample{.sample_id = request.sample_ids.front(),
                .group = request.group,
                .tokens = request.prompt,
                .prompt_tokens = std::ssize(request.prompt)};
  for (int64_t i = 0; i < request.params.max_tokens; ++i) {
    sample.tokens.push_back(static_cast<int32_t>(i));
    sample.log_probs.push_back(-0.5f * static_cast<float>(i));
    sample.versions.push_back(request.version);
  }
  return sample;
}

// Every rollout answers; trainers agree with them.
void FillIn(ParityProbe& probe, int64_t step) {
  for (const GroupRequest& request : probe.Begin(step, 7)) {
    REQUIRE(probe.Put(AnswerTo(request)).ok());
  }
  for (int rank = 0; rank < 2; ++rank) {
    const auto samples = probe.Samples(step, rank);
    for (const Sample& sample : *samples) {
      REQUIRE(probe.PutLogProbs(step, rank, sample.sample_id, sample.log_probs).ok());
    }
  }
}

}  // namespace

TEST_CASE("Probe asks every rollout for the same tokens in every step", "[probe]") {
  ParityProbe probe(kTwoPairs);
  const std::vector<GroupRequest> first = probe.Begin(1, 0);
  const std::vector<GroupRequest> second = probe.Begin(2, 1);
  REQUIRE(first.size() == 6);
  REQUIRE(second.size() == 6);
  for (size_t i = 0; i < first.size(); ++i) {
    REQUIRE(second[i].prompt == first[i].prompt);
    REQUIRE(second[i].sample_ids == first[i].sample_ids);
    REQUIRE(second[i].version == 1);
    REQUIRE(first[i].rank == static_cast<int>(i / 3));
    REQUIRE(first[i].prompt == first[i % 3].prompt);
    REQUIRE(first[i].params.ignore_eos);
    REQUIRE(first[i].log_probs);
    REQUIRE(first[i].params.temperature == 0.7f);
    for (const int32_t token : first[i].prompt) REQUIRE((token >= 0 && token < 50));
    REQUIRE(std::set(first[i].prompt.begin(), first[i].prompt.end()).size() > 10);
  }
  // One inside a block of 64 positions, one across its end, one over eight blocks.
  REQUIRE(first[0].prompt.size() + 4 < 64);
  REQUIRE(first[1].prompt.size() < 64);
  REQUIRE(first[1].prompt.size() + 4 > 64);
  REQUIRE(first[2].prompt.size() + 4 == 512);
  REQUIRE(ParityProbe(kTwoPairs).Begin(9, 0)[1].prompt == first[1].prompt);
}

TEST_CASE("Probe samples of all rollouts of a trainer are its own, with ids of their own",
          "[probe]") {
  ParityProbe probe({.topology = {.trainers = 2, .rollouts = 5, .apart = true}, .vocab_limit = 50});
  const std::vector<GroupRequest> requests = probe.Begin(1, 7);
  REQUIRE(requests.size() == 15);
  for (const GroupRequest& request : requests) REQUIRE(probe.Put(AnswerTo(request)).ok());
  REQUIRE(probe.Samples(1, 0)->size() == 9);
  REQUIRE(probe.Samples(1, 1)->size() == 6);
  for (int trainer = 0; trainer < 2; ++trainer) {
    std::set<uint64_t> ids;
    const std::vector<Sample> samples = *probe.Samples(1, trainer);
    for (const Sample& sample : samples) {
      ids.insert(sample.sample_id);
      REQUIRE(probe.PutLogProbs(1, trainer, sample.sample_id, sample.log_probs).ok());
    }
    REQUIRE(ids.size() == samples.size());
  }
  REQUIRE(*probe.Compare() == 15 * 4);
  // A difference names the rollout and the trainer that scored it.
  std::vector<float> other = probe.Samples(1, 0)->back().log_probs;
  other[0] += 1;
  REQUIRE(probe.PutLogProbs(1, 0, probe.Samples(1, 0)->back().sample_id, other).ok());
  const absl::Status differs = probe.Compare().status();
  REQUIRE(Says(differs, "rollout 4 says log-prob"));
  REQUIRE(Says(differs, "trainer 0 says"));
}

TEST_CASE("Probe fits into the longest sample that a run allows", "[probe]") {
  for (const auto& [most, sequences] : std::vector<std::pair<int64_t, size_t>>{
           {2, 1}, {5, 1}, {24, 1}, {25, 2}, {66, 2}, {67, 3}, {511, 3}}) {
    INFO(most);
    ParityProbe probe({.vocab_limit = 3, .max_tokens = most});
    const std::vector<GroupRequest> groups = probe.Begin(1, 0);
    REQUIRE(groups.size() == sequences);
    for (const GroupRequest& group : groups) {
      REQUIRE(group.params.max_tokens >= 1);
      REQUIRE(std::ssize(group.prompt) >= 1);
      REQUIRE(std::ssize(group.prompt) + group.params.max_tokens <= most);
    }
    // The last one reaches as far as any sample of the run.
    REQUIRE(std::ssize(groups.back().prompt) + groups.back().params.max_tokens == most);
  }
}

TEST_CASE("Probe counts equal tokens and names the first that differs", "[probe]") {
  ParityProbe probe(kTwoPairs);
  FillIn(probe, 3);
  REQUIRE(*probe.Compare() == 24);
  const std::vector<Sample> samples = *probe.Samples(3, 1);
  std::vector<float> disturbed = samples[1].log_probs;
  disturbed[2] = std::nextafter(disturbed[2], 0.0f);
  REQUIRE(probe.PutLogProbs(3, 1, samples[1].sample_id, disturbed).ok());
  const absl::Status status = probe.Compare().status();
  INFO(status.ToString());
  REQUIRE(absl::IsDataLoss(status));
  REQUIRE(Says(status, "step 3"));
  REQUIRE(Says(status, "rollout 1 says log-prob -1 at position 64"));
  REQUIRE(Says(status, "trainer 1 says -0.99999994"));
}

TEST_CASE("Probe tells zeros of both signs apart", "[probe]") {
  ParityProbe probe(kTwoPairs);
  FillIn(probe, 3);
  const Sample sample = probe.Samples(3, 0)->front();
  std::vector<float> signs = sample.log_probs;
  REQUIRE(signs[0] == 0.0f);
  signs[0] = std::signbit(signs[0]) ? 0.0f : -0.0f;
  REQUIRE(probe.PutLogProbs(3, 0, sample.sample_id, signs).ok());
  REQUIRE(absl::IsDataLoss(probe.Compare().status()));
}

TEST_CASE("Probe is not satisfied with less than everything", "[probe]") {
  ParityProbe probe(kTwoPairs);
  const std::vector<GroupRequest> groups = probe.Begin(1, 7);
  REQUIRE(absl::IsInternal(probe.Compare().status()));
  FillIn(probe, 2);
  REQUIRE(absl::IsNotFound(probe.Samples(1, 0).status()));
  REQUIRE(absl::IsNotFound(probe.PutLogProbs(1, 0, groups[0].sample_ids[0], {})));
  REQUIRE(absl::IsNotFound(probe.PutLogProbs(2, 0, 5, {})));
  REQUIRE(absl::IsInvalidArgument(probe.PutLogProbs(2, 0, groups[0].sample_ids[0], {-1.0f})));
  // Answered anew, and not scored yet.
  REQUIRE(probe.Put(AnswerTo(groups[0])).ok());
  REQUIRE(Says(probe.Compare().status(), "trainer 0 sent no log-probs"));
  Sample empty = AnswerTo(groups[0]);
  empty.log_probs.clear();
  REQUIRE(absl::IsInternal(probe.Put(empty)));
  Sample old = AnswerTo(groups[0]);
  old.versions.back() = 6;
  REQUIRE(absl::IsDataLoss(probe.Put(old)));
}

TEST_CASE("Probe asks a rollout's next process for what the last one answered, and compares both",
          "[probe][recovery]") {
  ParityProbe probe(kTwoPairs);
  const std::vector<GroupRequest> first = probe.Begin(1, 7);
  // Rollout 1 is lost after the first of its three.
  for (size_t i = 0; i < 4; ++i) REQUIRE(probe.Put(AnswerTo(first[i])).ok());
  REQUIRE(probe.attempts() == 1);
  const std::vector<GroupRequest> again = probe.Reissue(1);
  REQUIRE(again.size() == 1);
  REQUIRE(again[0].rank == 1);
  REQUIRE(again[0].prompt == first[3].prompt);
  REQUIRE(again[0].sample_ids != first[3].sample_ids);
  REQUIRE(again[0].request_id != first[3].request_id);
  REQUIRE(probe.attempts() == 2);
  // Asked already, and not answered yet.
  REQUIRE(probe.Reissue(1).empty());
  for (const GroupRequest& request : {again[0], first[4], first[5]}) {
    REQUIRE(probe.Put(AnswerTo(request)).ok());
  }
  for (int attempt = 0; attempt < 2; ++attempt) {
    REQUIRE_FALSE(probe.Compare().ok());
    probe.SelectAttempt(attempt);
    for (int rank = 0; rank < 2; ++rank) {
      const std::vector<Sample> samples = *probe.Samples(1, rank);
      REQUIRE(samples.size() == (attempt == 0 ? 3 : rank == 1 ? 1 : 0));
      for (const Sample& sample : samples) {
        REQUIRE(probe.PutLogProbs(1, rank, sample.sample_id, sample.log_probs).ok());
      }
    }
  }
  REQUIRE(*probe.Compare() == 28);
  REQUIRE(probe.Begin(2, 8).size() == 6);
  REQUIRE(probe.attempts() == 1);
}

TEST_CASE("Probe asks no rollout that is left out, and waits for no answer of it", "[probe]") {
  const auto rollouts = std::make_shared<ActiveRollouts>(2);
  ParityProbeOptions options = kTwoPairs;
  options.rollouts = rollouts;
  ParityProbe probe(options);
  for (const GroupRequest& request : probe.Begin(1, 7)) {
    if (request.rank == 1) continue;
    REQUIRE(probe.Put(AnswerTo(request)).ok());
  }
  const auto samples = probe.Samples(1, 0);
  REQUIRE(samples->size() == 3);
  for (const Sample& sample : *samples) {
    REQUIRE(probe.PutLogProbs(1, 0, sample.sample_id, sample.log_probs).ok());
  }
  REQUIRE(Says(probe.Compare().status(), "3 of 6 probe samples of step 1 were returned"));
  rollouts->LeaveOut(1);
  REQUIRE(*probe.Compare() == 3 * kProbeResponseTokens);
  // Nor where it takes part again within the step.
  REQUIRE(rollouts->TakeIn([](int) { return true; }).size() == 1);
  REQUIRE(*probe.Compare() == 3 * kProbeResponseTokens);
  rollouts->LeaveOut(1);
  REQUIRE(probe.Begin(2, 8).size() == 3);
}

}  // namespace tandem
