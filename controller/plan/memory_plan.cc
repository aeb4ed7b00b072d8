#include "controller/plan/memory_plan.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "common/memory/cpu_scratch.h"
#include "common/memory/cuda_memory.h"
#include "common/memory/cuda_scratch.h"
#include "common/memory/memory_formulas.h"

namespace tandem {
namespace {

// A rollout stays awake during training only if the peak is at most this share of the device: the
// processes themselves need the rest.
constexpr double kShareKept = 0.9;

// Computes the memory of each phase from the parts that the two workers hold.
class Planner {
 public:
  Planner(const ModelSpec& spec, const MemoryPlanInput& input) : spec_(spec), input_(input) {
    spec_.adapters = input.adapters;
    kept_ = TrainerKeptBytes(input.device_bytes, input.apart ? 0 : input.memory_utilization);
    input_.trainer.gather.kept_bytes = kept_;
    input_.trainer.gpu = !input.host_is_device;
    trainer_ = TrainerBytes(spec_, input_.trainer);
    const BatchShape train = LargestMicroBatch(input_.train_limits);
    keep_ = KeepForBackward(spec_, width(), train, input_.recompute,
                            ActivationBudget(trainer_, input_.device_bytes));
    train_arena_ = ArenaBytes(train, keep_);
    for (const auto& [runs, limits, arena] : Scored()) {
      if (runs) *arena = ArenaBytes(LargestMicroBatch(*limits), Keep::kNothing);
    }
    kept_arena_ = std::max({train_arena_, score_arena_, probe_arena_});
    input_.host_is_device ? PlanScratch() : PlanCuda();
    weights_ = RegionBytes(WeightBytes(spec_, width()));
    activations_ = RegionBytes(PlaceRolloutBatch(spec_, width(), input_.batched_tokens).end);
  }

  MemoryPlan Plan(int sleep_level) {
    plan_ = {.device_bytes = input_.device_bytes,
             .host_is_device = input_.host_is_device,
             .apart = input_.apart,
             .sleep_level = sleep_level,
             .recompute = keep_ == Keep::kLayerInputs};
    PlanKv();
    plan_.tight = Sum(Training(kept_arena_)) > kept_;
    AddPhases();
    FindPeak();
    return plan_;
  }

 private:
  using Lines = std::vector<MemoryLine>;

  int64_t width() const { return input_.trainer.element_bytes; }
  // A kind of pass without backward: whether the run makes it, its batch limits, and its memory.
  struct ScoredPass {
    bool runs;
    const BatchLimits* limits;
    int64_t* arena;
  };
  std::array<ScoredPass, 2> Scored() {
    return {{{input_.trainer.reference || input_.old_log_probs || input_.compare,
              &input_.score_limits, &score_arena_},
             {input_.probe, &input_.probe_limits, &probe_arena_}}};
  }
  int64_t ArenaBytes(const BatchShape& shape, Keep keep) const {
    return RegionBytes(PlaceMicroBatch(spec_, width(), shape, keep).end);
  }

  void PlanScratch() {
    ScratchOptions options{width(), input_.threads.trainer, input_.max_model_len,
                           input_.batched_tokens, input_.adapters_drop};
    BatchShape largest = LargestMicroBatch(input_.train_limits);
    for (const auto& [runs, limits, arena] : Scored()) {
      if (runs) largest.scored = std::max(largest.scored, LargestMicroBatch(*limits).scored);
    }
    trainer_scratch_ = Workspace(true, {{"", TrainerScratchBytes(spec_, options, largest)}});
    options.threads = input_.threads.rollout;
    rollout_scratch_ =
        Workspace(false, {{"", RolloutScratchBytes(spec_, options, input_.filtered)}});
  }

  static Lines Parts(bool trainer, const char* tag, const std::vector<CudaPart>& parts) {
    Lines lines;
    for (const auto& [what, bytes] : parts) {
      if (bytes > 0) lines.push_back({trainer, tag, Location::kDevice, bytes, what});
    }
    return lines;
  }
  static Lines Workspace(bool trainer, const std::vector<CudaPart>& parts) {
    return Parts(trainer, "workspace", parts);
  }

  void PlanCuda() {
    CudaTrainerOptions trainer{.sequence_tokens = input_.max_model_len,
                               .pairs = input_.trainer.pairs,
                               .recompute = keep_ == Keep::kLayerInputs,
                               .train = input_.train_limits};
    for (const auto& [runs, limits, arena] : Scored()) {
      if (runs) trainer.scored.push_back(*limits);
    }
    const CudaRolloutOptions rollout{.sequence_tokens = input_.max_model_len,
                                     .sequences = input_.max_num_seqs,
                                     .batched_tokens = input_.batched_tokens};
    trainer_scratch_ = Workspace(true, TrainerCudaScratch(spec_, trainer));
    rollout_scratch_ = Workspace(false, RolloutCudaScratch(spec_, rollout));
    driver_ = Parts(true, kDriverTag, TrainerDriverBytes(trainer));
    Append(Parts(false, kDriverTag, RolloutDriverBytes(spec_, rollout)), driver_);
  }

  static void Append(const Lines& lines, Lines& to) {
    to.insert(to.end(), lines.begin(), lines.end());
  }

  void PlanKv() {
    const KvPoolPlan pool{input_.memory_utilization, input_.device_bytes, weights_,
                          input_.max_num_seqs, input_.max_model_len};
    const int64_t blocks = KvPoolBlocks(spec_, width(), pool);
    // A GPU's pool has one more block, for the padding rows of a step.
    const int64_t held = blocks + (input_.host_is_device ? 0 : 1);
    kv_ = blocks > 0 ? RegionBytes(held * KvBlockBytesOfAllLayers(spec_, width())) : 0;
    const int64_t least = KvBlocksFor(input_.max_model_len);
    plan_.least_utilization = LeastUtilization(pool, least);
    if (blocks >= least) return;
    const std::string remedy =
        plan_.least_utilization <= 1
            ? fmt::format("that would have to be {:g} at least", plan_.least_utilization)
            : "the whole device has no room for them; take a larger one, a smaller model or a "
              "shorter rollout.max_model_len";
    plan_.problem = fmt::format(
        "the KV pool cannot hold one sequence of rollout.max_model_len={} tokens: it needs {} "
        "blocks, and next to the weights only {} fit in "
        "rollout.gpu_memory_utilization={:g}; {}",
        input_.max_model_len, least, blocks, input_.memory_utilization, remedy);
  }

  // Rounded up to hundredths, as a user would write the key.
  double LeastUtilization(KvPoolPlan pool, int64_t least) const {
    const auto needed =
        static_cast<double>(weights_ + least * KvBlockBytesOfAllLayers(spec_, width()));
    double hundredths = std::ceil(100 * needed / static_cast<double>(input_.device_bytes));
    pool.memory_utilization = hundredths / 100;
    // The pool rounds blocks down, which may need a little more.
    while (FittingKvBlocks(spec_, width(), pool) < least) {
      pool.memory_utilization = ++hundredths / 100;
    }
    return pool.memory_utilization;
  }

  int64_t Sum(const Lines& lines) const {
    int64_t bytes = 0;
    for (const MemoryLine& line : lines) bytes += plan_.Bytes(line);
    return bytes;
  }

  // The memory that the trainer always holds.
  Lines Model() const {
    Lines lines;
    // On a GPU, offloaded memory is pinned host memory, allocated in complete pages.
    const bool files = input_.host_is_device;
    const auto add = [&](const char* tag, int64_t bytes, int64_t offloaded, int64_t arrays = 1) {
      if (bytes > 0) lines.push_back({true, tag, Location::kDevice, bytes});
      if (offloaded == 0) return;
      const int64_t pinned = arrays * RegionBytes(offloaded / arrays);
      lines.push_back(
          {true, tag, files ? Location::kFile : Location::kHost, files ? offloaded : pinned});
    };
    add("master", trainer_.master, trainer_.master_file);
    add("weights", trainer_.weights, 0);
    add("reference", trainer_.reference, trainer_.reference_file);
    add("optimizer", trainer_.optimizer, trainer_.optimizer_file, 2);
    Append(trainer_scratch_, lines);
    if (input_.slots > 0 && SlotsStay()) lines.push_back(Bucket());
    return lines;
  }
  Lines Scoring(int64_t arena) const {
    Lines lines = Model();
    if (trainer_.gather > 0) lines.push_back({true, "gather", Location::kDevice, trainer_.gather});
    lines.push_back({true, "activations", Location::kDevice, arena});
    return lines;
  }
  Lines Training(int64_t arena) const {
    Lines lines = Scoring(arena);
    lines.push_back({true, "gradients", Location::kDevice, trainer_.gradients});
    return lines;
  }
  Lines Optimizing(int64_t arena) const {
    Lines lines = Training(arena);
    if (trainer_.master_staging > 0) {
      lines.push_back({true, "master", Location::kDevice, trainer_.master_staging});
    }
    if (trainer_.optimizer_staging > 0) {
      lines.push_back({true, "optimizer", Location::kDevice, trainer_.optimizer_staging});
    }
    if (trainer_.digest_scratch > 0) {
      lines.push_back(
          {true, "gather", Location::kDevice, trainer_.digest_scratch, "digests of adapters"});
    }
    return lines;
  }

  Lines Serving() const {
    Lines lines = {{false, "weights", Location::kDevice, weights_},
                   {false, "kv_cache", Location::kDevice, kv_},
                   {false, "activations", Location::kDevice, activations_}};
    Append(rollout_scratch_, lines);
    return lines;
  }
  // The rollout's weights without a KV pool: on the device, on the host, or both while level 1
  // moves them.
  Lines WeightsOnly(bool device, bool host) const {
    Lines lines = rollout_scratch_;
    if (device) lines.push_back({false, "weights", Location::kDevice, weights_});
    if (host) lines.push_back({false, "weights", Location::kHost, weights_});
    return lines;
  }
  Lines Asleep() const {
    return plan_.sleep_level == 0 ? Serving() : WeightsOnly(false, plan_.sleep_level == 1);
  }
  Lines FallingAsleep() const {
    const Lines moving = WeightsOnly(true, true);
    return plan_.sleep_level == 1 && Sum(moving) > Sum(Serving()) ? moving : Serving();
  }

  bool SlotsStay() const { return Bucket().bytes <= KeptSlotBytes(kept_); }
  MemoryLine Bucket() const {
    // A slot has the size of the fullest bucket.
    const int64_t all = width() * (spec_.parameters() + input_.trainer.adapters);
    const int64_t buckets = (all + input_.slot_bytes - 1) / input_.slot_bytes;
    const int64_t bytes = buckets == 1 && input_.slots > 0
                              ? all + (kBucketSlack + int64_t{256} * std::ssize(HfTensors(spec_)))
                              : std::min(buckets, input_.slots) * input_.slot_bytes;
    return {true, "bucket", input_.host_is_device ? Location::kHost : Location::kDevice, bytes};
  }

  void Add(const std::string& phase, Lines trainer, const Lines& rollout) {
    Append(rollout, trainer);
    Append(driver_, trainer);
    plan_.phases.push_back({phase, std::move(trainer)});
  }
  // The memory of a GPU worker before it allocates anything else. cuBLASLt needs no workspace
  // later, because only algorithms without one are selected.
  static Lines Starting(bool trainer) {
    return {{trainer, "workspace", Location::kDevice, kLtProofBytes, "proof of cuBLASLt"}};
  }

  Lines AtRest() const { return plan_.tight ? Model() : Training(kept_arena_); }
  Lines Scores(int64_t arena) const { return plan_.tight ? Scoring(arena) : Training(kept_arena_); }
  // The trainer's memory at rest and the rows that it gathers from the shards.
  Lines Reading() const {
    Lines lines = AtRest();
    lines.push_back({true, "gather", Location::kDevice, trainer_.row_scratch, "ranges of rows"});
    return lines;
  }

  // The rollout's memory while it is sent weights.
  Lines Receiving() const {
    Lines lines = plan_.sleep_level == 0 ? Serving() : WeightsOnly(true, plan_.sleep_level == 1);
    if (input_.rollout_slots) {
      lines.push_back({false, "bucket", Location::kHost, Bucket().bytes});
    }
    return lines;
  }
  // Until the next batch is complete, before the update. A rollout that was lost is sent its
  // weights again meanwhile: the trainer releases what only training needs, but for the gradients.
  Lines AwaitingBatch() const {
    const Lines waiting = Training(kept_arena_);
    Lines sending = AtRest();
    if (plan_.tight) {
      sending.push_back({true, "gradients", Location::kDevice, trainer_.gradients});
    }
    if (!SlotsStay()) sending.push_back(Bucket());
    return Sum(sending) > Sum(waiting) ? sending : waiting;
  }

  void AddPhases() {
    const Lines at_rest = AtRest();
    if (!input_.host_is_device) Add("start", Starting(true), Starting(false));
    if (input_.probe) Add("verify", at_rest, Serving());
    Add("generate", at_rest, Serving());
    if (!input_.apart) Add("sleep", at_rest, FallingAsleep());
    if (input_.probe) Add("probe", Scores(probe_arena_), Asleep());
    // These passes run after the probe, whose arena is kept.
    const int64_t scoring = std::max(probe_arena_, score_arena_);
    if (input_.old_log_probs) Add("old_log_prob", Scores(scoring), Asleep());
    if (input_.trainer.reference) Add("reference", Scores(scoring), Asleep());
    if (input_.compare && !input_.compares_next) Add("compare", Scores(scoring), Asleep());
    Add("train", Training(kept_arena_), Asleep());
    // The gradients wait for their update meanwhile, and no rollout sleeps.
    if (input_.compares_next) {
      Add("wait_generate", AwaitingBatch(), Receiving());
      Add("compare", Training(kept_arena_), Serving());
    }
    Add("optimize", Optimizing(kept_arena_), Asleep());
    if (input_.apart) Add("drain", Training(kept_arena_), Serving());
    Lines sync = at_rest;
    if (!SlotsStay()) sync.push_back(Bucket());
    Add("sync", sync, Receiving());
    // The API may request a check between steps as well, when the KV pool is allocated.
    if (input_.check) Add("check", Reading(), Serving());
    Add("wake", at_rest, Serving());
    Add("save", input_.export_model ? Reading() : at_rest, Serving());
  }

  void FindPeak() {
    // If the trainer keeps all memory, phases have equal sums; the peak is then the first of
    // `needing`, a phase that uses the memory. Every run has a save phase.
    const std::array<const char*, 4> needing = {"train", "optimize", "generate", "save"};
    const auto rank = [&](size_t i) {
      return std::find(needing.begin(), needing.end(), plan_.phases[i].phase) - needing.begin();
    };
    for (size_t i = 0; i < plan_.phases.size(); ++i) {
      const int64_t bytes = plan_.DeviceBytes(plan_.phases[i]), most = plan_.peak_bytes();
      if (bytes > most || (bytes == most && rank(i) < rank(plan_.peak))) plan_.peak = i;
    }
  }

  static constexpr int64_t kBucketSlack = 4096;

  ModelSpec spec_;  // with the run's adapters
  MemoryPlanInput input_;
  int64_t kept_ = 0;  // bytes that the trainer may hold while its rollout generates
  TrainerMemory trainer_;
  Keep keep_ = Keep::kEverything;
  int64_t train_arena_ = 0, score_arena_ = 0, probe_arena_ = 0;
  int64_t kept_arena_ = 0;  // the largest of the three: each keeps its memory after it has run
  Lines trainer_scratch_, rollout_scratch_;
  Lines driver_;  // of both workers, present in every phase
  int64_t weights_ = 0, activations_ = 0, kv_ = 0;
  MemoryPlan plan_;
};

}  // namespace

MemoryPlan PlanMemory(const ModelSpec& spec, const MemoryPlanInput& input) {
  Planner planner(spec, input);
  if (input.free_cache_engine == "true") return planner.Plan(input.sleep_level);
  MemoryPlan awake = planner.Plan(0);
  const double most = kShareKept * static_cast<double>(input.device_bytes);
  if (input.free_cache_engine == "false" || static_cast<double>(awake.peak_bytes()) <= most) {
    return awake;
  }
  return planner.Plan(input.sleep_level);
}

std::string MemoryPlanToJson(const MemoryPlan& plan) {
  nlohmann::json phases = nlohmann::json::array();
  for (const PlannedPhase& phase : plan.phases) {
    nlohmann::json lines = nlohmann::json::array();
    for (const MemoryLine& line : phase.lines) {
      lines.push_back({{"role", line.trainer ? "trainer" : "rollout"},
                       {"tag", line.tag},
                       {"location", LocationName(line.location)},
                       {"bytes", line.bytes}});
      if (!line.part.empty()) lines.back()["part"] = line.part;
    }
    phases.push_back(
        {{"phase", phase.phase}, {"bytes", plan.DeviceBytes(phase)}, {"lines", lines}});
  }
  const nlohmann::json json = {
      {"device_bytes", plan.device_bytes},
      {"host_is_device", plan.host_is_device},
      {"apart", plan.apart},
      {"fits", plan.fits()},
      {"peak_phase", plan.phases.empty() ? "" : plan.phases[plan.peak].phase},
      {"peak_bytes", plan.peak_bytes()},
      {"sleep_level", plan.sleep_level},
      {"recompute", plan.recompute},
      {"tight", plan.tight},
      {"problem", plan.problem},
      {"phases", phases}};
  return json.dump();
}

absl::StatusOr<MemoryPlan> MemoryPlanFromJson(const std::string& text) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    MemoryPlan plan;
    plan.device_bytes = json.at("device_bytes").get<int64_t>();
    plan.host_is_device = json.at("host_is_device").get<bool>();
    plan.apart = json.value("apart", false);  // an older build's
    plan.sleep_level = json.at("sleep_level").get<int>();
    plan.recompute = json.at("recompute").get<bool>();
    plan.tight = json.at("tight").get<bool>();
    plan.problem = json.at("problem").get<std::string>();
    for (const nlohmann::json& phase : json.at("phases")) {
      PlannedPhase planned{phase.at("phase").get<std::string>(), {}};
      for (const nlohmann::json& line : phase.at("lines")) {
        planned.lines.push_back({line.at("role").get<std::string>() == "trainer",
                                 line.at("tag").get<std::string>(),
                                 ParseLocation(line.at("location").get<std::string>()),
                                 line.at("bytes").get<int64_t>(), line.value("part", "")});
      }
      if (planned.phase == json.at("peak_phase").get<std::string>()) {
        plan.peak = plan.phases.size();
      }
      plan.phases.push_back(std::move(planned));
    }
    return plan;
  } catch (const nlohmann::json::exception& error) {
    return InvalidArgument("this is not a memory plan: {}", error.what());
  }
}

}  // namespace tandem
