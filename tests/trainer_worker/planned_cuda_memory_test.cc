// The memory planned for a trainer on a GPU against what it allocates on an emulated one, which
// counts every byte.
#include "common/backend/cuda_backend.h"
#include "common/lora/lora_spec.h"
#include "controller/plan/memory_plan.h"
#include "tests/emulator/emulated_cuda.h"
#include "tests/trainer_worker/trainer_ranks.h"

namespace tandem {
namespace {

using namespace tandem::testing;
using emulator::EmulatedCuda;

constexpr int64_t kPrompt = 10, kResponse = 12, kPositions = 128;

EmulatedCuda* newest = nullptr;  // of the rank that was made last

std::unique_ptr<Backend> MakeNewestBackend() {
  auto cuda = std::make_unique<EmulatedCuda>();
  newest = cuda.get();
  return MakeCudaBackend(std::move(cuda), 0).value();
}

// Some MiB of weights: what is forgotten would not hide in the rounding of regions.
TinyModelOptions PlannedGpuModel() {
  return {.vocab_size = 6000,
          .hidden_size = 128,
          .num_layers = 3,
          .num_heads = 2,
          .num_kv_heads = 1,
          .head_dim = 64,
          .intermediate_size = 512};
}

// `groups` prompts with `each` responses, all as long as the limits allow.
std::vector<Sample> LongSamples(int groups, int each) {
  std::vector<Sample> samples = RandomSamples(groups * each, 4);
  for (size_t i = 0; i < samples.size(); ++i) {
    Sample& sample = samples[i];
    const int group = static_cast<int>(i) / each;
    sample.sample_id = MakeSampleId(static_cast<uint64_t>(group), 0, i % static_cast<size_t>(each));
    sample.prompt_tokens = kPrompt;
    sample.tokens.assign(kPrompt + kResponse, static_cast<int32_t>(20 + group));
    sample.tokens.back() = static_cast<int32_t>(30 + i);
    sample.segments = {{0, kPrompt, false, 0}, {kPrompt, kResponse, true, 0}};
    sample.log_probs.assign(kResponse, -5.5f);
    sample.versions.assign(kResponse, 0);
    sample.advantages.assign(kResponse, 1.0f);
  }
  return samples;
}

struct Run {
  int groups = 3, each = 1;
  Recompute recompute = Recompute::kNever;
  bool offload = false;
  bool adapters = false;  // are trained, alone
};

void RequireGpuAsPlanned(const Run& run) {
  TempDir dir;
  TrainerRanksOptions options;
  options.model_dir = (dir.path() / "model").string();
  REQUIRE(WriteTinyModel(options.model_dir, PlannedGpuModel()).ok());
  options.train_limits = {.micro_batch_tokens = 256,
                          .samples = run.groups * run.each,
                          .groups = run.groups,
                          .prompt_tokens = kPrompt,
                          .response_tokens = kResponse,
                          .sequence_tokens = kPrompt + kResponse};
  options.score_limits = options.train_limits;
  options.recompute = run.recompute;
  options.offload_master = options.offload_moments = options.offload_reference = run.offload;
  options.make_backend = MakeNewestBackend;
  if (run.adapters) {
    options.lora = {.rank = 16, .alpha = 32, .target_modules = {"all-linear"}};
    options.offload_master = options.offload_reference = false;
  }
  const std::vector<Sample> samples = LongSamples(run.groups, run.each);

  MemoryPlanInput input{.device_bytes = int64_t{1} << 30, .host_is_device = false};
  input.max_model_len = kPositions;
  input.trainer.reference = true;
  input.trainer.offload_master = options.offload_master;
  input.trainer.offload_moments = options.offload_moments;
  input.trainer.offload_reference = options.offload_reference;
  if (run.adapters) {
    input.trainer.adapters = input.trainer.adapter_shard =
        MakeLoraSpec(TinyModelSpec(PlannedGpuModel()), options.lora)->parameters();
  }
  input.train_limits = input.score_limits = options.train_limits;
  input.recompute = run.recompute;
  input.slots = 0;
  const MemoryPlan plan = PlanMemory(TinyModelSpec(PlannedGpuModel()), input);
  int64_t planned = 0, scratch = 0;
  for (const PlannedPhase& phase : plan.phases) {
    if (phase.phase != "start") planned = std::max(planned, plan.LedgerBytes(phase, true));
  }
  for (const MemoryLine& line : plan.Find("train")->lines) {
    scratch += line.trainer && line.tag == "workspace" ? line.bytes : 0;
  }

  TrainerRanks group(1, options);
  Rank& rank = group[0];
  TrainingSession& session = *rank.session;
  REQUIRE(session.FreezeReference().ok());
  // The optimizer makes its state in the first step.
  for (int step = 0; step < 2; ++step) {
    REQUIRE(session.Score(samples, LogProbPolicy::kReference).ok());
    REQUIRE(session.Train(RequestFor(samples), samples).ok());
    REQUIRE(session.Step().ok());
  }
  const auto measured = static_cast<double>(newest->peak_bytes());
  constexpr double kMib = 1 << 20;
  INFO("planned " << planned / kMib << " MiB, measured " << measured / kMib << " MiB; of scratch "
                  << scratch / kMib << " and " << rank.forward->workspace_bytes() / kMib);
  REQUIRE(static_cast<double>(planned) >= measured);
  // The optimizer's scratch is planned for all weights, also where adapters alone are stepped.
  REQUIRE(static_cast<double>(planned) <= (run.adapters ? 1.25 : 1.1) * measured);
  REQUIRE(scratch >= rank.forward->workspace_bytes());
  // Nothing lies on the device that the ledger does not know.
  REQUIRE(rank.ledger->Snapshot().device_bytes + rank.forward->workspace_bytes() +
              rank.backward->workspace_bytes() ==
          newest->used_bytes());
}

}  // namespace

TEST_CASE("A trainer takes of a GPU what is planned, at most a tenth less", "[trainer][memory]") {
  RequireGpuAsPlanned({});
}

TEST_CASE("A trainer takes of a GPU what is planned: shared prompts, recomputed",
          "[trainer][memory]") {
  RequireGpuAsPlanned({.groups = 1, .each = 4, .recompute = Recompute::kAlways});
}

TEST_CASE("A trainer takes of a GPU what is planned: adapters", "[trainer][memory][lora]") {
  RequireGpuAsPlanned({.adapters = true});
  RequireGpuAsPlanned({.recompute = Recompute::kAlways, .offload = true, .adapters = true});
}

TEST_CASE("A trainer takes of a GPU what is planned: offloaded", "[trainer][memory]") {
  RequireGpuAsPlanned({.offload = true});
}

}  // namespace tandem
