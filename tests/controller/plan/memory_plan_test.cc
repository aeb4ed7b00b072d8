#include "controller/plan/memory_plan.h"

#include <catch2/catch.hpp>

#include "common/memory/cuda_memory.h"
#include "common/memory/cuda_scratch.h"
#include "common/memory/memory_formulas.h"

namespace tandem {
namespace {

ModelSpec SmallSpec() {
  const auto spec = ParseModelSpec(
      R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64,
          "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
          "num_key_value_heads": 2, "vocab_size": 100, "rms_norm_eps": 1e-5,
          "rope_theta": 10000.0, "max_position_embeddings": 512, "tie_word_embeddings": true})",
      "", "config.json");
  REQUIRE(spec.ok());
  return *spec;
}

}  // namespace

namespace {

constexpr int64_t kGib = int64_t{1} << 30;

MemoryPlanInput SmallInput() {
  MemoryPlanInput input{.device_bytes = kGib, .max_num_seqs = 64, .max_model_len = 256};
  input.batched_tokens = 512;
  input.train_limits = {.micro_batch_tokens = 1024,
                        .samples = 32,
                        .groups = 4,
                        .prompt_tokens = 128,
                        .response_tokens = 128,
                        .sequence_tokens = 256};
  input.score_limits = input.probe_limits = input.train_limits;
  return input;
}

int64_t Line(const MemoryPlan& plan, const std::string& phase, bool trainer, const char* tag) {
  int64_t bytes = 0;
  const PlannedPhase* found = plan.Find(phase);
  REQUIRE(found != nullptr);
  for (const MemoryLine& line : found->lines) {
    if (line.trainer == trainer && line.tag == tag) bytes += line.bytes;
  }
  return bytes;
}

}  // namespace

TEST_CASE("The plan sleeps only when the KV pool and the training peak do not fit", "[plan]") {
  const ModelSpec spec = SmallSpec();
  MemoryPlanInput input = SmallInput();
  const MemoryPlan roomy = PlanMemory(spec, input);
  REQUIRE(roomy.sleep_level == 0);
  REQUIRE(roomy.fits());
  const int64_t kv = RegionBytes(64 * KvBlocksFor(256) * KvBlockBytesOfAllLayers(spec));
  REQUIRE(Line(roomy, "generate", false, "kv_cache") == kv);
  REQUIRE(Line(roomy, "train", false, "kv_cache") == kv);

  input.free_cache_engine = "true";
  for (const int level : {1, 2}) {
    input.sleep_level = level;
    const MemoryPlan asleep = PlanMemory(spec, input);
    REQUIRE(asleep.sleep_level == level);
    REQUIRE(Line(asleep, "train", false, "kv_cache") == 0);
    // Level 1 keeps the weights in host memory, which is the device's on a CPU.
    REQUIRE((Line(asleep, "train", false, "weights") > 0) == (level == 1));
    REQUIRE(Line(asleep, "generate", false, "kv_cache") == kv);
  }
  input.free_cache_engine = "auto";
  input.device_bytes = roomy.peak_bytes();
  input.memory_utilization = 1;
  REQUIRE(PlanMemory(spec, input).sleep_level == 2);
}

TEST_CASE("Peak and share are those of the phase that needs the most", "[plan]") {
  const ModelSpec spec = SmallSpec();
  const MemoryPlan plan = PlanMemory(spec, SmallInput());
  for (const PlannedPhase& phase : plan.phases) {
    REQUIRE(plan.Bytes(phase) <= plan.peak_bytes());
    REQUIRE(plan.Bytes(phase) == plan.Bytes(phase, true) + plan.Bytes(phase, false));
  }
  REQUIRE(plan.Find("reference") == nullptr);
  // Everything is kept here, the slots of the sync too: all phases are alike, and the peak is said
  // of one that needs it all.
  REQUIRE(plan.Bytes(*plan.Find("generate")) == plan.Bytes(*plan.Find("sync")));
  REQUIRE(plan.phases[plan.peak].phase == "train");
  MemoryPlanInput input = SmallInput();
  input.trainer.offload_moments = true;
  input.slot_bytes = 1 << 16;
  const MemoryPlan streamed = PlanMemory(spec, input);
  REQUIRE(streamed.phases[streamed.peak].phase == "optimize");  // the buffers of the moments
}

TEST_CASE("Apart, each role has a device, and nobody makes room for the other", "[plan]") {
  const ModelSpec spec = SmallSpec();
  MemoryPlanInput input = SmallInput();
  input.apart = true;
  input.free_cache_engine = "false";
  const MemoryPlan plan = PlanMemory(spec, input);
  REQUIRE(plan.fits());
  REQUIRE(plan.sleep_level == 0);
  for (const PlannedPhase& phase : plan.phases) {
    REQUIRE(plan.DeviceBytes(phase) == std::max(plan.Bytes(phase, true), plan.Bytes(phase, false)));
    REQUIRE(plan.DeviceBytes(phase) <= plan.peak_bytes());
    // The rollout serves in every phase, with all that it has.
    REQUIRE(plan.Bytes(phase, false) == plan.Bytes(plan.phases.front(), false));
  }
  REQUIRE(plan.Find("sleep") == nullptr);
  REQUIRE(plan.Find("drain") != nullptr);

  // A device that holds one role at a time: too small for both, large enough for each.
  input.device_bytes = plan.peak_bytes();
  const MemoryPlan tight = PlanMemory(spec, input);
  REQUIRE(tight.fits());
  input.apart = false;
  REQUIRE_FALSE(PlanMemory(spec, input).fits());

  const auto back = MemoryPlanFromJson(MemoryPlanToJson(plan));
  REQUIRE(back.ok());
  REQUIRE(back->apart);
  REQUIRE(back->peak_bytes() == plan.peak_bytes());
}

TEST_CASE("The plan knows what ranks, a reference, offload and the data type add", "[plan]") {
  const ModelSpec spec = SmallSpec();
  MemoryPlanInput input = SmallInput();
  const int64_t parameters = spec.parameters();
  const MemoryPlan one = PlanMemory(spec, input);
  REQUIRE(Line(one, "train", true, "gradients") == RegionBytes(4 * parameters));
  REQUIRE(Line(one, "train", true, "gather") == RegionBytes(WeightBytes(spec)));
  REQUIRE(Line(one, "train", true, "reference") == 0);

  input.trainer.pairs = 2;
  input.trainer.reference = true;
  const MemoryPlan two = PlanMemory(spec, input);
  const int64_t shard = ShardParameters(spec, 0, 2);
  REQUIRE(Line(two, "train", true, "gradients") == RegionBytes(4 * shard) +
                                                       RegionBytes(4 * GlobalParameters(spec)) +
                                                       RegionBytes(4 * LayerParameters(spec)));
  REQUIRE(Line(two, "reference", true, "reference") == RegionBytes(2 * shard));

  input.trainer.element_bytes = 4;
  const MemoryPlan wide = PlanMemory(spec, input);
  REQUIRE(Line(wide, "train", true, "weights") == 0);  // the master is what is gathered
  REQUIRE(Line(wide, "train", true, "reference") == RegionBytes(4 * shard));

  input.trainer.element_bytes = 2;
  input.trainer.offload_moments = true;
  const MemoryPlan offloaded = PlanMemory(spec, input);
  REQUIRE(offloaded.Bytes(*offloaded.Find("train")) ==
          two.Bytes(*two.Find("train")) - 2 * RegionBytes(4 * shard));
  REQUIRE(Line(offloaded, "train", true, "optimizer") == 8 * shard);  // in a file
}

TEST_CASE("Activations are kept where they fit, and are of no more tokens than there are",
          "[plan]") {
  const ModelSpec spec = SmallSpec();
  MemoryPlanInput input = SmallInput();
  const MemoryPlan kept = PlanMemory(spec, input);
  REQUIRE_FALSE(kept.recompute);
  input.recompute = Recompute::kAlways;
  const MemoryPlan recomputed = PlanMemory(spec, input);
  REQUIRE(recomputed.recompute);
  REQUIRE(Line(recomputed, "train", true, "activations") <=
          Line(kept, "train", true, "activations"));
  input.recompute = Recompute::kAuto;
  input.device_bytes = 10 << 20;  // too little for all of them
  REQUIRE(PlanMemory(spec, input).recompute);
  input.train_limits.micro_batch_tokens = 100000;
  const MemoryPlan bounded = PlanMemory(spec, input);
  input.train_limits.micro_batch_tokens = 200000;
  REQUIRE(Line(PlanMemory(spec, input), "train", true, "activations") ==
          Line(bounded, "train", true, "activations"));
}

TEST_CASE("A trainer that holds too much gives back before the sync", "[plan]") {
  const ModelSpec spec = SmallSpec();
  MemoryPlanInput input = SmallInput();
  REQUIRE_FALSE(PlanMemory(spec, input).tight);
  input.memory_utilization = 0.895;
  input.max_num_seqs = 1;
  const MemoryPlan tight = PlanMemory(spec, input);
  REQUIRE(tight.tight);
  REQUIRE(Line(tight, "sync", true, "gather") == 0);
  REQUIRE(Line(tight, "generate", true, "activations") == 0);
  REQUIRE(Line(tight, "train", true, "gather") > 0);
}

TEST_CASE("A pool without room for one sequence is said, with the keys", "[plan]") {
  MemoryPlanInput input = SmallInput();
  input.device_bytes = 4 << 20;
  const MemoryPlan plan = PlanMemory(SmallSpec(), input);
  REQUIRE_FALSE(plan.fits());
  REQUIRE(plan.problem.find("rollout.gpu_memory_utilization") != std::string::npos);
  REQUIRE(plan.problem.find("would have to be 0.") != std::string::npos);
  // What it would have to be is enough.
  input.memory_utilization = plan.least_utilization;
  REQUIRE(PlanMemory(SmallSpec(), input).problem.empty());
  input.memory_utilization = 0.5;
  input.device_bytes = 1 << 20;
  const MemoryPlan tiny = PlanMemory(SmallSpec(), input);
  REQUIRE(tiny.least_utilization > 1);
  REQUIRE(tiny.problem.find("would have to be") == std::string::npos);
  REQUIRE(tiny.problem.find("the whole device has no room") != std::string::npos);
}

TEST_CASE("The probe has memory of its own size, whatever a step scores", "[plan]") {
  const ModelSpec spec = SmallSpec();
  MemoryPlanInput input = SmallInput();
  input.probe = true;
  input.memory_utilization = 0.895;  // nothing is kept from phase to phase
  input.max_num_seqs = 1;
  input.score_limits.samples = 3200;
  input.score_limits.micro_batch_tokens = 1 << 20;
  // A step is scored by no pass: its size is of no account.
  input.probe_limits = {.micro_batch_tokens = 1024,
                        .samples = 2,
                        .groups = 2,
                        .prompt_tokens = 62,
                        .response_tokens = 4,
                        .sequence_tokens = 66};
  const auto arena = [&](const BatchLimits& limits) {
    return RegionBytes(PlaceMicroBatch(spec, 2, LargestMicroBatch(limits), Keep::kNothing).end);
  };
  const MemoryPlan plan = PlanMemory(spec, input);
  REQUIRE(plan.tight);
  REQUIRE(Line(plan, "probe", true, "activations") == arena(input.probe_limits));
  REQUIRE(plan.Find("compare") == nullptr);
  // A pass that compares all of a step has a step's size.
  MemoryPlanInput compared = input;
  compared.compare = true;
  REQUIRE(Line(PlanMemory(spec, compared), "compare", true, "activations") ==
          arena(input.score_limits));
  REQUIRE(Line(PlanMemory(spec, compared), "compare", true, "gradients") == 0);
  // One of the next batch finds the gradients of this one, and rollouts that are awake.
  compared.compares_next = compared.apart = true;
  const MemoryPlan ahead = PlanMemory(spec, compared);
  REQUIRE(Line(ahead, "compare", true, "activations") >= arena(input.score_limits));
  REQUIRE(Line(ahead, "compare", true, "gradients") == Line(ahead, "train", true, "gradients"));
  REQUIRE(Line(ahead, "compare", false, "kv_cache") == Line(ahead, "generate", false, "kv_cache"));
  // Until that batch is complete the trainer has what training takes or, where a rollout is sent
  // its weights again, gradients and slots.
  REQUIRE(ahead.tight);
  REQUIRE(ahead.Bytes(*ahead.Find("wait_generate"), true) ==
          ahead.Bytes(*ahead.Find("train"), true));
  REQUIRE(PlanMemory(spec, input).Find("wait_generate") == nullptr);
  compared.slot_bytes = 1 << 16;
  compared.slots = 1 << 10;
  compared.score_limits = compared.train_limits = compared.probe_limits;  // small batches
  const MemoryPlan resending = PlanMemory(spec, compared);
  INFO(MemoryPlanToJson(resending));
  REQUIRE(Line(resending, "wait_generate", true, "gradients") > 0);
  // A mini-batch smaller than the probe: the memory that the probe took stays for it.
  input.train_limits.samples = input.train_limits.groups = 1;
  input.train_limits.prompt_tokens = input.train_limits.response_tokens = 1;
  input.probe_limits.samples = input.probe_limits.groups = 200;
  input.probe_limits.micro_batch_tokens = 1 << 20;
  const MemoryPlan small = PlanMemory(spec, input);
  REQUIRE(Line(small, "train", true, "activations") == arena(input.probe_limits));
}

TEST_CASE("What checks and checkpoints gather rows into is planned", "[plan]") {
  const ModelSpec spec = SmallSpec();
  MemoryPlanInput input = SmallInput();
  REQUIRE(PlanMemory(spec, input).Find("check") == nullptr);
  input.check = input.export_model = true;
  for (const int64_t pairs : {1, 2}) {
    input.trainer.pairs = pairs;
    const MemoryPlan plan = PlanMemory(spec, input);
    for (const char* phase : {"check", "save"}) {
      // A range of rows is less than a page.
      REQUIRE(Line(plan, phase, true, "gather") ==
              Line(plan, "generate", true, "gather") + RegionBytes(1));
      REQUIRE(Line(plan, phase, false, "kv_cache") > 0);
    }
    REQUIRE(plan.phases[plan.peak].phase == "save");
  }
  input.export_model = false;
  const MemoryPlan state_only = PlanMemory(spec, input);
  REQUIRE(state_only.Bytes(*state_only.Find("save")) ==
          state_only.Bytes(*state_only.Find("generate")));
}

TEST_CASE("A plan for a GPU counts what the driver takes, and the ledgers do not", "[plan]") {
  const ModelSpec spec = SmallSpec();
  MemoryPlanInput input = SmallInput();
  const MemoryPlan host = PlanMemory(spec, input);
  input.host_is_device = false;
  input.device_bytes = 4 * kGib;
  const MemoryPlan plan = PlanMemory(spec, input);
  REQUIRE(host.Find("start") == nullptr);
  REQUIRE(plan.phases.front().phase == "start");
  for (const PlannedPhase& phase : plan.phases) {
    REQUIRE(Line(plan, phase.phase, true, kDriverTag) == kCudaContextBytes);
    REQUIRE(Line(plan, phase.phase, false, kDriverTag) > kCudaContextBytes);  // and graphs
    REQUIRE(plan.LedgerBytes(phase) == plan.Bytes(phase) -
                                           Line(plan, phase.phase, true, kDriverTag) -
                                           Line(plan, phase.phase, false, kDriverTag));
  }
  for (const PlannedPhase& phase : host.phases) {
    REQUIRE(host.LedgerBytes(phase) == host.Bytes(phase));
  }
  REQUIRE(Line(plan, "start", true, "workspace") == kLtProofBytes);
  REQUIRE(Line(plan, "train", true, "workspace") > 0);
  // One block more than a CPU's, which only fills steps up.
  REQUIRE(Line(plan, "generate", false, "kv_cache") ==
          RegionBytes((64 * KvBlocksFor(256) + 1) * KvBlockBytesOfAllLayers(spec)));
  REQUIRE(plan.problem.empty());

  // What is offloaded lies in the host's pinned memory, whole pages of it, and in no file.
  input.trainer.offload_moments = input.trainer.offload_master = true;
  const MemoryPlan offloaded = PlanMemory(spec, input);
  for (const MemoryLine& line : offloaded.Find("train")->lines) {
    REQUIRE(line.location != Location::kFile);
    if (line.location != Location::kHost || !line.trainer) continue;
    REQUIRE(line.bytes % RegionBytes(1) == 0);
  }
  REQUIRE(Line(offloaded, "train", true, "optimizer") == 2 * RegionBytes(4 * spec.parameters()));
  REQUIRE(offloaded.Bytes(*offloaded.Find("train")) < plan.Bytes(*plan.Find("train")));
}

TEST_CASE("What the driver takes makes no trainer give back its memory", "[plan]") {
  MemoryPlanInput input = SmallInput();
  input.host_is_device = false;
  input.device_bytes = kGib;  // less than two contexts of half a GiB
  input.memory_utilization = 0.5;
  const MemoryPlan plan = PlanMemory(SmallSpec(), input);
  REQUIRE_FALSE(plan.fits());
  REQUIRE_FALSE(plan.tight);
}

TEST_CASE("A plan survives JSON", "[plan]") {
  MemoryPlanInput input = SmallInput();
  input.trainer.offload_master = true;
  input.free_cache_engine = "true";
  const MemoryPlan plan = PlanMemory(SmallSpec(), input);
  const auto back = MemoryPlanFromJson(MemoryPlanToJson(plan));
  REQUIRE(back.ok());
  REQUIRE(MemoryPlanToJson(*back) == MemoryPlanToJson(plan));
  REQUIRE(back->peak_bytes() == plan.peak_bytes());
  input.host_is_device = false;
  const MemoryPlan gpu = PlanMemory(SmallSpec(), input);
  const auto same = MemoryPlanFromJson(MemoryPlanToJson(gpu));
  REQUIRE(same.ok());
  REQUIRE(MemoryPlanToJson(*same) == MemoryPlanToJson(gpu));
  REQUIRE(same->LedgerBytes(same->phases.back()) == gpu.LedgerBytes(gpu.phases.back()));
  REQUIRE_FALSE(MemoryPlanFromJson("{}").ok());
  REQUIRE_FALSE(MemoryPlanFromJson("no").ok());
}

}  // namespace tandem
