// gpu_model_bench on the emulator: what it counts, what it measures of a tiny model, and what it
// leaves out.
#include <algorithm>
#include <cmath>

#include <catch2/catch.hpp>

#include "common/base/status.h"
#include "tests/emulator/emulated_cuda.h"
#include "tests/gpu/model_bench/decode_bench.h"
#include "tests/gpu/model_bench/train_bench.h"

namespace tandem {
namespace {

using namespace tandem::testing;
using emulator::EmulatedCuda;

struct Fixture {
  // Its streams do nothing before they are waited for.
  explicit Fixture(int64_t bytes = int64_t{8} << 30)
      : cuda(new EmulatedCuda({.total_bytes = bytes, .late_streams = 1})),
        gpu(OpenBenchGpu(std::unique_ptr<CudaApi>(cuda)).value()) {}

  EmulatedCuda* const cuda;  // the backend's
  const BenchGpu gpu;
  Figures figures;
};

std::vector<std::string> Names(const Figures& figures) {
  std::vector<std::string> names;
  for (const Figure& figure : figures.added()) names.push_back(figure.name);
  return names;
}

}  // namespace

TEST_CASE("the models that are measured have Qwen3's numbers of weights") {
  REQUIRE(FindBenchModel("0.6b")->spec.parameters() == 596049920);
  REQUIRE(FindBenchModel("4b")->spec.parameters() == 4022468096);
  REQUIRE(FindBenchModel("8b")->spec.parameters() == 8190735360);
  const auto unknown = FindBenchModel("7b");
  REQUIRE(absl::IsInvalidArgument(unknown.status()));
  REQUIRE(std::string(unknown.status().message()).find("0.6b, 4b, 8b") != std::string::npos);
}

TEST_CASE("bytes of a decode step and FLOPs of a pass are those of the formulas") {
  const ModelSpec spec = FindBenchModel("tiny")->spec;
  // A layer: qkv 256 x 64, o 64 x 128, gate and up 128 x 64, down 64 x 64; norms 64, 64, 64, 64.
  // The head 288 x 64 and the final norm 64. K and V of a position: 2 layers of 2 x 64.
  constexpr int64_t kProducts = 256 * 64 + 64 * 128 + 128 * 64 + 64 * 64;
  REQUIRE(DecodeStepBytes(spec, 0) == 2 * (2 * (kProducts + 4 * 64) + 288 * 64 + 64));
  REQUIRE(DecodeStepBytes(spec, 10) - DecodeStepBytes(spec, 0) == 10 * 2 * 2 * 2 * 64);
  REQUIRE(CausalPairs(3) == 1 + 2 + 3);
  // 2 heads of 64: a pair costs 2 * 128 for its score and as much for its value.
  REQUIRE(ForwardFlops(spec, {.rows = 3, .scored = 1, .pairs = 6}) ==
          2.0 * (2 * kProducts * 3 + 4 * 128 * 6) + 2.0 * 288 * 64);
  REQUIRE(TrainingFlops(spec, {.rows = 3, .scored = 3, .pairs = 0}) ==
          6.0 * 3 * (2 * kProducts + 288 * 64));
  // Untied, the embedding's rows are not read: an 8B model reads 15.1 GB of its 16.4.
  const ModelSpec untied = FindBenchModel("8b")->spec;
  REQUIRE(DecodeStepBytes(untied, 0) == 2 * (untied.parameters() - 151936 * 4096));
}

TEST_CASE("a GPU's peaks are found by its name, or by its compute capability, which is said") {
  const auto peaks = [](const std::string& name, int major) {
    return NominalPeaks({.name = name, .compute_major = major});
  };
  REQUIRE(peaks("NVIDIA H200", 9).bytes_per_second == Approx(4.8e12));
  REQUIRE(peaks("NVIDIA H200", 9).bf16_flops == Approx(989e12));
  REQUIRE(peaks("NVIDIA H20", 9).bf16_flops == Approx(148e12));
  REQUIRE(peaks("NVIDIA H100 80GB HBM3", 9).bytes_per_second == Approx(3.35e12));
  REQUIRE(peaks("NVIDIA H100 PCIe", 9).bf16_flops == Approx(756e12));
  REQUIRE(peaks("NVIDIA GH200 480GB", 9).bytes_per_second == Approx(4e12));
  REQUIRE(peaks("NVIDIA A100-SXM4-40GB", 8).bytes_per_second == Approx(1.555e12));
  const DevicePeaks other = peaks("NVIDIA X100", 9);
  REQUIRE(other.bf16_flops == Approx(989e12));
  REQUIRE(other.source.find("X100 is not in the table") != std::string::npos);
  const DevicePeaks unknown = peaks("NVIDIA X100", 13);
  REQUIRE(unknown.bf16_flops == 0);
  REQUIRE(unknown.source.find("13.0") != std::string::npos);
}

TEST_CASE("figures that are not a speed are told, and so is that there are none") {
  Figures figures;
  figures.NotRun("a", "no memory");
  REQUIRE(absl::IsUnavailable(figures.Check()));
  REQUIRE(figures.Check().message() == "no memory");
  figures.Add("b", 2.5, "tokens/s");
  REQUIRE(figures.Check().ok());
  for (const double wrong : {0.0, -1.0, std::nan(""), double{INFINITY}}) {
    Figures bad;
    bad.Add("c", wrong, "%");
    REQUIRE(absl::IsInternal(bad.Check()));
  }
}

TEST_CASE("decode is measured at every batch, through graphs, and its bits are checked") {
  Fixture f;
  const BenchModel model = *FindBenchModel("tiny");
  const absl::Status status = BenchDecode(f.gpu, model, f.figures);
  INFO(status.ToString());
  REQUIRE(status.ok());
  REQUIRE(Names(f.figures) ==
          std::vector<std::string>{"decode_tiny_1_tokens", "decode_tiny_1_percent",
                                   "decode_tiny_1_nominal_percent", "decode_tiny_3_tokens",
                                   "decode_tiny_3_percent", "decode_tiny_3_nominal_percent"});
  REQUIRE(f.figures.not_run().empty());
  REQUIRE(f.figures.Check().ok());
  const std::vector<std::string> calls = f.cuda->calls();
  // Each batch: all steps but the first are a graph's.
  const int64_t graphs = std::count(calls.begin(), calls.end(), "LaunchGraph");
  REQUIRE(graphs >= 2 * (model.warm_steps + model.timed_steps - 1));
}

TEST_CASE("prefill is measured") {
  Fixture f;
  const absl::Status status = BenchPrefill(f.gpu, *FindBenchModel("tiny"), f.figures);
  INFO(status.ToString());
  REQUIRE(status.ok());
  REQUIRE(Names(f.figures) ==
          std::vector<std::string>{"prefill_tiny_tokens", "prefill_tiny_percent"});
  REQUIRE(f.figures.Check().ok());
}

TEST_CASE("training is measured, and its steps change weights") {
  Fixture f;
  const absl::Status status = BenchTraining(f.gpu, *FindBenchModel("tiny"), f.figures);
  INFO(status.ToString());
  REQUIRE(status.ok());
  REQUIRE(Names(f.figures) == std::vector<std::string>{"train_tiny_tokens", "mfu_tiny_percent"});
  REQUIRE(f.figures.Check().ok());
}

TEST_CASE("what does not fit is said and takes no memory") {
  Fixture f(int64_t{10} << 30);  // less than the weights of 8B
  const int64_t used = f.cuda->used_bytes();
  const BenchModel model = *FindBenchModel("8b");
  REQUIRE(BenchDecode(f.gpu, model, f.figures).ok());
  REQUIRE(BenchPrefill(f.gpu, model, f.figures).ok());
  REQUIRE(BenchTraining(f.gpu, model, f.figures).ok());
  REQUIRE(f.figures.added().empty());
  REQUIRE(f.figures.not_run().size() == 3 * 3 + 2 + 2);
  REQUIRE(f.cuda->used_bytes() == used);
  const absl::Status status = f.figures.Check();
  REQUIRE(absl::IsUnavailable(status));
  REQUIRE(std::string(status.message()).find("of the device's 10.0 GiB are free") !=
          std::string::npos);
}

}  // namespace tandem
