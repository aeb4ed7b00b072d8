// Figures of the ops at the shapes of an 8B model, for gpu_check.sh: a line "figure NAME VALUE
// UNIT" each. torch_counterparts.py measures torch's at the same shapes.
//   gpu_ops_bench [ROWS [KEYS]]     ROWS: samples that decode at once (256); KEYS of each (2048)
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "common/base/status.h"
#include "common/device/cuda/cuda_context.h"
#include "common/ops/cuda/linear/proof_kernels.h"
#include "common/ops/forward_ops.h"
#include "tests/gpu/gpu.h"

namespace tandem {
namespace {

constexpr AttentionShape kHeads = {32, 8, 128};

struct Sizes {
  int64_t rows = 256;
  int64_t keys = 2048;
};

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Seconds of one of many calls in a row, the best of five times.
absl::StatusOr<double> Best(CudaContext& context, const std::function<void()>& work) {
  const bool emulated = context.info().name == "emulated";
  const int calls = emulated ? 1 : 20;
  double best = 1e30;
  for (int repeat = 0; repeat < (emulated ? 2 : 6); ++repeat) {
    TANDEM_RETURN_IF_ERROR(context.Synchronize());
    const double begin = Now();
    for (int call = 0; call < calls; ++call) work();
    TANDEM_RETURN_IF_ERROR(context.Synchronize());
    if (repeat > 0) best = std::min(best, (Now() - begin) / calls);  // the first proves and warms
  }
  return best;
}

// Device memory of random bf16 values: a GPU that multiplies zeros takes less power, so that it
// clocks higher than it will with weights.
absl::StatusOr<std::byte*> RandomValues(CudaContext& context, int64_t bytes) {
  TANDEM_ASSIGN_OR_RETURN(std::byte* const memory, context.api().Malloc(bytes));
  cuda::LaunchFillNumbers(memory, bytes / 2, 7, context.stream());
  return memory;
}

absl::Status Linear(CudaContext& context, ForwardOps& ops, const Sizes& sizes, int64_t scale) {
  const std::pair<int64_t, int64_t> products[] = {
      {6144, 4096}, {4096, 4096}, {24576, 4096}, {4096, 12288}};
  double seconds = 0, flops = 0;
  for (const auto& [full_out, full_inner] : products) {
    const int64_t out = full_out / scale, inner = full_inner / scale;
    TANDEM_ASSIGN_OR_RETURN(std::byte* const weight, RandomValues(context, out * inner * 2));
    TANDEM_ASSIGN_OR_RETURN(std::byte* const x, RandomValues(context, sizes.rows * inner * 2));
    TANDEM_ASSIGN_OR_RETURN(std::byte* const y, RandomValues(context, sizes.rows * out * 2));
    const LinearWeight view = {.values = weight, .rows = out, .cols = inner};
    TANDEM_ASSIGN_OR_RETURN(
        const double one, Best(context, [&] {
          ops.Linear({x, sizes.rows, inner, inner}, view, {y, sizes.rows, out, out});
        }));
    seconds += one;
    flops += 2.0 * static_cast<double>(sizes.rows) * static_cast<double>(out * inner);
    for (std::byte* const memory : {weight, x, y}) {
      TANDEM_RETURN_IF_ERROR(context.api().Free(memory));
    }
  }
  std::printf("figure linear_tflops %.4g TFLOP/s\n", flops / seconds * 1e-12);
  return absl::OkStatus();
}

absl::Status DecodeAttention(CudaContext& context, ForwardOps& ops, const Sizes& sizes) {
  const int64_t blocks_each = (sizes.keys + 63) / 64;
  const int64_t blocks = sizes.rows * blocks_each;
  const int64_t pool = blocks * KvBlockBytes(kHeads, DType::kBFloat16);
  TANDEM_ASSIGN_OR_RETURN(std::byte* const kv, RandomValues(context, pool));
  TANDEM_ASSIGN_OR_RETURN(std::byte* const qkv,
                          RandomValues(context, sizes.rows * kHeads.qkv_cols() * 2));
  TANDEM_ASSIGN_OR_RETURN(std::byte* const out,
                          RandomValues(context, sizes.rows * kHeads.q_cols() * 2));
  std::vector<int32_t> table(static_cast<size_t>(blocks));
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(i);
  std::vector<AttentionSpan> spans;
  for (int64_t row = 0; row < sizes.rows; ++row) {
    spans.push_back({.first_row = row,
                     .rows = 1,
                     .first_position = sizes.keys - 1,
                     .blocks = table.data() + row * blocks_each});
  }
  TANDEM_ASSIGN_OR_RETURN(const double seconds, Best(context, [&] {
                            ops.Attention({qkv, sizes.rows, kHeads.qkv_cols(), kHeads.qkv_cols()},
                                          kHeads, spans, {kv, blocks},
                                          {out, sizes.rows, kHeads.q_cols(), kHeads.q_cols()});
                          }));
  const double read = static_cast<double>(sizes.rows * sizes.keys) * 2 * 2 *
                      static_cast<double>(kHeads.kv_heads * kHeads.head_dim);
  std::printf("figure attention_gbps %.4g GB/s\n", read / seconds * 1e-9);
  return absl::OkStatus();
}

absl::Status Run(CudaApi* cuda, const Sizes& sizes) {
  TANDEM_ASSIGN_OR_RETURN(const auto context, CudaContext::Create(cuda, 0));
  TANDEM_ASSIGN_OR_RETURN(const auto ops, CreateCudaForwardOps(DType::kBFloat16, context.get()));
  // The emulator takes shapes of its own size.
  const int64_t scale = context->info().name == "emulated" ? 128 : 1;
  TANDEM_RETURN_IF_ERROR(Linear(*context, *ops, sizes, scale));
  TANDEM_RETURN_IF_ERROR(DecodeAttention(*context, *ops, sizes));
  return context->Synchronize();
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  const auto gpu = tandem::testing::OpenGpu();
  if (!gpu.ok()) {
    std::printf("no GPU: %s\n", std::string(gpu.status().message()).c_str());
    return tandem::testing::kNoGpu;
  }
  tandem::Sizes sizes;
  if (argc > 1) sizes.rows = std::strtoll(argv[1], nullptr, 10);
  if (argc > 2) sizes.keys = std::strtoll(argv[2], nullptr, 10);
  const absl::Status status = tandem::Run(gpu->get(), sizes);
  if (!status.ok()) std::printf("%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
