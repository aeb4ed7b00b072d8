// A trainer on a GPU, emulated: its log-probs are a CPU's except for rounding, and its steps, saves
// and resumes repeat bit for bit.
#include <cmath>

#include "common/backend/cuda_backend.h"
#include "tests/emulator/emulated_cuda.h"
#include "tests/trainer_worker/checkpoint_rig.h"
#include "tests/trainer_worker/emulated_backend.h"

namespace tandem {
namespace {

using namespace tandem::testing;

// The smallest that GPU's kernels take.
TinyModelOptions SmallGpuModel() {
  return {
      .num_layers = 1, .num_heads = 2, .num_kv_heads = 1, .head_dim = 64, .intermediate_size = 64};
}

struct EmulatedGpuFixture : CheckpointFixture {
  EmulatedGpuFixture() {
    REQUIRE(WriteTinyModel(options.model_dir, SmallGpuModel()).ok());
    samples = RandomSamples(3, 3);
  }
  TrainerRanksOptions OnGpu(bool offload) const {
    TrainerRanksOptions gpu = Offloaded(offload, offload);
    gpu.make_backend = MakeEmulatedBackend;
    return gpu;
  }
};

LogProbsBySample GpuScores(TrainerRanks& group, const std::vector<Sample>& samples) {
  return group[0].session->Score(samples).value();
}

// Of the masters, read back and rounded by the host.
std::vector<Digest> DigestsOfMasters(TrainingSession& session) {
  ParameterShard& shard = session.shard();
  std::vector<Digest> digests;
  for (const TensorPlace& place : session.plan().layout().places()) {
    const ShardPlan::Piece& piece = session.plan().mine(session.plan().IndexOf(place));
    const float* masters = shard.HostValues(shard.master() + piece.offset, piece.elements).value();
    std::vector<Bf16> rounded;
    for (int64_t i = 0; i < piece.elements; ++i) rounded.push_back(ToBf16(masters[i]));
    digests.push_back(DigestOf(rounded.data(), 2 * piece.elements));
  }
  shard.Evict();
  return digests;
}

}  // namespace

TEST_CASE("A trainer on an emulated GPU agrees with one on a CPU", "[trainer][cuda]") {
  EmulatedGpuFixture f;
  TrainerRanks host(1, f.options);
  TrainerRanks gpu(1, f.OnGpu(false));
  const LogProbsBySample want = GpuScores(host, f.samples), got = GpuScores(gpu, f.samples);
  REQUIRE(got.size() == want.size());
  for (const auto& [sample, log_probs] : want) {
    for (size_t i = 0; i < log_probs.size(); ++i) {
      // Sums in another order, rounded to bf16 after each op.
      REQUIRE(std::abs(got.at(sample)[i] - log_probs[i]) < 0.05f);
    }
  }
  TrainOn(host, f.samples);
  TrainOn(gpu, f.samples);
  const OptimizerReport on_host = StepOn(host), on_gpu = StepOn(gpu);
  REQUIRE(std::abs(on_gpu.grad_norm - on_host.grad_norm) < 0.02 * on_host.grad_norm);
  REQUIRE(on_gpu.changed > 0);
  TrainingSession& session = *gpu[0].session;
  REQUIRE(session.shard().digests().OfTensors(session.communicator()).value() ==
          DigestsOfMasters(session));
}

TEST_CASE("Two ranks on an emulated GPU have one rank's gradient norm, whatever they gather ahead",
          "[trainer][cuda]") {
  EmulatedGpuFixture f;
  TinyModelOptions model = SmallGpuModel();
  model.num_layers = 3;
  REQUIRE(WriteTinyModel(f.options.model_dir, model).ok());
  TrainerRanksOptions options = f.OnGpu(false);
  TrainerRanks one(1, options);
  TrainOn(one, f.samples);
  const double want = StepOn(one).grad_norm;
  std::vector<std::vector<Digest>> stepped;
  for (const bool prefetch : {true, false}) {
    options.prefetch = prefetch;
    options.reshard = Reshard::kAlways;
    TrainerRanks two(2, options);
    TrainOn(two, f.samples);
    REQUIRE(StepOn(two).grad_norm == Approx(want).epsilon(1e-6).margin(0));
    std::vector<Digest> digests;
    two.RunOk([&](Rank& rank, int index) -> absl::Status {
      TANDEM_ASSIGN_OR_RETURN(
          auto mine, rank.session->shard().digests().OfTensors(rank.session->communicator()));
      if (index == 0) digests = std::move(mine);
      return absl::OkStatus();
    });
    stepped.push_back(digests);
  }
  REQUIRE(stepped[0] == stepped[1]);
}

namespace {
// Hidden and head sizes of real models: every tensor fills its place.
TinyModelOptions DenseGpuModel() {
  TinyModelOptions model = SmallGpuModel();
  model.hidden_size = model.intermediate_size = 128;
  model.head_dim = 128;
  model.num_heads = 1;
  return model;
}
}  // namespace

TEST_CASE("A single rank on a GPU reads its shard where it lies, with the bits of copies of it",
          "[trainer][cuda]") {
  EmulatedGpuFixture f;
  REQUIRE(WriteTinyModel(f.options.model_dir, DenseGpuModel()).ok());
  TrainerRanks gpu(1, f.OnGpu(false));
  TrainingSession& session = *gpu[0].session;
  REQUIRE(session.plan().is_laid_out());
  TrainerRanksOptions offloaded = f.OnGpu(false);
  offloaded.offload_reference = true;
  TrainerRanks copies(1, offloaded);
  const auto gathered = [](TrainerRanks& group) {
    return BytesOf(group[0].ledger->Snapshot(), "gather");
  };
  for (TrainerRanks* const group : {&gpu, &copies}) {
    group->RunOk([](Rank& rank, int) { return rank.session->FreezeReference(); });
    f.TrainStep(*group);
  }
  REQUIRE(gathered(gpu) == 0);
  REQUIRE(gathered(copies) == 0);
  const auto reference = [&](TrainerRanks& group) {
    return group[0].session->Score(f.samples, LogProbPolicy::kReference).value();
  };
  // An offloaded reference is copied into places; what it scores is what was frozen.
  const LogProbsBySample scores = GpuScores(gpu, f.samples);
  REQUIRE(reference(gpu) == reference(copies));
  REQUIRE(reference(gpu) != scores);
  REQUIRE(gathered(gpu) == 0);
  REQUIRE(gathered(copies) > 0);
  // Back to the policy: the places hold another's weights.
  REQUIRE(GpuScores(copies, f.samples) == scores);
}

TEST_CASE("Offloaded or not, resumed or not, an emulated GPU trains the same bits",
          "[trainer][cuda]") {
  EmulatedGpuFixture f;
  TrainerRanks gpu(1, f.OnGpu(false));
  f.TrainStep(gpu);
  const std::string saved = f.Save(gpu, "saved", 1);
  TrainerRanks resumed(1, f.OnGpu(true));
  f.Load(resumed, saved, 1);
  f.TrainStep(gpu);
  f.TrainStep(resumed);
  const auto digests = [](TrainerRanks& group) {
    TrainingSession& session = *group[0].session;
    return session.shard().digests().OfTensors(session.communicator()).value();
  };
  REQUIRE(digests(gpu) == digests(resumed));
  REQUIRE(DigestsOfMasters(*resumed[0].session) == digests(resumed));
  REQUIRE(GpuScores(gpu, f.samples) == GpuScores(resumed, f.samples));
}

}  // namespace tandem
