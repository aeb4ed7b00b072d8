// A single rank's rounded shard is read in place, on a GPU as on a CPU: the result is the same as
// through slots, and slots are used where the system refuses handles.
#include <cstring>

#include "common/backend/cuda_backend.h"
#include "common/memory/memory_formulas.h"
#include "tests/trainer_worker/checkpoint_rig.h"
#include "tests/trainer_worker/emulated_rollout.h"

namespace tandem {
namespace {

using namespace tandem::testing;

emulator::EmulatedCuda* trainers_gpu = nullptr;  // of the backend that was made last

std::unique_ptr<Backend> MakeTrainersGpu() {
  auto cuda = std::make_unique<emulator::EmulatedCuda>();
  trainers_gpu = cuda.get();
  return MakeCudaBackend(std::move(cuda), 0).value();
}

struct DirectSyncFixture : CheckpointFixture {
  DirectSyncFixture() {
    REQUIRE(WriteTinyModel(options.model_dir, {.num_layers = 1,
                                               .num_heads = 2,
                                               .num_kv_heads = 1,
                                               .head_dim = 64,
                                               .intermediate_size = 64})
                .ok());
    samples = RandomSamples(3, 3);
  }
  TrainerRanksOptions OnGpu(const std::string& transport, bool offload = false) const {
    TrainerRanksOptions gpu = Offloaded(offload, offload);
    gpu.transport = transport;
    gpu.make_backend = MakeTrainersGpu;
    return gpu;
  }
};

using Rollout = EmulatedRollout;

std::vector<Digest> Meant(Rank& rank) {
  TrainingSession& session = *rank.session;
  return session.shard().digests().OfTensors(session.communicator()).value();
}

// Syncs, steps and syncs again; what the rollout has then.
std::vector<Digest> TwoSyncs(DirectSyncFixture& f,
                             const TrainerRanksOptions& options,
                             bool direct) {
  TrainerRanks group(1, options);
  Rank& rank = group[0];
  Rollout rollout(rank.session->plan().layout());
  trainers_gpu->ForgetCalls();
  for (int64_t version = 0; version < 2; ++version) {
    const auto report = rollout.Sync(rank, version);
    INFO(report.status().ToString());
    REQUIRE(report.ok());
    REQUIRE(report->direct == direct);
    REQUIRE(rollout.version() == version);
    REQUIRE(rollout.Held() == Meant(rank));
    REQUIRE(BytesOf(rank.ledger->Snapshot(), "bucket") == 0);
    REQUIRE(BytesOf(rank.ledger->Snapshot(), "weights") ==
            RegionBytes(2 * rank.session->shard().elements()));
    if (version == 0) f.TrainStep(group);
  }
  // Opened once, for the life of the trainer.
  REQUIRE(CallsOf(*trainers_gpu, "ExportMemory") == (direct ? 1 : 0));
  REQUIRE(CallsOf(rollout.cuda(), "OpenMemory") == (direct ? 1 : 0));
  return rollout.Held();
}

}  // namespace

TEST_CASE("A GPU's shard that is read where it lies arrives as it does through slots",
          "[trainer][cuda]") {
  DirectSyncFixture f;
  const std::vector<Digest> held = TwoSyncs(f, f.OnGpu("auto"), true);
  REQUIRE(TwoSyncs(f, f.OnGpu("shm"), false) == held);
  // Offloading moves the masters; their rounding stays where the rollout reads it.
  REQUIRE(TwoSyncs(f, f.OnGpu("ipc", /*offload=*/true), true) == held);
}

TEST_CASE("A trainer's next session shares the memory that its rollout has open",
          "[trainer][cuda]") {
  DirectSyncFixture f;
  TrainerRanks group(1, f.OnGpu("auto"));
  Rank& rank = group[0];
  Rollout rollout(rank.session->plan().layout());
  REQUIRE(rollout.Sync(rank, 1).ok());
  const std::vector<Digest> held = rollout.Held();
  const std::byte* const shard = rank.session->shard().compute();
  rank.session.reset();
  REQUIRE(BytesOf(rank.ledger->Snapshot(), "weights") == 0);
  REQUIRE(StartSession(rank).ok());
  REQUIRE(rank.session->shard().compute() == shard);
  REQUIRE(LoadModel(f.options.model_dir, rank.session->spec(), rank.session->shard()).ok());
  // Nothing read it meanwhile, and the next sync passes it anew.
  REQUIRE(rollout.Held() == held);
  const auto report = rollout.Sync(rank, 2);
  REQUIRE(report.ok());
  REQUIRE(report->direct);
  REQUIRE(rollout.Held() == Meant(rank));
  REQUIRE(CallsOf(rollout.cuda(), "OpenMemory") == 2);
  REQUIRE(CallsOf(rollout.cuda(), "CloseMemory") == 1);
}

TEST_CASE("Where the shard's handle is refused on either side, the same sync goes through slots",
          "[trainer][cuda]") {
  DirectSyncFixture f;
  for (const bool by_trainer : {true, false}) {
    INFO(by_trainer);
    TrainerRanks group(1, f.OnGpu("auto"));
    Rank& rank = group[0];
    Rollout rollout(rank.session->plan().layout());
    emulator::EmulatedCuda& cuda = by_trainer ? *trainers_gpu : rollout.cuda();
    cuda.FailCall(by_trainer ? "ExportMemory" : "OpenMemory",
                  absl::FailedPreconditionError("not permitted"));
    const auto report = rollout.Sync(rank, 1);
    INFO(report.status().ToString());
    REQUIRE(report.ok());
    REQUIRE_FALSE(report->direct);
    REQUIRE(rollout.Held() == Meant(rank));
    // A session that starts later knows.
    REQUIRE(StartSession(rank).ok());
    REQUIRE(rank.session->shard().shared() == nullptr);
  }
  // Who asks for it by name is told.
  TrainerRanks group(1, f.OnGpu("ipc"));
  Rollout rollout(group[0].session->plan().layout());
  trainers_gpu->FailCall("ExportMemory", absl::FailedPreconditionError("not permitted"));
  const absl::Status refused = rollout.Sync(group[0], 1).status();
  REQUIRE(std::string(refused.message()).find("does not hand out the shard's GPU memory") !=
          std::string::npos);
  REQUIRE(rollout.version() == kNoVersion);
}

TEST_CASE("Several ranks, float32 and a transport without handles have no shard to share",
          "[trainer][cuda]") {
  DirectSyncFixture f;
  const auto shared = [](int world, const TrainerRanksOptions& options) {
    TrainerRanks group(world, options);
    return group[0].session->shard().shared() != nullptr;
  };
  REQUIRE(shared(1, f.options));
  REQUIRE_FALSE(shared(2, f.options));
  REQUIRE(shared(1, f.OnGpu("auto")));
  REQUIRE_FALSE(shared(1, f.OnGpu("shm")));
  f.options.dtype = DType::kFloat32;
  REQUIRE_FALSE(shared(1, f.options));
}

}  // namespace tandem
