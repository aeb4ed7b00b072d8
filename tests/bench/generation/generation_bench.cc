// Tokens per second of the rollout's generator on a real model directory, without gRPC:
// tandem-generation-bench MODEL_DIR --threads 2 --prompt 32 --tokens 64 --sequences 1 8 32 64
// Every row runs twice, of which the second counts.
// `kv MiB` are the blocks held at the fullest step, `resident MiB` what the process occupies when
// the row ends: rows ascend, memory comes at first touch, so that the difference of two rows is
// what their sequences cost.
#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/base/status.h"
#include "common/lora/lora_spec.h"
#include "common/process/cores.h"
#include "common/process/threads.h"
#include "rollout_worker/generation/generator.h"
#include "rollout_worker/weights/weight_storage.h"

namespace tandem {
namespace {

struct Options {
  std::string model_dir;
  int threads = 2;
  int64_t prompt = 32;
  int64_t tokens = 64;
  std::vector<int64_t> sequences = {1, 8, 32, 64};
  bool float32 = false;
  int64_t lora_rank = 0;
};

class CountingSink final : public GenerationSink {
 public:
  void OnTokens(const TokenDelta&) override {}
  void OnFinished(const Sample&) override {}
  void OnEnd(const absl::Status&) override {}
  bool cancelled() const override { return false; }
};

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double ResidentMib() {
  int64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return static_cast<double>(resident * sysconf(_SC_PAGESIZE)) / (1 << 20);
}

// Different prompts, one sample each: nothing is shared.
absl::Status SubmitAll(Generator& generator, const Options& options, int64_t sequences) {
  for (int64_t s = 0; s < sequences; ++s) {
    GenerationRequest request;
    for (int64_t i = 0; i < options.prompt; ++i) {
      request.prompt.push_back(static_cast<int32_t>((i * 131 + s * 17) % 1000 + 100));
    }
    request.sample_ids = {static_cast<uint64_t>(s)};
    request.params.max_tokens = options.tokens;
    request.params.ignore_eos = true;
    TANDEM_RETURN_IF_ERROR(generator.Submit(request, std::make_shared<CountingSink>()));
  }
  return absl::OkStatus();
}

struct Times {
  double prefill = 0, decode = 0, cpu = 0;  // seconds
  int64_t blocks = 0;                       // of KV, at the fullest step
};

// Until all is generated; prefill ends when `prompt_tokens` are computed.
Times Measure(Generator& generator, const std::byte* weights, int64_t prompt_tokens) {
  Times times;
  const double start = Seconds(), cpu = CpuSeconds();
  while (generator.has_work()) {
    TANDEM_CHECK(generator.Step(weights, 0).ok(), "a CPU has no errors");
    const GeneratorLoad load = generator.load();
    times.blocks = std::max(times.blocks, load.kv_blocks_used);
    if (times.prefill == 0 && load.prefill_tokens == prompt_tokens) {
      times.prefill = Seconds() - start;
    }
  }
  times.decode = Seconds() - start - times.prefill;
  times.cpu = CpuSeconds() - cpu;
  return times;
}

void PrintRow(const Options& options, int64_t sequences, const Times& times, double block_mib) {
  fmt::print("{:>9} {:>12.3f} {:>12.3f} {:>12.1f} {:>14.1f} {:>12.2f} {:>8.1f} {:>12.1f}\n",
             sequences, times.prefill, times.decode,
             static_cast<double>(sequences * (options.tokens - 1)) / times.decode,
             static_cast<double>(sequences * options.tokens) / (times.prefill + times.decode),
             times.cpu, static_cast<double>(times.blocks) * block_mib, ResidentMib());
}

absl::Status RunAll(const Options& options) {
  const DType dtype = options.float32 ? DType::kFloat32 : DType::kBFloat16;
  const int64_t length = options.prompt + options.tokens;
  const int64_t most = *std::max_element(options.sequences.begin(), options.sequences.end());
  Ledger ledger;
  TANDEM_ASSIGN_OR_RETURN(const ModelSpec base, LoadModelSpec(options.model_dir));
  TANDEM_ASSIGN_OR_RETURN(const ModelSpec spec,
                          WithAdapters(base, {.rank = options.lora_rank,
                                              .alpha = 1,
                                              .target_modules = {"all-linear"},
                                              .merge = false}));
  const std::vector<int> cores = ComputeCores(0, 1, options.threads);
  if (!cores.empty()) PinThisThread(cores.front());
  const auto pool = std::make_shared<ThreadPool>(options.threads, cores);
  TANDEM_ASSIGN_OR_RETURN(auto ops, CreateCpuForwardOps(dtype, pool));
  TANDEM_ASSIGN_OR_RETURN(const auto runner,
                          ModelRunner::Create(HostDevice(), spec, std::move(ops), spec.vocab_size,
                                              length, 2048, &ledger));
  TANDEM_ASSIGN_OR_RETURN(const auto weights,
                          WeightStorage::Create(HostDevice(), &runner->layout(), &ledger));
  TANDEM_ASSIGN_OR_RETURN(const auto kv, KvCache::Create(HostDevice(), spec, dtype,
                                                         most * KvBlocksFor(length), &ledger));
  TANDEM_RETURN_IF_ERROR(weights->Map());
  TANDEM_RETURN_IF_ERROR(kv->Map());
  TANDEM_RETURN_IF_ERROR(runner->MapActivations());
  TANDEM_RETURN_IF_ERROR(weights->LoadCheckpoint(
      options.model_dir, spec, *CreateCpuStorageOps(&runner->layout(), weights->data(), pool)));
  fmt::print("{} threads {}, prompt {}, {} new tokens, {}\n", options.threads, PinningText(cores),
             options.prompt, options.tokens, runner->ops().numerics_class());
  fmt::print("{:>9} {:>12} {:>12} {:>12} {:>14} {:>12} {:>8} {:>12}\n", "sequences", "prefill s",
             "decode s", "decode tok/s", "all tok/s", "cpu s", "kv MiB", "resident MiB");
  const double block_mib =
      static_cast<double>(KvBlockBytesOfAllLayers(spec, static_cast<int64_t>(DTypeBytes(dtype)))) /
      (1 << 20);
  for (const int64_t sequences : options.sequences) {
    const auto generate = [&]() -> absl::StatusOr<Times> {
      GeneratorOptions generator_options;
      generator_options.scheduler = {sequences, 2048, true};
      generator_options.max_model_len = length;
      generator_options.vocab_limit = spec.vocab_size;
      Generator generator(generator_options, runner.get(), kv.get());
      TANDEM_RETURN_IF_ERROR(SubmitAll(generator, options, sequences));
      return Measure(generator, weights->data(), sequences * options.prompt);
    };
    TANDEM_RETURN_IF_ERROR(generate().status());  // pages come at first touch
    TANDEM_ASSIGN_OR_RETURN(const Times times, generate());
    PrintRow(options, sequences, times, block_mib);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  tandem::Options options;
  CLI::App app("Measures the rollout's generator.");
  app.add_option("model_dir", options.model_dir, "Hugging Face model directory")->required();
  app.add_option("--threads", options.threads);
  app.add_option("--prompt", options.prompt, "tokens of each prompt");
  app.add_option("--tokens", options.tokens, "new tokens of each sequence");
  app.add_option("--sequences", options.sequences, "batch sizes to measure");
  app.add_option("--lora-rank", options.lora_rank,
                 "adapters on all linear layers that are not merged; what they hold costs nothing");
  app.add_flag("--float32", options.float32, "the slow reference path");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = tandem::RunAll(options);
  if (!status.ok()) fmt::print(stderr, "{}\n", std::string(status.message()));
  return status.ok() ? 0 : 1;
}
