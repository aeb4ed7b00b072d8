// Adapters beside the base on a GPU, emulated: what the trainer computes, learns and sends; and on
// a device whose memory the host cannot touch, with the bits of the host.
#include <cmath>

#include "common/backend/cuda_backend.h"
#include "tests/emulator/emulated_cuda.h"
#include "tests/fakes/guarded_backend.h"
#include "tests/trainer_worker/emulated_backend.h"
#include "tests/trainer_worker/guarded_ranks.h"
#include "tests/trainer_worker/trained_weights/lora_group.h"

namespace tandem {
namespace {

using namespace tandem::testing;

// The smallest that a GPU's kernels take.
TinyModelOptions SmallQwen3Model() {
  return {.model_type = "qwen3",
          .num_layers = 2,
          .num_heads = 2,
          .num_kv_heads = 1,
          .head_dim = 64,
          .intermediate_size = 72};
}

struct UnmergedCudaFixture {
  UnmergedCudaFixture() {
    base.model_dir = (dir.path() / "model").string();
    REQUIRE(WriteTinyModel(base.model_dir, SmallQwen3Model()).ok());
    base.lr = 1e-2;
    base.make_backend = MakeEmulatedBackend;
    beside = base;
    beside.lora = {.rank = 3, .alpha = 7, .target_modules = {"all-linear"}, .merge = false};
    on_host = beside;
    on_host.make_backend = MakeHostBackend;
  }
  TempDir dir;
  TrainerRanksOptions base, beside, on_host;
  std::vector<Sample> samples = RandomSamples(4, 3);
};

std::vector<float> GradientsInPlace(TrainerRanks& group) {
  ParameterShard& shard = group[0].session->shard();
  return {shard.gradients(), shard.gradients() + shard.elements()};
}

// Of the weights and adapters that a sync announces.
std::vector<Digest> Announced(TrainerRanks& group) {
  std::vector<Digest> digests;
  group.RunOk([&](Rank& rank, int index) -> absl::Status {
    const auto source = rank.session->weights().MakeWeightSource();
    TANDEM_ASSIGN_OR_RETURN(auto mine, source->Digests());
    if (index == 0) digests = std::move(mine);
    return absl::OkStatus();
  });
  return digests;
}

void Step(TrainerRanks& group, const std::vector<Sample>& samples) {
  TrainOn(group, samples);
  StepOn(group);
}

}  // namespace

TEST_CASE("on a GPU adapters beside the base whose B is zero are the base, and so is the reference",
          "[trainer][cuda][lora]") {
  UnmergedCudaFixture f;
  TrainerRanks base(1, f.base), one(1, f.beside), two(2, f.beside), host(1, f.on_host);
  const LogProbsBySample want = ScoresOf(base, f.samples, false);
  for (TrainerRanks* const group : {&one, &two}) {
    REQUIRE(ScoresOf(*group, f.samples, false) == want);
    SetB(*group, 5);
    REQUIRE(ScoresOf(*group, f.samples, true) == want);
  }
  SetB(host, 5);
  const LogProbsBySample scores = ScoresOf(one, f.samples, false);
  REQUIRE(scores != want);
  REQUIRE(ScoresOf(two, f.samples, false) == scores);
  double from_host = 0, from_base = 0;
  for (const auto& [id, log_probs] : ScoresOf(host, f.samples, false)) {
    for (size_t i = 0; i < log_probs.size(); ++i) {
      from_host += std::pow(double{scores.at(id)[i]} - double{log_probs[i]}, 2);
      from_base += std::pow(double{scores.at(id)[i]} - double{want.at(id)[i]}, 2);
    }
  }
  // Roundings, and what adapters are for.
  REQUIRE(25 * from_host < from_base);
}

TEST_CASE("on a GPU adapters beside the base learn what they do on a CPU",
          "[trainer][cuda][lora]") {
  UnmergedCudaFixture f;
  for (const std::vector<std::string>& targets :
       {std::vector<std::string>{"all-linear"},
        {R"(.*layers\.1\..*_proj)", "model.layers.0.self_attn.k_proj"}}) {
    f.beside.lora.target_modules = f.on_host.lora.target_modules = targets;
    TrainerRanks gpu(1, f.beside), host(1, f.on_host);
    for (TrainerRanks* const group : {&gpu, &host}) {
      SetB(*group, 5);
      TrainOn(*group, f.samples);
    }
    const std::vector<float> ours = GradientsInPlace(gpu), theirs = GradientsInPlace(host);
    REQUIRE(ours.size() == theirs.size());
    double error = 0, size = 0;
    for (size_t i = 0; i < ours.size(); ++i) {
      error += std::pow(double{ours[i]} - double{theirs[i]}, 2);
      size += std::pow(double{theirs[i]}, 2);
    }
    // Activations' gradients are rounded to eight bits at every product.
    REQUIRE(std::sqrt(error / size) < 0.05);
    const double norm = StepOn(gpu).grad_norm;
    REQUIRE(norm == Approx(StepOn(host).grad_norm).epsilon(0.02));
    // Two ranks: the same sums, cut once.
    TrainerRanks two(2, f.beside);
    SetB(two, 5);
    TrainOn(two, f.samples);
    REQUIRE(StepOn(two).grad_norm == Approx(norm).epsilon(1e-5));
  }
}

TEST_CASE("on a GPU cutting a batch and recomputing layers change no bit of adapters' gradients",
          "[trainer][cuda][lora]") {
  UnmergedCudaFixture f;
  const auto gradients = [&] {
    TrainerRanks group(1, f.beside);
    SetB(group, 5);
    TrainOn(group, f.samples);
    return GradientsInPlace(group);
  };
  const std::vector<float> want = gradients();
  f.beside.max_micro_batch_tokens = 55;  // a sample or two
  f.beside.recompute = Recompute::kAlways;
  f.beside.reshard = Reshard::kAlways;
  REQUIRE(gradients() == want);
}

TEST_CASE("a GPU's trainer sends adapters alone to who holds the base", "[trainer][cuda][lora]") {
  UnmergedCudaFixture f;
  f.beside.transport = "shm";
  TrainerRanks group(1, f.beside);
  TrainingSession& session = *group[0].session;
  Receiver receiver(session);
  const WeightLayout& layout = session.decoder().layout();
  for (int64_t version = 0; version < 3; ++version) {
    const UpdateScope scope = version == 0 ? UpdateScope::kWhole : UpdateScope::kAdapters;
    receiver.client.bytes_applied = 0;
    const auto source = session.weights().MakeWeightSource();
    const auto report = session.publisher().Publish(version, *source, &receiver.client, scope);
    INFO(report.status());
    REQUIRE(report.ok());
    REQUIRE(receiver.client.bytes_applied == ManifestBytes(ManifestOf(layout, scope)));
    REQUIRE(receiver.updates.version() == version);
    REQUIRE(receiver.updates.Verify().ok());
    REQUIRE(receiver.updates.Digests().value() == Announced(group));
    Step(group, f.samples);
  }
}

TEST_CASE("a device refuses adapters' dropout by name", "[trainer][cuda][lora]") {
  UnmergedCudaFixture f;
  TrainerRanks group(1, f.beside);
  group[0].options.lora.dropout = 0.1;
  const absl::Status status = StartSession(group[0]);
  INFO(status.ToString());
  REQUIRE(absl::IsFailedPrecondition(status));
  REQUIRE(status.message().find("model.lora.dropout=0.1: dropout is built for CPUs only so far") !=
          std::string::npos);
  REQUIRE(status.message().find("set it to 0, or trainer.device=cpu") != std::string::npos);
}

TEST_CASE("adapters beside the base in memory that the host cannot touch have the host's bits",
          "[trainer][lora]") {
  UnmergedCudaFixture f;
  TrainerRanksOptions guarded = f.on_host;
  guarded.make_backend = MakeGuardedBackend;
  for (const int world : {1, 2}) {
    for (const DType dtype : {DType::kBFloat16, DType::kFloat32}) {
      f.on_host.dtype = guarded.dtype = dtype;
      TrainerRanks host(world, f.on_host), device(world, guarded);
      REQUIRE(Announced(host) == Announced(device));
      for (TrainerRanks* const group : {&host, &device}) {
        Step(*group, f.samples);
        Step(*group, f.samples);
      }
      REQUIRE(Announced(host) == Announced(device));
      for (const bool reference : {false, true}) {
        REQUIRE(ScoresOf(host, f.samples, reference) == ScoresOf(device, f.samples, reference));
      }
    }
  }
}

}  // namespace tandem
