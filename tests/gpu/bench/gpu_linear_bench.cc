// How fast the linear layers of an 8B model are, by the engine that is chosen and by our own
// kernels: lines "figure NAME VALUE UNIT" for gpu_check.sh.
//   gpu_linear_bench [WIDTH]     WIDTH: of the hidden states; the default is what targets mean
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "common/base/status.h"
#include "common/ops/cuda/linear/linear.h"
#include "common/ops/cuda/linear/proof_kernels.h"
#include "tests/gpu/gpu.h"

namespace tandem {
namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Below this width the program itself is tested, on the emulator.
constexpr int64_t kLeastWidth = 1024;

// One layer's products: W [n, k] each.
struct Shape {
  int64_t n, k;
};
std::vector<Shape> Layer(int64_t width) {
  return {{width * 3 / 2, width}, {width, width}, {width * 6, width}, {width, width * 3}};
}

class Bench {
 public:
  Bench(CudaContext* context, int64_t width, int64_t most_rows)
      : context_(*context),
        layer_(Layer(width)),
        repeats_(width < kLeastWidth ? 1 : 5),
        launches_(width < kLeastWidth ? 1 : 20) {
    int64_t weights = 0;
    for (const Shape& shape : layer_) weights += shape.n * shape.k;
    // Weights of several layers, so that they come from memory as in a decode step.
    copies_ = std::max<int64_t>(1, std::min<int64_t>(4, (int64_t{1} << 30) / (weights * 2)));
    weights_ = weights;
    weight_ = Numbers(weights * copies_);
    in_ = Numbers(most_rows * width * 3);
    out_ = Numbers(most_rows * width * 6);
  }
  ~Bench() {
    for (std::byte* memory : {weight_, in_, out_}) context_.api().Free(memory).IgnoreError();
  }

  int64_t weights() const { return weights_; }

  // Seconds of one layer with `rows` rows: the best of several times.
  absl::StatusOr<double> Seconds(CudaLinear& linear, int64_t rows) {
    double best = 1e30;
    for (int repeat = 0; repeat <= repeats_; ++repeat) {
      TANDEM_RETURN_IF_ERROR(context_.Synchronize());
      const double begin = Now();
      for (int64_t i = 0; i < launches_; ++i) RunLayer(linear, rows, i % copies_);
      TANDEM_RETURN_IF_ERROR(context_.Synchronize());
      // The first time proves the shapes.
      if (repeat > 0) best = std::min(best, (Now() - begin) / launches_);
    }
    return best;
  }

 private:
  std::byte* Numbers(int64_t elements) {
    std::byte* const memory = context_.api().Malloc(elements * 2).value();
    cuda::LaunchFillNumbers(memory, elements, 7, context_.stream());
    return memory;
  }
  void RunLayer(CudaLinear& linear, int64_t rows, int64_t copy) {
    int64_t first = copy * weights_;
    for (const Shape& shape : layer_) {
      const LinearWeight weight = {weight_ + first * 2, shape.n, shape.k, nullptr};
      linear.Forward({in_, rows, shape.k, shape.k}, weight, {out_, rows, shape.n, shape.n});
      first += shape.n * shape.k;
    }
  }

  CudaContext& context_;
  const std::vector<Shape> layer_;
  const int repeats_, launches_;
  int64_t weights_ = 0, copies_ = 1;
  std::byte *weight_ = nullptr, *in_ = nullptr, *out_ = nullptr;
};

absl::Status Run(CudaContext* context, int64_t width) {
  for (const auto engine : {CudaLinearOptions::Engine::kBest, CudaLinearOptions::Engine::kOwn}) {
    CudaLinearOptions options;
    options.engine = engine;
    TANDEM_ASSIGN_OR_RETURN(const auto linear, CudaLinear::Create(context, std::move(options)));
    const std::string prefix = engine == CudaLinearOptions::Engine::kOwn ? "own_linear" : "linear";
    std::printf("%s: %s\n", prefix.c_str(), linear->numerics().c_str());
    Bench bench(context, width, width < kLeastWidth ? 64 : 4096);
    for (const int64_t rows : {1, 16, 64, 256, 4096}) {
      if (width < kLeastWidth && rows > 64) continue;
      TANDEM_ASSIGN_OR_RETURN(const double seconds, bench.Seconds(*linear, rows));
      const double weights = static_cast<double>(bench.weights());
      std::printf("figure %s_%lld_gbps %.4g GB/s\n", prefix.c_str(), static_cast<long long>(rows),
                  weights * 2 / seconds * 1e-9);
      std::printf("figure %s_%lld_tflops %.4g TFLOP/s\n", prefix.c_str(),
                  static_cast<long long>(rows),
                  weights * 2 * static_cast<double>(rows) / seconds * 1e-12);
    }
    for (const auto& [shape, choice] : linear->Choices()) {
      std::printf("%s: %s\n", shape.c_str(), choice.c_str());
    }
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  const auto gpu = testing::OpenGpu();
  if (!gpu.ok()) {
    std::printf("no GPU: %s\n", std::string(gpu.status().message()).c_str());
    return testing::kNoGpu;
  }
  const auto context = CudaContext::Create(gpu->get(), 0);
  const absl::Status done =
      context.ok() ? Run(context->get(), argc > 1 ? std::atoll(argv[1]) : 4096) : context.status();
  if (!done.ok()) std::fprintf(stderr, "%s\n", done.ToString().c_str());
  return done.ok() ? 0 : 1;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) { return tandem::Main(argc, argv); }
