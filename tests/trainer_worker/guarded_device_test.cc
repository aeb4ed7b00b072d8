// A trainer whose memory is not the host's: nothing but the device and its ops touches it, and all
// bits are those of a trainer on the host.
#include <filesystem>

#include <unistd.h>

#include "common/base/mutex.h"
#include "tests/fakes/guarded_backend.h"
#include "tests/trainer_worker/checkpoint_rig.h"
#include "tests/trainer_worker/guarded_ranks.h"
#include "trainer_worker/shard/changed_weights.h"
#include "trainer_worker/weight_sync/expected_weights.h"

namespace tandem {
namespace {

using namespace tandem::testing;

std::vector<Digest> DigestsOf(TrainerRanks& group) {
  std::vector<Digest> digests;
  group.RunOk([&](Rank& rank, int index) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(
        auto mine, rank.session->shard().digests().OfTensors(rank.session->communicator()));
    if (index == 0) digests = std::move(mine);
    return absl::OkStatus();
  });
  return digests;
}

LogProbsBySample ScoresOfAll(TrainerRanks& group,
                             const std::vector<Sample>& samples,
                             bool reference) {
  struct {
    Mutex mutex;
    LogProbsBySample scores ABSL_GUARDED_BY(mutex);
  } all;
  group.RunOk([&](Rank& rank, int index) -> absl::Status {
    const std::vector<Sample> share = Share(samples, index, group.size());
    TANDEM_ASSIGN_OR_RETURN(const LogProbsBySample scores,
                            reference ? rank.session->Score(share, LogProbPolicy::kReference)
                                      : rank.session->Score(share));
    const MutexLock lock(all.mutex);
    all.scores.insert(scores.begin(), scores.end());
    return absl::OkStatus();
  });
  const MutexLock lock(all.mutex);
  return all.scores;
}

struct GuardedVariant {
  int world = 1;
  bool offload = false;
  Recompute recompute = Recompute::kNever;
  Reshard reshard = Reshard::kAuto;
  DType dtype = DType::kBFloat16;
  bool dense = false;  // tensors that lie in a shard as the ops read them
};

TinyModelOptions DenseModel() {
  return {.hidden_size = 128, .num_layers = 3, .head_dim = 32, .intermediate_size = 64};
}

TrainerRanksOptions GuardedOptions(const CheckpointFixture& f,
                                   const GuardedVariant& variant,
                                   bool guarded) {
  TrainerRanksOptions options = f.Offloaded(variant.offload, variant.offload);
  options.offload_reference = variant.offload;
  options.recompute = variant.recompute;
  options.reshard = variant.reshard;
  options.dtype = variant.dtype;
  options.max_micro_batch_tokens = 100;
  if (guarded) options.make_backend = MakeGuardedBackend;
  return options;
}

// Two steps, the checkpoint of them, and a step of those that resume from it.
void RequireSameGuardedRun(const GuardedVariant& variant) {
  CheckpointFixture f;
  if (variant.dense) REQUIRE(WriteTinyModel(f.options.model_dir, DenseModel()).ok());
  TrainerRanks host(variant.world, GuardedOptions(f, variant, false));
  TrainerRanks device(variant.world, GuardedOptions(f, variant, true));
  const bool in_place = variant.dense && variant.world == 1;
  REQUIRE(device[0].session->plan().is_laid_out() == in_place);
  for (TrainerRanks* group : {&host, &device}) {
    group->RunOk([](Rank& rank, int) { return rank.session->FreezeReference(); });
    for (int step = 0; step < 2; ++step) f.TrainStep(*group);
  }
  REQUIRE(DigestsOf(host) == DigestsOf(device));
  for (const bool reference : {false, true}) {
    REQUIRE(ScoresOfAll(host, f.samples, reference) == ScoresOfAll(device, f.samples, reference));
  }
  const std::string saved = f.Save(host, "host", 2);
  RequireSameFiles(saved, f.Save(device, "device", 2));

  TrainerRanks resumed(variant.world, GuardedOptions(f, variant, true));
  f.Load(resumed, saved, 2);
  f.TrainStep(host);
  f.TrainStep(resumed);
  RequireSameFiles(f.Save(host, "host3", 3), f.Save(resumed, "device3", 3));
}

}  // namespace

TEST_CASE("A trainer on a device trains, saves and resumes with the bits of one on the host",
          "[trainer][device]") {
  for (const int world : {1, 2}) {
    for (const bool offload : {false, true}) {
      RequireSameGuardedRun({.world = world, .offload = offload});
    }
    RequireSameGuardedRun(
        {.world = world, .recompute = Recompute::kAlways, .reshard = Reshard::kAlways});
  }
  RequireSameGuardedRun({.world = 3, .offload = true, .reshard = Reshard::kAlways});
  RequireSameGuardedRun({.world = 2, .dtype = DType::kFloat32});
}

TEST_CASE(
    "A trainer that reads its shard where it lies on a device has the bits of one on the host",
    "[trainer][device]") {
  for (const bool offload : {false, true}) {
    RequireSameGuardedRun({.offload = offload, .dense = true});
  }
  RequireSameGuardedRun({.dtype = DType::kFloat32, .dense = true});
  RequireSameGuardedRun({.world = 2, .dense = true});
}

TEST_CASE("Rows that a check compares with come from a device's masters", "[trainer][device]") {
  CheckpointFixture f;
  f.options.make_backend = MakeGuardedBackend;
  TrainerRanks group(2, f.options);
  group.RunOk([](Rank& rank, int) -> absl::Status {
    TrainingSession& session = *rank.session;
    TANDEM_ASSIGN_OR_RETURN(const auto rows,
                            MasterWeights::Create(&session.shard(), &session.communicator(),
                                                  rank.ledger.get(), {.scratch_bytes = 1 << 20}));
    TANDEM_ASSIGN_OR_RETURN(const std::vector<Digest> want,
                            session.shard().digests().OfTensors(session.communicator()));
    size_t tensor = 0;
    for (const TensorPlace& place : session.plan().layout().places()) {
      const int64_t row_bytes = place.cols() * static_cast<int64_t>(sizeof(Bf16));
      TANDEM_ASSIGN_OR_RETURN(const void* values, rows->Rows({&place, 0, place.rows(), row_bytes}));
      if (!(DigestOf(values, place.rows() * row_bytes) == want[tensor++])) {
        return Internal("{} differs", place.name);
      }
    }
    return absl::OkStatus();
  });
}

TEST_CASE("Changes since a sample are counted on a device", "[trainer][device]") {
  CheckpointFixture f;
  f.options.make_backend = MakeGuardedBackend;
  TrainerRanks group(1, f.options);
  ParameterShard& shard = group[0].session->shard();
  ElementSample before;
  REQUIRE(before.Take(shard).ok());
  REQUIRE(before.Changed(shard).value() == 0);
  TrainOn(group, f.samples);
  const OptimizerReport report = StepOn(group);
  REQUIRE(report.changed > 0);
  REQUIRE(before.Changed(shard).value() == static_cast<double>(report.changed));
}

TEST_CASE("A device's ranks refuse the host's memory, but for the host's collectives",
          "[trainer][device]") {
  CheckpointFixture f;
  f.options.make_backend = MakeGuardedBackend;
  TrainerRanks group(2, f.options);
  group.RunOk([](Rank& rank, int index) -> absl::Status {
    std::vector<int> all(2);
    TANDEM_RETURN_IF_ERROR(rank.communicator->host().AllGather(&index, sizeof(index), all.data()));
    return all == std::vector<int>{0, 1} ? absl::OkStatus() : Internal("not gathered");
  });
  group.Run([](Rank& rank, int index) {
    std::vector<int> all(2);
    return rank.communicator->AllGather(&index, sizeof(index), all.data());
  });
  for (const int rank : {0, 1}) {
    REQUIRE(group[rank].status.message().find("memory of the host") != std::string::npos);
  }
}

TEST_CASE("A device's memory is not the host's", "[device]") {
  GuardedDevice device;
  const auto region = device.Reserve("test", 100, nullptr).value();
  REQUIRE(region->Map().ok());
  const int value = 7;
  device.Copy(region->data(), &value, sizeof(value));
  int read = 0;
  device.Copy(&read, region->data(), sizeof(read));
  REQUIRE(read != value);
  REQUIRE(device.Synchronize().ok());
  REQUIRE(read == value);
  // What the kernel cannot read it refuses, where the host would crash.
  int pipe_ends[2];
  REQUIRE(pipe(pipe_ends) == 0);
  REQUIRE(write(pipe_ends[1], region->data(), 4) == -1);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

}  // namespace tandem
