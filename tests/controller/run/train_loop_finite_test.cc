// Values that are not finite, and missing optimizer moments.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>

#include "common/formats/files.h"
#include "controller/store/batch_file.h"
#include "tests/fakes/fake_run.h"

namespace tandem {

TEST_CASE("TrainLoop stops on a log-prob of a rollout that is not finite", "[train_loop]") {
  for (const float broken : {NAN, -INFINITY}) {
    testing::FakeRun run(1);
    run.first_log_prob = broken;
    const absl::Status status = run.Run();
    REQUIRE(absl::IsDataLoss(status));
    const std::string message(status.message());
    INFO(message);
    REQUIRE(message.find("not finite: sample 0x0, position 3, weight version 0, in the rollout") !=
            std::string::npos);
    REQUIRE(run.journal.Count("trainer 0 ForwardBackward") == 0);
  }
}

TEST_CASE("Skipped updates are counted, and three in a row end the run", "[train_loop]") {
  testing::FakeRun now_and_then(1);
  now_and_then.options.total_steps = 6;
  now_and_then.skipped_versions = {1, 2, 4, 5};
  REQUIRE(now_and_then.Run().ok());
  REQUIRE(now_and_then.store.steps.at(1).metrics.at("actor/skipped_updates") == 1);
  REQUIRE_FALSE(now_and_then.store.steps.at(3).metrics.contains("actor/skipped_updates"));

  testing::FakeRun always(1);
  always.options.total_steps = 6;
  always.skipped_versions = {2, 3, 4};
  const absl::Status status = always.Run();
  REQUIRE(absl::IsDataLoss(status));
  REQUIRE(std::string(status.message()).find("step 4: 3 updates in a row were skipped") !=
          std::string::npos);
  REQUIRE(always.store.steps.size() == 3);
}

TEST_CASE("How many updates in a row may be skipped is a key", "[train_loop]") {
  const auto message = [](testing::FakeRun& run) {
    const absl::Status status = run.Run();
    REQUIRE(absl::IsDataLoss(status));
    return std::string(status.message());
  };
  for (const int64_t at_the_first : {0, 1}) {
    testing::FakeRun run(1);
    run.options.total_steps = 6;
    run.options.max_skipped_steps = at_the_first;
    run.skipped_versions = {3};
    REQUIRE(message(run).starts_with("step 3: 1 update in a row was skipped"));
  }
  testing::FakeRun run(1);
  run.options.total_steps = 6;
  run.options.max_skipped_steps = 5;
  run.skipped_versions = {1, 2, 3, 4, 5};
  REQUIRE(message(run).starts_with("step 5: 5 updates in a row were skipped"));
}

TEST_CASE("Skipped updates are counted on over a resume", "[train_loop][recovery]") {
  testing::FakeRun run(1);
  run.options.total_steps = 2;
  run.skipped_versions = {1, 2, 3};
  REQUIRE(run.Run().ok());
  run.options.total_steps = 6;
  const std::string checkpoint = run.loop->newest_checkpoint();
  const absl::Status status = run.Run(checkpoint);
  REQUIRE(absl::IsDataLoss(status));
  REQUIRE(std::string(status.message()).starts_with("step 3: 3 updates in a row"));
}

TEST_CASE("Steps that are made again are not counted twice as skipped", "[train_loop][recovery]") {
  testing::FakeRun run(1);
  run.options.total_steps = 3;
  run.options.save_freq = 1;
  run.skipped_versions = {1, 2};
  // After the update of step 2 was skipped, before the step was done.
  run.DieAt({WorkerRole::kTrainer, 0}, "SyncWeights", 2);
  REQUIRE(run.Run().ok());
  REQUIRE(run.journal.Count("trainer 0 OptimizerStep(v2)") == 2);
}

TEST_CASE("The step at which skipping ends a run is saved whole", "[train_loop][batch_file]") {
  testing::FakeRun run(2);
  run.options.total_steps = 6;
  run.options.mini_batch_prompts = 1;
  run.options.max_skipped_steps = 2;
  run.options.config_yaml = "actor: {}\n";
  run.options.save_freq = 1;
  run.skipped_versions = {5, 6};
  const absl::Status status = run.Run();
  REQUIRE(absl::IsDataLoss(status));
  const std::string file = run.dir.path() / "failed_steps" / "step_3" / "step.batch";
  INFO(status.message());
  REQUIRE(std::string(status.message()).find("tandemctl batch inspect " + file) !=
          std::string::npos);
  const auto batch = BatchReader::Open(file);
  REQUIRE(batch.ok());
  const SavedBatchInfo& info = (*batch)->info();
  REQUIRE(info.step == 3);
  REQUIRE(info.sampling_version == 4);
  REQUIRE(info.version == 6);
  REQUIRE(info.mini_batch == 1);
  REQUIRE(info.mini_batches.size() == 2);
  REQUIRE(info.mini_batches[0].samples == 4);
  REQUIRE(info.mini_batches[0].trained_tokens == 8);
  REQUIRE(info.ranks == 2);
  REQUIRE(info.model_path == "/model");
  REQUIRE(info.config_yaml == "actor: {}\n");
  REQUIRE(info.checkpoint.ends_with("checkpoints/step_2"));
  REQUIRE(std::string(status.message()).starts_with(info.failure));
  REQUIRE(std::isnan(info.metrics.at("actor/grad_norm")));
  REQUIRE(ReadWholeFile(run.dir.path() / "failed_steps" / "step_3" / "config.yaml").value() ==
          "actor: {}\n");
  // What the trainers were sent, as the store has it still.
  const std::vector<SampleMeta> metas = run.samples->Metas();
  REQUIRE((*batch)->size() == 8);
  REQUIRE(metas.size() == 8);
  for (size_t i = 0; i < metas.size(); ++i) {
    const SavedSample saved = (*batch)->Read(i);
    const Sample sample = run.samples->Read(metas[i].sample_id).value();
    REQUIRE(saved.sample_id == sample.sample_id);
    REQUIRE(saved.tokens == sample.tokens);
    REQUIRE(saved.log_probs == sample.log_probs);
    REQUIRE(saved.advantages == sample.advantages);
    REQUIRE(saved.advantages.front() != 0);
    REQUIRE(saved.versions == sample.versions);
    REQUIRE(saved.mini_batch == metas[i].mini_batch);
    REQUIRE(saved.rank == metas[i].rank);
    REQUIRE(saved.score == static_cast<double>(saved.index % 2));
    REQUIRE(saved.reward_terms.at("right") == saved.score);
  }
}

TEST_CASE("A step that cannot be saved does not hide why the run ended", "[train_loop]") {
  testing::FakeRun run(1);
  run.options.max_skipped_steps = 1;
  run.skipped_versions = {1};
  std::ofstream(run.dir.path() / "failed_steps") << "in the way";
  const absl::Status status = run.Run();
  REQUIRE(absl::IsDataLoss(status));
  const std::string message(status.message());
  REQUIRE(message.starts_with("step 1: 1 update in a row was skipped"));
  REQUIRE(message.find("The step could not be saved: ") != std::string::npos);
}

TEST_CASE("Batches are saved at the steps that are asked for", "[train_loop][batch_file]") {
  const auto batch = [](const testing::FakeRun& run, int step) {
    return run.dir.path() / "batches" / ("step_" + std::to_string(step) + ".batch");
  };
  testing::FakeRun never(1);
  never.options.total_steps = 2;
  REQUIRE(never.Run().ok());
  REQUIRE_FALSE(std::filesystem::exists(never.dir.path() / "batches"));

  testing::FakeRun run(1);
  run.options.total_steps = 5;
  run.options.save_batch_freq = 2;
  REQUIRE(run.Run().ok());
  for (const int step : {1, 3, 5}) REQUIRE_FALSE(std::filesystem::exists(batch(run, step)));
  const auto second = BatchReader::Open(batch(run, 2));
  REQUIRE(second.ok());
  REQUIRE((*second)->info().step == 2);
  REQUIRE((*second)->info().failure.empty());
  REQUIRE((*second)->info().mini_batch == -1);
  REQUIRE((*second)->Meta(1).reward_terms.at("right") == 1);
  // Made again it has the same bytes.
  const std::string bytes = ReadWholeFile(batch(run, 4)).value();
  testing::FakeRun again(1);
  again.options.total_steps = 5;
  again.options.save_batch_freq = 2;
  REQUIRE(again.Run().ok());
  REQUIRE(ReadWholeFile(batch(again, 4)).value() == bytes);
}

TEST_CASE("Going on without Adam moments is told", "[train_loop][recovery]") {
  for (const bool saved : {true, false}) {
    testing::FakeRun run(1);
    run.options.save_freq = 1;
    run.options.save_moments = saved;
    run.DieAt({WorkerRole::kTrainer, 0}, "ForwardBackward", 1);
    REQUIRE(run.Run().ok());
    const std::vector<std::string>& told = run.progress.messages;
    const bool warned = std::any_of(told.begin(), told.end(), [](const std::string& line) {
      return line.find("step_1 has no Adam moments") != std::string::npos;
    });
    REQUIRE(warned == !saved);
  }
}

}  // namespace tandem
