#include "trainer_worker/trainer.h"

#include <fstream>
#include <set>
#include <string>

#include "tests/support/text.h"
#include "tests/trainer_worker/trainer_rig.h"
#include "trainer_worker/engine_thread.h"

namespace tandem {
namespace {

using namespace tandem::testing;

TEST_CASE("A step of two trainers ends with their rollouts holding the new weights", "[trainer]") {
  TrainerRig rig(2);
  rig.GiveSamples(RandomSamples(5, 1));
  rig.Reset(1);
  rig.Sync(0);
  const std::vector<Digest> before = rig[0].rollout->receiver.Digests().value();
  rig.TrainStep(0);
  rig.Sync(1);
  for (int rank = 0; rank < 2; ++rank) {
    REQUIRE(rig[rank].rollout->receiver.version() == 1);
    REQUIRE(rig[rank].rollout->receiver.Digests().value() ==
            rig[0].rollout->receiver.Digests().value());
  }
  REQUIRE_FALSE(rig[0].rollout->receiver.Digests().value() == before);
  rig.RunOk([&](TrainerRig::Rank& rank, int index) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(const CheckResult result,
                            rank.trainer->CheckWeights({.rollout_address = std::to_string(index)}));
    const WeightCheckReport& report = result.weights;
    if (!report.ok() || report.checked == 0) return Internal("{}", report.first_difference);
    if (result.report.phase != "check") return Internal("reported as {}", result.report.phase);
    return absl::OkStatus();
  });
}

TEST_CASE("Rollouts that are not targets of a sync keep their version", "[trainer]") {
  TrainerRig rig(2);
  rig.Reset(1);
  rig.RunOk([&](TrainerRig::Rank& rank, int index) {
    SyncCommand command = rig.SyncFor(0, index);
    command.target_ranks = {1};
    return rank.trainer->SyncWeights(command).status();
  });
  REQUIRE(rig[0].rollout->receiver.version() == kNoVersion);
  REQUIRE(rig[1].rollout->receiver.version() == 0);
}

TEST_CASE("A rollout that fails in a sync fails its own trainer alone", "[trainer]") {
  TrainerRig rig(2);
  rig.Reset(1);
  rig[0].rollout->client.fail_at_bucket = 2;
  rig.Run([&](TrainerRig::Rank& rank, int index) {
    return rank.trainer->SyncWeights(rig.SyncFor(0, index)).status();
  });
  REQUIRE(rig[0].status.code() == absl::StatusCode::kUnavailable);
  REQUIRE(rig[1].status.ok());
  REQUIRE(rig[0].rollout->receiver.version() == kNoVersion);
  rig[0].rollout->client.fail_at_bucket = -1;
  rig.Sync(0);
  REQUIRE(rig[0].rollout->receiver.version() == 0);
}

TEST_CASE("CheckWeights names the first element that a rollout holds wrongly", "[trainer]") {
  TrainerRig rig(1);
  rig.Reset(1);
  rig.Sync(0);
  const CheckCommand against_disk{.rollout_address = "0", .hf_checkpoint = rig.model_dir()};
  auto report = rig[0].trainer->CheckWeights(against_disk);
  REQUIRE(report.ok());
  REQUIRE(report->weights.ok());
  const auto place = rig.layout().Find("model.layers.1.self_attn.k_proj.weight");
  REQUIRE(place.ok());
  std::vector<Bf16> row(static_cast<size_t>((*place)->cols()), ToBf16(123.0f));
  rig.layout().WriteRows(rig[0].rollout->storage.data() + rig.layout().group_offset(1), **place, 3,
                         1, row.data());
  for (const CheckCommand& command : {against_disk, CheckCommand{.rollout_address = "0"}}) {
    report = rig[0].trainer->CheckWeights(command);
    REQUIRE(report.ok());
    REQUIRE(report->weights.mismatched == 1);
    REQUIRE(report->weights.first_difference.find("k_proj.weight[3, 0]") != std::string::npos);
    REQUIRE(report->weights.first_difference.find("123") != std::string::npos);
  }
}

TEST_CASE("A saved state resumes in new trainers with the same weights", "[trainer]") {
  TrainerRig rig(2);
  rig.GiveSamples(RandomSamples(5, 3));
  rig.Reset(1);
  rig.TrainStep(0);
  const std::string folder = rig.Folder("step_1");
  rig.RunOk([&](TrainerRig::Rank& rank, int) {
    return rank.trainer->SaveState({.directory = folder, .version = 1}).status();
  });
  rig.TrainStep(1);
  rig.Sync(2);
  const std::vector<Digest> want = rig[0].rollout->receiver.Digests().value();
  rig.Reset(2, folder, 1);
  rig.TrainStep(1);
  rig.Sync(2);
  REQUIRE(rig[0].rollout->receiver.Digests().value() == want);
  REQUIRE(rig[1].rollout->receiver.Digests().value() == want);
}

TEST_CASE("A checkpoint of another version is refused", "[trainer]") {
  TrainerRig rig(1);
  rig.Reset(1);
  const std::string folder = rig.Folder("step_0");
  REQUIRE(rig[0].trainer->SaveState({.directory = folder, .version = 0}).ok());
  const auto reset = rig[0].trainer->Reset(rig.ResetFor(2, folder, 5));
  REQUIRE(reset.status().code() == absl::StatusCode::kDataLoss);
  REQUIRE(rig[0].trainer->OptimizerStep(1).status().code() ==
          absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("Commands out of order are refused and say what comes first", "[trainer]") {
  TrainerRig rig(1);
  rig.GiveSamples(RandomSamples(2, 4));
  Trainer& trainer = *rig[0].trainer;
  REQUIRE(Says(trainer.ForwardBackward(rig.TrainCommand(0)).status(), "Reset comes first"));
  rig.Reset(1);
  REQUIRE(trainer.status().version == 0);
  const auto wrong = trainer.ForwardBackward(rig.TrainCommand(3)).status();
  REQUIRE(wrong.code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(Says(wrong, "at weight version 0, not 3"));
  REQUIRE(Says(trainer.OptimizerStep(1).status(), "ForwardBackward comes first"));
  REQUIRE(trainer.OptimizerStep(5).status().code() == absl::StatusCode::kFailedPrecondition);
  for (const int64_t version : {INT64_MIN, int64_t{-1}}) {  // the first has no predecessor at all
    REQUIRE(absl::IsInvalidArgument(trainer.OptimizerStep(version).status()));
  }
  REQUIRE(
      Says(trainer.ComputeLogProbs(1, LogProbPolicy::kReference).status(), "no reference policy"));
}

TEST_CASE("OptimizerStep and Reset are idempotent", "[trainer]") {
  TrainerRig rig(1);
  rig.GiveSamples(RandomSamples(3, 5));
  rig.Reset(1);
  rig.TrainStep(0);
  rig.Sync(1);
  const auto again = rig[0].trainer->OptimizerStep(1);
  REQUIRE(again.ok());
  REQUIRE(again->step.grad_norm > 0);
  const auto reset = rig[0].trainer->Reset(rig.ResetFor(1, "", 0));
  REQUIRE(reset.ok());
  REQUIRE(rig[0].trainer->status().version == 1);
  const std::vector<Digest> held = rig[0].rollout->receiver.Digests().value();
  rig.Sync(1);
  REQUIRE(rig[0].rollout->receiver.Digests().value() == held);
}

TEST_CASE("A Reset gets through while a collective waits for a rank that is gone", "[trainer]") {
  TrainerRig rig(2);
  rig.GiveSamples(RandomSamples(4, 6));
  rig.Reset(1);
  EngineThread engine("trainer");
  absl::Status hung;
  {
    // Rank 1 never comes.
    std::jthread caller([&] {
      hung = engine
                 .Call<ForwardBackwardResult>(
                     [&] { return rig[0].trainer->ForwardBackward(rig.TrainCommand(0)); })
                 .status();
    });
    while (rig[0].trainer->status().phase != "train") std::this_thread::yield();
    rig[0].trainer->Interrupt(2);
  }
  REQUIRE(hung.code() == absl::StatusCode::kAborted);
  rig.Reset(2);
  rig.TrainStep(0);
}

TEST_CASE("A Reset that waits for a rank is replaced by a newer one", "[trainer]") {
  TrainerRig rig(2);
  absl::Status replaced;
  {
    std::jthread caller([&] { replaced = rig[0].trainer->Reset(rig.ResetFor(1, "", 0)).status(); });
    while (rig[0].trainer->status().phase != "reset") std::this_thread::yield();
    rig[0].trainer->Interrupt(2);
  }
  REQUIRE(replaced.code() == absl::StatusCode::kAborted);
  rig.Reset(2);
}

TEST_CASE("A Reset of an older generation is refused after a newer one that failed", "[trainer]") {
  TrainerRig rig(1);
  Trainer& trainer = *rig[0].trainer;
  REQUIRE_FALSE(trainer.Reset(rig.ResetFor(3, rig.Folder("no checkpoint"), 1)).ok());
  const absl::Status refused = trainer.Reset(rig.ResetFor(2, "", 0)).status();
  INFO(refused);
  REQUIRE(refused.code() == absl::StatusCode::kAborted);
  REQUIRE(Says(refused, "generation 2"));
  // A command still hears that it needs a Reset first, and a newer Reset makes it possible.
  REQUIRE(trainer.CheckGeneration(2).ok());
  rig.Reset(4);
}

TEST_CASE("A failed pull of samples fails all ranks and names the one that failed", "[trainer]") {
  TrainerRig rig(2);
  rig.GiveSamples(RandomSamples(4, 7));
  rig.Reset(1);
  rig[1].samples.fail = absl::NotFoundError("no such batch");
  rig.Run([&](TrainerRig::Rank& rank, int) {
    return rank.trainer->ForwardBackward(rig.TrainCommand(0)).status();
  });
  REQUIRE(rig[1].status.code() == absl::StatusCode::kNotFound);
  REQUIRE(rig[0].status.code() == absl::StatusCode::kAborted);
  REQUIRE(Says(rig[0].status, "trainer 1"));
  rig[1].samples.fail = absl::OkStatus();
  rig.TrainStep(0);
}

TEST_CASE("A model that computes NaN fails all ranks with sample and position", "[trainer]") {
  TrainerRig rig(2);
  rig.GiveSamples(RandomSamples(4, 7));
  std::fstream weights(rig.model_dir() + "/model.safetensors",
                       std::ios::in | std::ios::out | std::ios::binary);
  weights.seekp(-4, std::ios::end);
  weights.write("\xff\xff\xff\xff", 4);
  weights.close();
  rig.Reset(1);
  rig.Run([&](TrainerRig::Rank& rank, int) {
    return rank.trainer->ForwardBackward(rig.TrainCommand(0)).status();
  });
  for (int rank = 0; rank < 2; ++rank) {
    INFO(rig[rank].status.ToString());
    REQUIRE(rig[rank].status.code() == absl::StatusCode::kDataLoss);
    REQUIRE(Says(rig[rank].status, "log-prob of a sampled token is nan, not finite: sample "));
    REQUIRE(Says(rig[rank].status, "in the trainer"));
  }
  rig.Run([&](TrainerRig::Rank& rank, int) {
    return rank.trainer->ComputeLogProbs(1, LogProbPolicy::kCurrent).status();
  });
  REQUIRE(rig[0].status.code() == absl::StatusCode::kDataLoss);
}

TEST_CASE("A phase report has its seconds, the tags in use and their peaks", "[trainer]") {
  TrainerRig rig(1);
  rig.GiveSamples(RandomSamples(3, 9));
  rig.Reset(1);
  const auto result = rig[0].trainer->ForwardBackward(rig.TrainCommand(0));
  REQUIRE(result.ok());
  REQUIRE(result->report.phase == "train");
  REQUIRE(result->report.seconds > 0);
  std::map<std::string, LedgerEntry> entries;
  for (const LedgerEntry& entry : result->report.ledger.entries) entries[entry.tag] = entry;
  for (const char* tag : {"master", "weights", "gradients", "gather"}) {
    INFO(tag);
    REQUIRE(entries[tag].current_bytes > 0);
  }
  REQUIRE(entries["activations"].peak_bytes > 0);
  REQUIRE(result->batch.forward_seconds > 0);
}

TEST_CASE("What only training needs is given back before a sync, if the rollout needs the memory",
          "[trainer]") {
  for (const bool tight : {true, false}) {
    TrainerOptions options;
    options.session.kept_bytes = tight ? 0 : int64_t{1} << 40;
    TrainerRig rig(2, options);
    rig.GiveSamples(RandomSamples(3, 9));
    rig.Reset(1);
    rig.TrainStep(0);
    rig.Sync(1);
    const LedgerSnapshot ledger = rig[0].trainer->ledger().Snapshot();
    std::set<std::string> seen;
    for (const LedgerEntry& entry : ledger.entries) {
      INFO(entry.tag);
      const bool transient =
          entry.tag == "gather" || entry.tag == "gradients" || entry.tag == "activations";
      if (transient) REQUIRE((entry.current_bytes == 0) == tight);
      seen.insert(entry.tag);
    }
    for (const char* const tag : {"gather", "gradients", "activations"}) {
      INFO(tag);
      REQUIRE(seen.contains(tag));
    }
    rig.TrainStep(1);
  }
}

TEST_CASE("A trainer that cannot give training memory back fails its sync, not the rollout's wake",
          "[trainer]") {
  TrainerRig rig(1);
  rig.GiveSamples(RandomSamples(3, 9));
  rig.Reset(1);
  // Gradients that nobody stepped on are not thrown away.
  REQUIRE(rig[0].trainer->ForwardBackward(rig.TrainCommand(0)).ok());
  const absl::Status status = rig[0].trainer->SyncWeights(rig.SyncFor(0, 0)).status();
  INFO(status.ToString());
  REQUIRE(absl::IsInternal(status));
  REQUIRE(Says(status, "bytes of gradients after its sync"));
  REQUIRE(rig[0].trainer->OptimizerStep(1).ok());
  rig.Sync(1);
}

}  // namespace
}  // namespace tandem
