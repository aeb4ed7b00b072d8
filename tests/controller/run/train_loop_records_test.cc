// What a train loop records of a step beside its metrics.
#include <algorithm>
#include <cmath>

#include <catch2/catch.hpp>

#include "common/formats/files.h"
#include "controller/store/batch_file.h"
#include "tests/fakes/fake_run.h"

namespace tandem {

TEST_CASE("Each update is recorded as the trainers answered it", "[train_loop]") {
  testing::FakeRun run(2);
  run.options.total_steps = 2;
  run.options.mini_batch_prompts = 1;
  run.options.epochs = 2;
  run.skipped_versions = {2};
  run.options.max_skipped_steps = 2;
  run.on_forward_backward = [](const ForwardBackwardCall& call, ForwardBackwardReply& reply) {
    reply.metrics = {{kLoss, 0.5 + static_cast<double>(call.version)}, {kEntropy, 1}};
  };
  REQUIRE(run.Run().ok());
  const StepRecord& first = run.store.steps.at(1);
  REQUIRE(first.updates.size() == 4);
  double sum = 0;
  for (size_t i = 0; i < first.updates.size(); ++i) {
    const UpdateRecord& update = first.updates[i];
    REQUIRE(update.version == static_cast<int64_t>(i) + 1);
    REQUIRE(update.samples == 4);
    REQUIRE(update.tokens == 8);
    REQUIRE(update.metrics.at(kLoss) == 0.5 + static_cast<double>(i));
    REQUIRE(update.metrics.at(kLearningRate) == 1e-6);
    const bool skipped = update.version == 2;
    REQUIRE(update.metrics.contains(kSkippedUpdates) == skipped);
    REQUIRE(std::isnan(update.metrics.at(kGradNorm)) == skipped);
    sum += update.metrics.at(kLoss);
  }
  REQUIRE(first.metrics.at(kLoss) == Approx(sum / 4));
  REQUIRE(run.store.steps.at(2).updates.front().version == 5);
}

TEST_CASE("A step records the syncs since the one before, the start's with the first",
          "[train_loop]") {
  testing::FakeRun run(2);
  REQUIRE(run.Run().ok());
  const std::vector<SyncRecord>& first = run.store.steps.at(1).syncs;
  REQUIRE(first.size() == 4);
  for (size_t i = 0; i < first.size(); ++i) {
    REQUIRE(first[i].version == (i < 2 ? 0 : 1));
    REQUIRE(first[i].rank == static_cast<int>(i % 2));
    REQUIRE(first[i].digest == "d");
    REQUIRE(first[i].checked == (i < 2));  // an incarnation's first weights are checked
    REQUIRE(first[i].time_us > 0);
  }
  REQUIRE(run.store.steps.at(2).syncs.size() == 2);
  REQUIRE(run.store.steps.at(2).syncs[0].version == 2);
}

TEST_CASE("A step's samples and their distributions agree", "[train_loop]") {
  testing::FakeRun run(1);
  run.options.total_steps = 1;
  REQUIRE(run.Run().ok());
  const StepRecord& step = run.store.steps.at(1);
  const Histogram& rewards = step.histograms.at(kRewardHistogram);
  REQUIRE(rewards.low == 0);
  REQUIRE(rewards.high == 1);
  REQUIRE(rewards.counts[0] == 4);
  REQUIRE(rewards.counts[31] == 4);
  REQUIRE(step.histograms.at(kLengthHistogram).counts[0] == 8);  // of two tokens each
  REQUIRE(step.histograms.at(kAdvantageHistogram).total() == 16);
  REQUIRE(step.histograms.at(kLogProbHistogram).total() == 16);
  double least = 0;
  for (const SampleRecord& sample : run.store.samples.at(1)) {
    REQUIRE(sample.prompt_tokens == 3);
    REQUIRE(sample.repetition == 0);
    REQUIRE(sample.arrived_us > 0);
    least = std::min(least, sample.min_log_prob.value());
  }
  REQUIRE(step.histograms.at(kLogProbHistogram).low == least);
}

TEST_CASE("The file of a step's samples ends with an index of its arrays", "[train_loop]") {
  testing::FakeRun run(1);
  run.options.total_steps = 1;
  run.options.need_reference = true;
  std::map<uint64_t, Sample> samples;
  run.journal.OnCall("trainer 0 OptimizerStep", [&] {
    for (const SampleMeta& meta : run.samples->Metas()) {
      REQUIRE(run.samples->PutArray(1, TokenArray::kReference, meta.sample_id, {-3, -4}).ok());
      samples[meta.sample_id] = run.samples->Read(meta.sample_id).value();
    }
  });
  REQUIRE(run.Run().ok());
  const std::string path = run.dir.path() / "samples" / "step_000001.samples";
  const auto file = BatchReader::Open(path).value();
  REQUIRE(file->info().step == 1);
  REQUIRE(file->info().metrics.empty());  // a repeated step gives the same bytes
  REQUIRE(file->size() == 8);
  for (size_t i = 0; i < file->size(); ++i) {
    const SavedSample saved = file->Read(i);
    const Sample& sample = samples.at(saved.sample_id);
    REQUIRE(saved.tokens == sample.tokens);
    REQUIRE(saved.log_probs == sample.log_probs);
    REQUIRE(saved.versions == sample.versions);
    REQUIRE(saved.advantages == sample.advantages);
    REQUIRE(saved.ref_log_probs == std::vector<float>{-3, -4});
    REQUIRE(saved.mask == sample.mask);
    REQUIRE(saved.reward_terms.at("right") == saved.score);
    REQUIRE(saved.score == static_cast<double>(saved.sample_id & 1));
  }
  // Another step's file, which nobody has ended, is refused with what to do.
  REQUIRE(run.samples->BeginStep(2).ok());
  Sample sample{.sample_id = 1, .tokens = {4, 5, 6}, .prompt_tokens = 2, .versions = {3}};
  REQUIRE(run.samples->Put(sample, 3).ok());
  const absl::Status open =
      BatchReader::Open(run.dir.path() / "samples" / "step_000002.samples").status();
  REQUIRE(absl::IsInvalidArgument(open));
  REQUIRE(std::string(open.message()).find("from the moment that its step is recorded") !=
          std::string::npos);
  // A damaged index is told.
  std::string bytes = ReadWholeFile(path).value();
  bytes[bytes.size() - 70] ^= 1;
  REQUIRE(WriteFileAtomically(path, bytes).ok());
  REQUIRE(absl::IsDataLoss(BatchReader::Open(path).status()));
}

TEST_CASE("A validation records each response, of whose rewards its mean is", "[train_loop]") {
  testing::FakeRun run(1);
  run.options.total_steps = 1;
  run.options.test_freq = 1;
  run.options.validation_samples = 2;
  for (uint64_t row = 0; row < 3; ++row) {
    run.validation.push_back({.data_row = row,
                              .tokens = {5},
                              .text = "question " + std::to_string(row),
                              .data_source = "fake",
                              .ground_truth = "answer"});
  }
  run.reward.value = [](uint64_t id) { return static_cast<double>((id >> 24) + (id & 1)); };
  REQUIRE(run.Run().ok());
  REQUIRE(run.store.evaluations.size() == 1);
  const EvaluationRecord& evaluation = run.store.evaluations.front();
  REQUIRE(evaluation.responses.size() == 6);
  double sum = 0;
  for (size_t i = 0; i < 6; ++i) {
    const SampleRecord& sample = evaluation.responses[i];
    REQUIRE(sample.step == 1);
    REQUIRE(sample.group == static_cast<int64_t>(i / 2));
    REQUIRE(sample.index == static_cast<int64_t>(i % 2));
    REQUIRE(sample.prompt == "question " + std::to_string(i / 2));
    REQUIRE(sample.ground_truth == "answer");
    REQUIRE_FALSE(sample.response.empty());
    REQUIRE(sample.reward == static_cast<double>(i / 2 + i % 2));
    REQUIRE(sample.weight_version == 1);
    REQUIRE(sample.prompt_tokens == 1);
    REQUIRE(sample.response_tokens > 0);
    sum += sample.reward;
  }
  REQUIRE(evaluation.metrics.at(kValRewardMean) == Approx(sum / 6));
}

}  // namespace tandem
