// A whole rollout on an emulated GPU: every kernel, region and graph that a real one would run.
#include <algorithm>
#include <cmath>
#include <functional>
#include <span>

#include <catch2/catch.hpp>

#include "common/backend/cpu_backend.h"
#include "common/backend/cuda_backend.h"
#include "common/base/philox.h"
#include "common/base/status.h"
#include "common/lora/lora_spec.h"
#include "tests/common/ops/cuda/linear/fake_lt.h"
#include "tests/emulator/emulated_cuda.h"
#include "tests/emulator/emulator.h"
#include "tests/fakes/fake_clock.h"
#include "tests/rollout_worker/engine_rig.h"
#include "tests/support/whole_forward.h"

namespace tandem {
namespace {

using namespace tandem::testing;
using emulator::EmulatedCuda;

TinyModelOptions GpuModel(const std::string& type) {
  TinyModelOptions model;
  model.model_type = type;
  model.num_heads = 2;
  model.num_kv_heads = 1;
  model.head_dim = 64;
  return model;
}

struct EmulatedFixture {
  explicit EmulatedFixture(const std::string& type, const LoraOptions& lora = {})
      : weights(GpuModel(type), DType::kBFloat16),
        cuda(new EmulatedCuda(emulator::OptionsFromEnvironment())) {
    backend = MakeCudaBackend(std::unique_ptr<CudaApi>(cuda), 0).value();
    RigOptions rig;
    rig.max_model_len = 160;
    rig.max_num_batched_tokens = 64;
    EngineOptions options = MakeEngineTestOptions(weights, rig);
    options.spec = WithAdapters(weights.spec, lora).value();
    options.backend = backend;
    options.load_weights = true;
    options.kv_blocks = 40;
    options.device_lost = [this](const absl::Status& why) { lost = why; };
    engine = Engine::Create(options).value();
  }
  int64_t Calls(const std::string& name) const {
    const std::vector<std::string> calls = cuda->calls();
    return std::count(calls.begin(), calls.end(), name);
  }

  TinyWeights weights;
  EmulatedCuda* const cuda;  // the backend's
  std::shared_ptr<Backend> backend;
  absl::Status lost;  // what the engine said of its device
  std::unique_ptr<Engine> engine;
};

// A loaded model with its own ops: what a trainer on this backend computes with.
struct LoadedModel {
  LoadedModel(Backend& backend, const TinyWeights& weights, const LoraOptions& lora = {})
      : spec(WithAdapters(weights.spec, lora).value()),
        device(backend.device()),
        ops(backend.MakeForwardOps(DType::kBFloat16).value()),
        layout(WeightLayout::Build(spec, DType::kBFloat16, ops->weight_format())),
        storage(WeightStorage::Create(device, &layout, nullptr).value()),
        held{.spec = spec, .storage = storage->data(), .vocab_limit = TinyTokenizerSize()} {
    REQUIRE(storage->Map().ok());
    const auto storage_ops = backend.MakeStorageOps(&layout, storage->data()).value();
    const int64_t before = emulator::KernelsRun();
    REQUIRE(storage->LoadCheckpoint(weights.dir.path().string(), weights.spec, *storage_ops).ok());
    kernels_of_load = emulator::KernelsRun() - before;
  }
  std::vector<float> LogProbs(const Sample& sample) const {
    return ForwardWhole(device, *ops, held, sample)->log_probs;
  }

  const ModelSpec spec;
  Device* const device;
  const std::unique_ptr<ForwardOps> ops;
  const WeightLayout layout;
  const std::unique_ptr<WeightStorage> storage;
  const HeldModel held;
  int64_t kernels_of_load = 0;
};

// Of a storage in memory that the host can write, as the emulator's is.
void FillAdapters(const WeightLayout& layout, std::byte* storage) {
  const std::span<const TensorPlace> places = layout.places();
  for (const TensorPlace& place : places.subspan(layout.base_tensors())) {
    std::vector<Bf16> values;
    for (int64_t i = 0; i < place.rows() * place.cols(); ++i) {
      const float uniform =
          RandomUniform(3, std::hash<std::string>()(place.name), static_cast<uint64_t>(i));
      values.push_back(ToBf16(0.4f * (uniform - 0.5f)));
    }
    layout.WriteRows(storage + layout.group_offset(place.layer), place, 0, place.rows(),
                     values.data());
  }
}

}  // namespace

TEST_CASE("on an emulated GPU decoding has the bits of one forward over the whole sample") {
  for (const std::string type : {"llama", "qwen2", "qwen3"}) {
    EmulatedFixture f(type);
    REQUIRE(f.engine->numerics().numerics_class.starts_with("cuda-sm80"));
    const SamplesById samples = GenerateAll(*f.engine, MixedRequests({9, 63, 70}, 2, 12));
    REQUIRE(samples.size() == 6);
    REQUIRE(f.Calls("LaunchGraph") > 0);
    const auto host = MakeCpuBackend(std::make_shared<ThreadPool>(1));
    const LoadedModel on_gpu(*f.backend, f.weights), on_host(*host, f.weights);
    for (const auto& [id, sample] : samples) {
      INFO(type << " sample " << id);
      REQUIRE(on_gpu.LogProbs(sample) == sample.log_probs);
      const std::vector<float> on_cpu = on_host.LogProbs(sample);
      for (size_t i = 0; i < on_cpu.size(); ++i) {
        REQUIRE(std::abs(on_cpu[i] - sample.log_probs[i]) < 0.05f);
      }
    }
  }
}

TEST_CASE("a GPU's kernels read no row of a checkpoint from the host's memory") {
  EmulatedFixture f("llama");
  REQUIRE(LoadedModel(*f.backend, f.weights).kernels_of_load == 0);
}

TEST_CASE("on an emulated GPU adapters beside the weights decode with the bits of one forward") {
  const LoraOptions all = {
      .rank = 5, .alpha = 10, .target_modules = {"all-linear"}, .merge = false};
  LoraOptions some = all;
  some.target_modules = {"k_proj", R"(.*layers\.1\.mlp\.up_proj)"};
  for (const auto& [type, lora] : {std::pair(std::string("qwen3"), all), {"llama", some}}) {
    EmulatedFixture f(type, lora);
    const auto host = MakeCpuBackend(std::make_shared<ThreadPool>(1));
    const LoadedModel on_gpu(*f.backend, f.weights, lora), on_host(*host, f.weights, lora);
    const LoadedModel base(*f.backend, f.weights);
    const std::vector<GenerationRequest> requests = MixedRequests({9, 70}, 2, 12);
    // Adapters that are zero are the base.
    for (const auto& [id, sample] : GenerateAll(*f.engine, requests)) {
      REQUIRE(base.LogProbs(sample) == sample.log_probs);
    }
    FillAdapters(f.engine->layout(), FindMemory(*f.engine).weights);
    FillAdapters(on_gpu.layout, on_gpu.storage->data());
    FillAdapters(on_host.layout, on_host.storage->data());
    f.cuda->ForgetCalls();
    const SamplesById samples = GenerateAll(*f.engine, requests);
    REQUIRE(f.Calls("LaunchGraph") > 0);
    double from_cpu = 0, from_base = 0;
    for (const auto& [id, sample] : samples) {
      INFO(type << " sample " << id);
      REQUIRE(on_gpu.LogProbs(sample) == sample.log_probs);
      const std::vector<float> on_cpu = on_host.LogProbs(sample), without = base.LogProbs(sample);
      for (size_t i = 0; i < on_cpu.size(); ++i) {
        from_cpu += std::pow(double{on_cpu[i]} - double{sample.log_probs[i]}, 2);
        from_base += std::pow(double{without[i]} - double{sample.log_probs[i]}, 2);
      }
    }
    // Roundings, and what adapters are for.
    REQUIRE(from_cpu > 0);
    REQUIRE(100 * from_cpu < from_base);
  }
}

TEST_CASE("a decode step waits for an emulated GPU once, with graphs and without") {
  // Its stream does nothing before it is waited for.
  auto* const cuda = new EmulatedCuda({.late_streams = 1});
  const auto backend = MakeCudaBackend(std::unique_ptr<CudaApi>(cuda), 0).value();
  const TinyWeights weights(GpuModel("qwen3"), DType::kBFloat16);
  const LoadedModel model(*backend, weights);
  const auto runner =
      ModelRunner::Create(backend->device(), weights.spec,
                          backend->MakeForwardOps(DType::kBFloat16).value(), TinyTokenizerSize(),
                          /*max_model_len=*/512, /*max_num_batched_tokens=*/300, nullptr)
          .value();
  const auto kv =
      KvCache::Create(backend->device(), weights.spec, DType::kBFloat16, 270, nullptr).value();
  REQUIRE(kv->Map().ok());
  REQUIRE(runner->MapActivations().ok());
  // More samples than one draw takes rows.
  for (const int64_t samples : {3, 260}) {
    RigOptions options;
    options.max_num_seqs = samples;
    options.max_num_batched_tokens = 300;
    Generator generator(MakeGeneratorOptions(options), runner.get(), kv.get());
    GenerationRequest request = MixedRequests({5}, samples, 6)[0];
    request.params.ignore_eos = true;
    const auto sink = std::make_shared<CollectingSink>();
    REQUIRE(generator.Submit(request, sink).ok());
    std::vector<int64_t> waits, graphs;
    while (generator.has_work()) {
      cuda->ForgetCalls();
      REQUIRE(generator.Step(model.storage->data(), 1).ok());
      const std::vector<std::string> calls = cuda->calls();
      waits.push_back(std::count(calls.begin(), calls.end(), "Synchronize"));
      graphs.push_back(std::count(calls.begin(), calls.end(), "LaunchGraph"));
    }
    REQUIRE(sink->samples.size() == static_cast<size_t>(samples));
    // The prompt, copies of its block beside the first tokens, then one graph a step. Until then
    // scratch may grow, which waits as well.
    REQUIRE(graphs == std::vector<int64_t>{0, 0, 1, 1, 1, 1});
    REQUIRE(std::vector<int64_t>(waits.begin() + 2, waits.end()) == std::vector<int64_t>(4, 1));
    for (const Sample& sample : {sink->samples.front(), sink->samples.back()}) {
      REQUIRE(model.LogProbs(sample) == sample.log_probs);
    }
  }
}

TEST_CASE("an emulated GPU's memory goes and comes back, and the same tokens with it") {
  EmulatedFixture f("llama");
  const std::vector<GenerationRequest> requests = MixedRequests({9, 40}, 2, 6);
  const SamplesById before = GenerateAll(*f.engine, requests);
  const int64_t used = f.cuda->used_bytes();
  const std::byte* const weights_at = FindMemory(*f.engine).weights;
  const auto digests = Digests(*f.engine).value();
  REQUIRE(digests.size() == f.weights.layout.places().size());
  const auto on_host = [&] {
    int64_t bytes = 0;
    for (const LedgerEntry& entry : f.engine->ledger().Snapshot().entries) {
      const bool copy = entry.tag == "weights" && entry.location == Location::kHost;
      bytes += copy ? entry.current_bytes : 0;
    }
    return bytes;
  };
  REQUIRE(on_host() == 0);
  for (int cycle = 0; cycle < 3; ++cycle) {
    f.cuda->ForgetCalls();
    const int64_t freed = Sleep(*f.engine, {}).value();
    REQUIRE(f.cuda->used_bytes() == used - freed);
    REQUIRE(Wake(*f.engine, {}).value() == freed);
    REQUIRE(f.cuda->used_bytes() == used);
    REQUIRE(FindMemory(*f.engine).weights == weights_at);
    REQUIRE(Digests(*f.engine).value() == digests);
    RequireSame(GenerateAll(*f.engine, requests), before);
    // The copy's host memory is pinned once, and stays.
    REQUIRE(f.Calls("RegisterHost") == (cycle == 0 ? 1 : 0));
    REQUIRE(f.Calls("UnregisterHost") == 0);
    REQUIRE(on_host() >= f.weights.layout.total_bytes());
    REQUIRE(on_host() < f.weights.layout.total_bytes() + (2 << 20));
  }
  REQUIRE(VerifyWeights(*f.engine, 0).ok());
}

TEST_CASE(
    "a KV cache whose activations get no memory is given back, and no update makes it serve") {
  EmulatedFixture f("llama");
  const SleepOrder drop_kv = {.tags = {"kv_cache"}};
  REQUIRE(Sleep(*f.engine, drop_kv).ok());
  const int64_t asleep = f.cuda->used_bytes();
  f.cuda->ForgetCalls();
  REQUIRE(Wake(*f.engine, drop_kv.tags).ok());
  const int64_t pages = f.Calls("CreatePages");
  REQUIRE(Sleep(*f.engine, drop_kv).ok());
  // The activations' pages come last.
  f.cuda->FailCall("CreatePages", absl::ResourceExhaustedError("none left"),
                   static_cast<int>(pages - 1));
  REQUIRE(absl::IsResourceExhausted(Wake(*f.engine, drop_kv.tags).status()));
  const int64_t after_failure = f.cuda->used_bytes();
  const UpdateRequest update = {{1, 1}, {1 << 16, 2}, ManifestOf(f.engine->layout())};
  REQUIRE(BeginUpdate(*f.engine, update).ok());
  REQUIRE(AbortUpdate(*f.engine, update.id).ok());
  REQUIRE(f.engine->status().state == RolloutState::kAsleep);
  REQUIRE(after_failure == asleep);
  REQUIRE(Wake(*f.engine, drop_kv.tags).ok());
  REQUIRE(f.engine->status().state == RolloutState::kServing);
  REQUIRE(GenerateAll(*f.engine, MixedRequests({9}, 1, 4)).size() == 1);
}

TEST_CASE(
    "a rollout starts beside a trainer that has the device, and takes memory as it is woken") {
  const TinyWeights weights(GpuModel("llama"), DType::kBFloat16);
  constexpr int64_t kTotal = int64_t{64} << 20;
  auto* const cuda = new EmulatedCuda({.total_bytes = kTotal});
  const std::shared_ptr<Backend> backend =
      MakeCudaBackend(std::unique_ptr<CudaApi>(cuda), 0).value();
  // What the trainer holds in its pass: all of the device but less than a page and some scratch.
  constexpr int64_t kPage = int64_t{2} << 20;
  const auto training = backend->device()->Reserve("activations", kTotal - kPage, nullptr).value();
  REQUIRE(training->Map().ok());
  EngineOptions options = MakeEngineTestOptions(weights, {});
  options.backend = backend;
  options.kv_blocks = 40;
  const auto made = Engine::Create(options);
  INFO(made.status());
  REQUIRE(made.ok());
  Engine& engine = **made;
  REQUIRE(engine.status().state == RolloutState::kEmpty);
  REQUIRE(cuda->used_bytes() < kTotal - kPage / 2);
  // Not before the pass has ended; then the weights' memory alone, and the rest after the sync.
  REQUIRE(absl::IsResourceExhausted(Wake(engine, {}).status()));
  REQUIRE(absl::IsFailedPrecondition(BeginUpdate(engine, {.id = {1, 1}})));
  REQUIRE(training->Release().ok());
  REQUIRE(Wake(engine, {"weights"}).value() >= weights.layout.total_bytes());
  REQUIRE(BytesOf(engine.ledger().Snapshot(), "kv_cache") == 0);
  REQUIRE(engine.status().state == RolloutState::kEmpty);
  REQUIRE(Wake(engine, {"kv_cache"}).value() > 0);
  REQUIRE(BytesOf(engine.ledger().Snapshot(), "kv_cache") > 0);
}

TEST_CASE("a rollout that starts beside a pass waits for the memory that its proofs take") {
  const TinyWeights weights(GpuModel("llama"), DType::kBFloat16);
  constexpr int64_t kTotal = int64_t{64} << 20;
  FakeClock clock;
  const auto start = [&](absl::Duration wait, absl::Duration pass) {
    auto* const cuda = new EmulatedCuda({.total_bytes = kTotal});
    CudaLinearOptions linear;
    auto lt = std::make_unique<FakeLt>();
    lt->Offer(1 << 20, {FakeLt::Algorithm(LtFault::kNone)});
    linear.lt = std::move(lt);
    linear.proof = {.buckets = {16, 32}, .reference_rows = 48};
    EngineOptions options = MakeEngineTestOptions(weights, {});
    options.backend = MakeCudaBackend(std::unique_ptr<CudaApi>(cuda), 0, std::move(linear)).value();
    options.kv_blocks = 40;
    options.wait_for_memory = wait;
    options.clock = &clock;
    const auto training =
        options.backend->device()->Reserve("activations", kTotal, nullptr).value();
    REQUIRE(training->Map().ok());
    const Instant end = clock.Now() + pass;
    clock.OnSleep([&] {
      if (clock.Now() >= end) REQUIRE(training->Release().ok());
    });
    const auto engine = Engine::Create(options);
    if (engine.ok()) {
      for (const auto& [shape, choice] : (*engine)->numerics().choices) {
        REQUIRE(choice.find("cuBLASLt") == 0);
      }
    }
    return engine.status();
  };
  const absl::Status none = start(absl::ZeroDuration(), absl::Seconds(30));
  REQUIRE(absl::IsResourceExhausted(none));
  REQUIRE(absl::IsResourceExhausted(start(absl::Seconds(20), absl::Seconds(30))));
  const Instant before = clock.Now();
  const absl::Status started = start(absl::Seconds(60), absl::Seconds(30));
  INFO(started);
  REQUIRE(started.ok());
  REQUIRE(clock.Now() - before < absl::Seconds(35));
}

TEST_CASE("decoding without graphs has the bits of decoding through them") {
  const std::vector<GenerationRequest> requests = MixedRequests({9, 40}, 2, 8);
  EmulatedFixture graphs("llama");
  const SamplesById want = GenerateAll(*graphs.engine, requests);
  for (const std::string call : {"BeginCapture", "EndCapture", "LaunchGraph"}) {
    INFO(call);
    EmulatedFixture f("llama");
    for (int i = 0; i < 100; ++i) f.cuda->FailCall(call, absl::InternalError("not today"));
    RequireSame(GenerateAll(*f.engine, requests), want);
    REQUIRE(f.Calls("BeginCapture") > 0);
    REQUIRE(f.Calls("DestroyGraph") == (call == std::string("LaunchGraph") ? f.Calls(call) : 0));
    REQUIRE(f.lost.ok());
  }
}

TEST_CASE("a GPU that fails ends the requests and is told") {
  EmulatedFixture f("llama");
  f.cuda->FailCall("Synchronize", absl::InternalError("CUDA_ERROR_ILLEGAL_ADDRESS"), 1);
  const absl::Status end = Try(*f.engine, MixedRequests({9}, 1, 6)[0]);
  REQUIRE(std::string(end.message()).find("ILLEGAL_ADDRESS") != std::string::npos);
  f.engine->Shutdown();
  REQUIRE(IsDeviceLost(f.lost));
}

TEST_CASE("whatever a rollout is asked to do when its GPU is lost, it says so") {
  const std::vector<std::pair<std::string, std::function<absl::Status(Engine&)>>> calls = {
      {"generate", [](Engine& engine) { return Try(engine, MixedRequests({9}, 1, 6)[0]); }},
      {"sleep", [](Engine& engine) { return Sleep(engine, {}).status(); }},
      {"wake", [](Engine& engine) { return Wake(engine, {}).status(); }},
      {"digests", [](Engine& engine) { return Digests(engine).status(); }},
      {"verify", [](Engine& engine) { return VerifyWeights(engine, 0); }}};
  for (const auto& [name, call] : calls) {
    INFO(name);
    EmulatedFixture f("llama");
    REQUIRE(Try(*f.engine, MixedRequests({9}, 1, 6)[0]).ok());
    if (name == "wake") REQUIRE(Sleep(*f.engine, {}).ok());
    f.cuda->LoseDevice();
    REQUIRE(IsDeviceLost(call(*f.engine)));
    f.engine->Shutdown();
    REQUIRE(IsDeviceLost(f.lost));
  }
}

}  // namespace tandem
