// The memory plan equals the memory that a trainer allocates, tag by tag and byte for byte.
#include <cstring>

#include "common/memory/memory_formulas.h"
#include "common/memory/worker_memory.h"
#include "common/model_spec/row_ranges.h"
#include "tests/fakes/guarded_backend.h"
#include "tests/trainer_worker/trainer_ranks.h"
#include "trainer_worker/weight_sync/expected_weights.h"

namespace tandem {
namespace {

using namespace tandem::testing;

constexpr int64_t kMib = 1 << 20;

int64_t Current(const LedgerSnapshot& ledger, const std::string& tag, Location location) {
  for (const LedgerEntry& entry : ledger.entries) {
    if (entry.tag == tag && entry.location == location) return entry.current_bytes;
  }
  return 0;
}

int64_t DevicePeak(const LedgerSnapshot& ledger, const std::string& tag) {
  for (const LedgerEntry& entry : ledger.entries) {
    if (entry.tag == tag && entry.location == Location::kDevice) return entry.peak_bytes;
  }
  return 0;
}

// Weights of some MiB: what is forgotten would not hide in the rounding of regions.
struct PlannedMemoryFixture {
  PlannedMemoryFixture() {
    options.model_dir = (dir.path() / "model").string();
    REQUIRE(WriteTinyModel(options.model_dir, {.model_type = "qwen3",
                                               .vocab_size = 9000,
                                               .hidden_size = 200,
                                               .num_layers = 4,
                                               .num_heads = 5,
                                               .num_kv_heads = 1,
                                               .head_dim = 40,
                                               .intermediate_size = 1100,
                                               .tie_word_embeddings = false})
                .ok());
    options.train_limits = {.micro_batch_tokens = 256,
                            .samples = 6,
                            .groups = 6,
                            .prompt_tokens = 40,
                            .response_tokens = 40,
                            .sequence_tokens = 80};
  }
  TempDir dir;
  TrainerRanksOptions options;
  std::vector<Sample> samples = RandomSamples(6, 3);
};

void RequireHostAsPlanned(int world,
                          const TrainerRanksOptions& options,
                          std::vector<Sample> samples) {
  TrainerRanks group(world, options);
  const MiniBatchRequest request = RequestFor(samples);
  std::vector<LedgerSnapshot> ledgers(static_cast<size_t>(world));
  group.RunOk([&](Rank& rank, int index) -> absl::Status {
    TANDEM_RETURN_IF_ERROR(rank.session->Train(request, Share(samples, index, world)).status());
    TANDEM_RETURN_IF_ERROR(rank.session->Step().status());
    ledgers[static_cast<size_t>(index)] = rank.ledger->Snapshot();
    return absl::OkStatus();
  });
  const ModelSpec& spec = group[0].session->spec();
  const auto width = static_cast<int64_t>(DTypeBytes(options.dtype));
  TrainerMemoryOptions plan{.pairs = world,
                            .element_bytes = width,
                            .offload_master = options.offload_master,
                            .offload_moments = options.offload_moments,
                            .gpu = !group[0].backend->device()->is_host(),
                            .gather = {.reshard = options.reshard,
                                       .prefetch = options.prefetch,
                                       .kept_bytes = options.kept_bytes}};
  if (options.lora.rank > 0) {
    LoraWeights& lora = LoraOf(group[0]);
    plan.adapters = lora.spec().parameters();
    plan.adapter_shard = lora.adapters().elements();
    plan.base_element_bytes = static_cast<int64_t>(DTypeBytes(lora.base().dtype()));
  }
  const TrainerMemory planned = TrainerBytes(spec, plan);
  const LedgerSnapshot& ledger = ledgers[0];
  INFO("ranks " << world);
  REQUIRE(Current(ledger, "master", Location::kDevice) == planned.master);
  REQUIRE(Current(ledger, "master", Location::kFile) == planned.master_file);
  REQUIRE(Current(ledger, "weights", Location::kDevice) == planned.weights);
  REQUIRE(Current(ledger, "optimizer", Location::kDevice) == planned.optimizer);
  REQUIRE(Current(ledger, "optimizer", Location::kFile) == planned.optimizer_file);
  REQUIRE(Current(ledger, "gradients", Location::kDevice) == planned.gradients);
  REQUIRE(Current(ledger, "gather", Location::kDevice) == planned.gather);
  if (options.lora.rank > 0) {
    REQUIRE(DevicePeak(ledger, "gather") == planned.gather + planned.digest_scratch);
  }
  REQUIRE(DevicePeak(ledger, "master") == planned.master + planned.master_staging);
  REQUIRE(DevicePeak(ledger, "optimizer") == planned.optimizer + planned.optimizer_staging);
  const Keep keep =
      options.recompute == Recompute::kAlways ? Keep::kLayerInputs : Keep::kEverything;
  const BatchShape largest = LargestMicroBatch(options.train_limits);
  REQUIRE(Current(ledger, "activations", Location::kDevice) ==
          RegionBytes(PlaceMicroBatch(spec, width, largest, keep).end));
  if (options.lora.rank == 0) REQUIRE(planned.master + planned.master_file > 4 * kMib);
}

}  // namespace

TEST_CASE("A trainer takes what is planned, on any number of ranks", "[trainer][memory]") {
  const PlannedMemoryFixture f;
  for (const int world : {1, 2, 3}) RequireHostAsPlanned(world, f.options, f.samples);
}

TEST_CASE("A trainer on a device takes what is planned, on any number of ranks",
          "[trainer][memory][device]") {
  PlannedMemoryFixture f;
  f.options.make_backend = []() -> std::unique_ptr<Backend> {
    return std::make_unique<GuardedBackend>(MakeHostBackend());
  };
  for (const int world : {1, 2, 3}) RequireHostAsPlanned(world, f.options, f.samples);
  // Tensors that lie in the shard as the ops read them.
  REQUIRE(WriteTinyModel(f.options.model_dir, {.vocab_size = 9000,
                                               .hidden_size = 128,
                                               .num_layers = 4,
                                               .head_dim = 32,
                                               .intermediate_size = 1100})
              .ok());
  for (const int world : {1, 2}) RequireHostAsPlanned(world, f.options, f.samples);
}

TEST_CASE("A trainer takes what is planned, however it gathers and recomputes",
          "[trainer][memory]") {
  PlannedMemoryFixture f;
  f.options.recompute = Recompute::kAlways;
  for (const Reshard reshard : {Reshard::kAuto, Reshard::kAlways, Reshard::kNever}) {
    for (const bool prefetch : {true, false}) {
      f.options.reshard = reshard;
      f.options.prefetch = prefetch;
      RequireHostAsPlanned(2, f.options, f.samples);
    }
  }
}

TEST_CASE("A trainer takes what is planned, offloaded and in float32", "[trainer][memory]") {
  PlannedMemoryFixture f;
  f.options.offload_moments = true;
  RequireHostAsPlanned(2, f.options, f.samples);
  f.options.offload_master = true;
  RequireHostAsPlanned(1, f.options, f.samples);
  RequireHostAsPlanned(2, f.options, f.samples);
  f.options.offload_master = f.options.offload_moments = false;
  f.options.dtype = DType::kFloat32;
  RequireHostAsPlanned(2, f.options, f.samples);
}

TEST_CASE("A trainer takes what is planned with adapters, on any number of ranks",
          "[trainer][memory][lora]") {
  PlannedMemoryFixture f;
  f.options.lora = {.rank = 64, .alpha = 64, .target_modules = {"all-linear"}};
  for (const int world : {1, 2, 3}) RequireHostAsPlanned(world, f.options, f.samples);
  f.options.offload_moments = true;
  RequireHostAsPlanned(2, f.options, f.samples);
  // A base that is stored in float32 stays so.
  REQUIRE(WriteTinyModel(f.options.model_dir, {.vocab_size = 9000, .float32 = true}).ok());
  RequireHostAsPlanned(1, f.options, f.samples);
}

TEST_CASE("A trainer on a device takes what is planned with adapters, on any number of ranks",
          "[trainer][memory][device][lora]") {
  PlannedMemoryFixture f;
  f.options.make_backend = []() -> std::unique_ptr<Backend> {
    return std::make_unique<GuardedBackend>(MakeHostBackend());
  };
  f.options.lora = {.rank = 64, .alpha = 64, .target_modules = {"all-linear"}};
  for (const int world : {1, 2, 3}) RequireHostAsPlanned(world, f.options, f.samples);
  // Where the shard is laid out for the ops it is still not what they read.
  REQUIRE(WriteTinyModel(f.options.model_dir, {.vocab_size = 9000,
                                               .hidden_size = 128,
                                               .num_layers = 4,
                                               .head_dim = 32,
                                               .intermediate_size = 1100})
              .ok());
  RequireHostAsPlanned(1, f.options, f.samples);
}

TEST_CASE("A trainer takes what is planned with adapters beside the base",
          "[trainer][memory][lora]") {
  PlannedMemoryFixture f;
  f.options.lora = {.rank = 64, .alpha = 64, .target_modules = {"all-linear"}, .merge = false};
  for (const int world : {1, 2, 3}) RequireHostAsPlanned(world, f.options, f.samples);
  // Every layer has room for what one of them has.
  f.options.lora.target_modules = {"q_proj", R"(.*layers\.2\.mlp\..*)"};
  f.options.recompute = Recompute::kAlways;
  for (const int world : {1, 2}) RequireHostAsPlanned(world, f.options, f.samples);
}

TEST_CASE("The probe takes memory of its own size, not a step's", "[trainer][memory]") {
  PlannedMemoryFixture f;
  f.options.probe_limits = f.options.train_limits;
  f.options.probe_limits.samples = f.options.probe_limits.groups = 2;
  f.options.score_limits = f.options.train_limits;
  f.options.score_limits.micro_batch_tokens = 4096;
  f.options.score_limits.samples = f.options.score_limits.groups = 40;
  TrainerRanks group(1, f.options);
  TrainingSession& session = *group[0].session;
  const auto arena = [&] {
    return Current(group[0].ledger->Snapshot(), "activations", Location::kDevice);
  };
  const auto planned = [&](const BatchLimits& limits) {
    const BatchShape shape = LargestMicroBatch(limits);
    return RegionBytes(PlaceMicroBatch(session.spec(), 2, shape, Keep::kNothing).end);
  };
  const std::vector<Sample> two(f.samples.begin(), f.samples.begin() + 2);
  REQUIRE(session.Score(two, LogProbPolicy::kProbe).ok());
  REQUIRE(arena() == planned(f.options.probe_limits));
  REQUIRE(session.Score(f.samples).ok());
  REQUIRE(arena() == planned(f.options.score_limits));
  REQUIRE(planned(f.options.score_limits) > planned(f.options.probe_limits));
}

TEST_CASE("What ranges of rows are gathered into is planned", "[trainer][memory]") {
  const PlannedMemoryFixture f;
  for (const int world : {1, 2}) {
    TrainerRanks group(world, f.options);
    const ModelSpec& spec = group[0].session->spec();
    group.RunOk([&](Rank& rank, int /*index*/) {
      return MasterWeights::Create(&rank.session->shard(), &rank.session->communicator(),
                                   rank.ledger.get(), {.scratch_bytes = RowScratchBytes(spec, 2)})
          .status();
    });
    REQUIRE(DevicePeak(group[0].ledger->Snapshot(), "gather") ==
            TrainerBytes(spec, {.pairs = world}).row_scratch);
  }
}

TEST_CASE("Memory for the largest micro-batch is held from the first on", "[trainer][memory]") {
  const PlannedMemoryFixture f;
  TrainerRanks group(1, f.options);
  Rank& rank = group[0];
  const std::vector<Sample> one(f.samples.begin(), f.samples.begin() + 1);
  REQUIRE(rank.session->Train(RequestFor(one), one).ok());
  const int64_t first = Current(rank.ledger->Snapshot(), "activations", Location::kDevice);
  REQUIRE(rank.session->Train(RequestFor(f.samples), f.samples).ok());
  REQUIRE(Current(rank.ledger->Snapshot(), "activations", Location::kDevice) == first);
  // Pages that no batch has touched cost nothing.
  REQUIRE(rank.ledger->Snapshot().resident_bytes < rank.ledger->Snapshot().memory_bytes);
}

}  // namespace tandem
