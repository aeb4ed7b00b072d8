// Adapters that are merged on an emulated GPU: what is computed, published and compared there is
// what the host makes of the same adapters.
#include <cmath>

#include "common/backend/cuda_backend.h"
#include "tests/emulator/emulated_cuda.h"
#include "tests/trainer_worker/emulated_backend.h"
#include "tests/trainer_worker/emulated_rollout.h"
#include "tests/trainer_worker/trained_weights/lora_group.h"

namespace tandem {
namespace {

using namespace tandem::testing;

struct LoraCudaFixture {
  explicit LoraCudaFixture(int64_t layers = 1) {
    options.model_dir = (dir.path() / "model").string();
    REQUIRE(WriteTinyModel(options.model_dir, {.num_layers = layers,
                                               .num_heads = 2,
                                               .num_kv_heads = 1,
                                               .head_dim = 64,
                                               .intermediate_size = 64})
                .ok());
    options.lora = {.rank = 3, .alpha = 7, .target_modules = {"all-linear"}};
    options.lr = 1e-2;
    gpu = options;
    gpu.make_backend = MakeEmulatedBackend;
  }
  TempDir dir;
  TrainerRanksOptions options, gpu;
  std::vector<Sample> samples = RandomSamples(3, 3);
};

std::vector<float> CopiedGradients(TrainerRanks& group) {
  ParameterShard& shard = group[0].session->shard();
  std::vector<float> values(static_cast<size_t>(shard.elements()));
  Device* const device = shard.device();
  device->Copy(values.data(), shard.gradients(),
               shard.elements() * static_cast<int64_t>(sizeof(float)));
  REQUIRE(device->Synchronize().ok());
  return values;
}

// Every rank's own rollout.
struct Rollouts {
  explicit Rollouts(TrainerRanks& group) {
    for (int i = 0; i < group.size(); ++i) {
      all.push_back(std::make_unique<EmulatedRollout>(group[i].session->plan().layout()));
    }
  }
  void Sync(TrainerRanks& group, int64_t version) {
    group.RunOk([&](Rank& rank, int index) -> absl::Status {
      TANDEM_ASSIGN_OR_RETURN(const PublishReport report,
                              all[static_cast<size_t>(index)]->Sync(rank, version));
      return report.direct ? Internal("merged weights lie nowhere") : absl::OkStatus();
    });
  }
  std::vector<std::unique_ptr<EmulatedRollout>> all;
};

}  // namespace

TEST_CASE("Adapters on an emulated GPU train as they do on a CPU", "[trainer][cuda][lora]") {
  LoraCudaFixture f;
  TrainerRanks host(1, f.options), gpu(1, f.gpu);
  const LogProbsBySample base = ScoresOf(gpu, f.samples, true);
  REQUIRE(ScoresOf(gpu, f.samples, false) == base);  // B is zero
  SetB(host, 5);
  SetB(gpu, 5);
  REQUIRE(MergedDigests(gpu) == MergedDigests(host));
  const LogProbsBySample want = ScoresOf(host, f.samples, false),
                         got = ScoresOf(gpu, f.samples, false);
  REQUIRE(got != base);
  for (const auto& [sample, log_probs] : want) {
    for (size_t i = 0; i < log_probs.size(); ++i) {
      REQUIRE(std::abs(got.at(sample)[i] - log_probs[i]) < 0.05f);
    }
  }
  TrainOn(host, f.samples);
  TrainOn(gpu, f.samples);
  const std::vector<float> on_host = CopiedGradients(host), on_gpu = CopiedGradients(gpu);
  float largest = 0;
  for (const float value : on_host) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < on_host.size(); ++i) {
    REQUIRE(std::abs(on_gpu[i] - on_host[i]) < 0.05f * largest);
  }
  const OptimizerReport host_step = StepOn(host), gpu_step = StepOn(gpu);
  REQUIRE(std::abs(gpu_step.grad_norm - host_step.grad_norm) < 0.02 * host_step.grad_norm);
  // What the GPU stepped to, merged there, is what the host makes of it and of the file.
  const std::vector<Digest> merged = MergedDigests(gpu);
  REQUIRE(OracleDigests(gpu[0]) == merged);
  REQUIRE(ScoresOf(gpu, f.samples, true) == base);
  REQUIRE(ScoresOf(gpu, f.samples, false) != got);
}

TEST_CASE("Two ranks on an emulated GPU publish the bits of one, whatever they gather ahead",
          "[trainer][cuda][lora]") {
  LoraCudaFixture f(3);
  TrainerRanks one(1, f.gpu);
  SetB(one, 9);
  const std::vector<Digest> merged = MergedDigests(one);
  const LogProbsBySample scores = ScoresOf(one, f.samples, false),
                         base = ScoresOf(one, f.samples, true);
  TrainOn(one, f.samples);
  const double norm = StepOn(one).grad_norm;
  std::vector<std::vector<Digest>> stepped;
  for (const bool prefetch : {true, false}) {
    f.gpu.prefetch = prefetch;
    f.gpu.reshard = Reshard::kAlways;
    TrainerRanks two(2, f.gpu);
    SetB(two, 9);
    REQUIRE(MergedDigests(two) == merged);
    REQUIRE(ScoresOf(two, f.samples, false) == scores);
    REQUIRE(ScoresOf(two, f.samples, true) == base);
    TrainOn(two, f.samples);
    REQUIRE(StepOn(two).grad_norm == Approx(norm).epsilon(1e-6).margin(0));
    stepped.push_back(MergedDigests(two));
  }
  REQUIRE(stepped[0] == stepped[1]);
  REQUIRE(stepped[0] != merged);
}

TEST_CASE("A pair of GPUs syncs what is merged on the way, by handles and through pinned slots",
          "[trainer][cuda][lora]") {
  LoraCudaFixture f;
  for (const int world : {1, 2}) {
    for (const std::string transport : {"auto", "shm"}) {
      INFO(world << " ranks, " << transport);
      f.gpu.transport = transport;
      TrainerRanks group(world, f.gpu);
      Rollouts rollouts(group);
      std::vector<Digest> before;
      for (int64_t version = 0; version < 2; ++version) {
        rollouts.Sync(group, version);
        const std::vector<Digest> merged = MergedDigests(group);
        REQUIRE(merged != before);
        for (const auto& rollout : rollouts.all) {
          REQUIRE(rollout->version() == version);
          REQUIRE(rollout->Held() == merged);
        }
        REQUIRE(OracleDigests(group[world - 1]) == merged);
        before = merged;
        TrainOn(group, f.samples);
        StepOn(group);
      }
    }
  }
}

TEST_CASE("A GPU's rollout refuses the base instead of what was announced",
          "[trainer][cuda][lora]") {
  // Sends rows of another policy than it announces.
  class Stale : public WeightSource {
   public:
    Stale(WeightSource* announced, WeightRows* sent) : announced_(announced), sent_(sent) {}
    absl::StatusOr<std::vector<Digest>> Digests() override { return announced_->Digests(); }
    absl::StatusOr<const void*> GatherRows(const TensorRows& rows, std::byte* dest) override {
      const size_t tensor = sent_->plan().IndexOf(*rows.place);
      TANDEM_RETURN_IF_ERROR(sent_->CopyRows(tensor, rows.row, rows.rows, DType::kBFloat16, dest));
      return dest;
    }

   private:
    WeightSource* const announced_;
    WeightRows* const sent_;
  };
  LoraCudaFixture f;
  TrainerRanks group(1, f.gpu);
  SetB(group, 1);
  Rank& rank = group[0];
  EmulatedRollout rollout(rank.session->plan().layout());
  const auto source = rank.session->weights().MakeWeightSource();
  Stale stale(source.get(), &LoraOf(rank).base());
  const absl::Status refused = rollout.Sync(rank, 1, stale).status();
  INFO(refused.ToString());
  REQUIRE(absl::IsDataLoss(refused));
  REQUIRE(rollout.version() == kNoVersion);
  REQUIRE(rollout.Sync(rank, 2).ok());
  REQUIRE(rollout.version() == 2);
}

}  // namespace tandem
