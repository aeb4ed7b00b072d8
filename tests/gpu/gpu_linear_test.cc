// Matrix products on the device: our kernels' numbers, and rows that do not depend on other rows
// with either engine.
#include <cstdio>
#include <cstring>

#include <catch2/catch.hpp>

#include "common/ops/cuda/linear/gemm_kernels.h"
#include "common/ops/cuda/linear/linear.h"
#include "tests/common/ops/cuda/linear/gemm_fixture.h"
#include "tests/gpu/gpu.h"

namespace tandem {
namespace {

using testing::DeviceMatrix;

struct Rig {
  Rig() : cuda(*testing::OpenGpu()), context(*CudaContext::Create(cuda.get(), 0)) {}
  ~Rig() {
    for (std::byte* memory : held) cuda->Free(memory).IgnoreError();
  }
  // Memory on the device with the bytes of `from`.
  std::byte* Put(const void* from, int64_t bytes) {
    std::byte* const memory = cuda->Malloc(bytes).value();
    held.push_back(memory);
    context->Copy(memory, from, bytes);
    REQUIRE(context->Synchronize().ok());
    return memory;
  }
  std::byte* Put(const DeviceMatrix& matrix) {
    return Put(matrix.data(), matrix.rows() * matrix.stride() * 2);
  }
  // The emulator takes its time.
  bool is_real() const { return context->info().multiprocessors > 8; }

  std::unique_ptr<CudaApi> cuda;
  std::unique_ptr<CudaContext> context;
  std::vector<std::byte*> held;
};

// `gemm` with operands in host memory, computed by `tile` on the device; c comes back.
void RunOnDevice(Rig& rig, const Gemm& gemm, GemmTile tile) {
  const bool transposed_a = gemm.kind == GemmKind::kWeights;
  const bool transposed_b = gemm.kind != GemmKind::kForward;
  const int64_t c_bytes = gemm.m * gemm.c_stride * (gemm.output == GemmOutput::kBf16 ? 2 : 4);
  Gemm there = gemm;
  there.a = rig.Put(gemm.a, (transposed_a ? gemm.k : gemm.m) * gemm.a_stride * 2);
  there.b = rig.Put(gemm.b, (transposed_b ? gemm.k : gemm.n) * gemm.b_stride * 2);
  if (gemm.bias != nullptr) there.bias = rig.Put(gemm.bias, gemm.n * 2);
  there.c = rig.Put(gemm.c, c_bytes);
  cuda::LaunchGemm(there, tile, rig.context->stream());
  rig.context->Read(gemm.c, there.c, c_bytes);
  REQUIRE(rig.context->Synchronize().ok());
}

TEST_CASE("every tile of our kernels computes what plain loops do") {
  Rig rig;
  const int64_t m = 150, n = 136, k = 200;
  const DeviceMatrix in = DeviceMatrix::Random(m, k, 7), weight = DeviceMatrix::Random(n, k, 5);
  const DeviceMatrix bias = DeviceMatrix::Random(1, n, 3), out(m, n);
  for (const GemmTile tile : {GemmTile::k16x32, GemmTile::k32x32, GemmTile::k64x32,
                              GemmTile::k64x64, GemmTile::k128x128}) {
    const Gemm gemm = {.m = m,
                       .n = n,
                       .k = k,
                       .a = in.data(),
                       .a_stride = k,
                       .b = weight.data(),
                       .b_stride = k,
                       .bias = bias.data(),
                       .c = out.data(),
                       .c_stride = n};
    RunOnDevice(rig, gemm, tile);
    INFO("tile " << static_cast<int>(tile));
    REQUIRE(testing::WorstError(gemm, {}) < 1.0f);
  }
  for (const GemmTile tile : {GemmTile::k64x64, GemmTile::k128x128}) {
    INFO("tile " << static_cast<int>(tile));
    const DeviceMatrix dout = DeviceMatrix::Random(m, n, 9), din(m, k);
    const Gemm input = {.kind = GemmKind::kInput,
                        .m = m,
                        .n = k,
                        .k = n,
                        .a = dout.data(),
                        .a_stride = n,
                        .b = weight.data(),
                        .b_stride = k,
                        .c = din.data(),
                        .c_stride = k};
    RunOnDevice(rig, input, tile);
    REQUIRE(testing::WorstError(input, {}) < 1.0f);
    std::vector<float> dweight(static_cast<size_t>(n * k), 0.5f);
    const std::vector<float> before = dweight;
    const Gemm weights = {.kind = GemmKind::kWeights,
                          .output = GemmOutput::kFloatAdd,
                          .m = n,
                          .n = k,
                          .k = m,
                          .a = dout.data(),
                          .a_stride = n,
                          .b = in.data(),
                          .b_stride = k,
                          .c = dweight.data(),
                          .c_stride = k};
    RunOnDevice(rig, weights, tile);
    REQUIRE(testing::WorstError(weights, before) < 1.0f);
  }
}

// Numbers of rows around everything that a kernel may make a difference at.
std::vector<int64_t> Sweep(int64_t most) {
  std::vector<int64_t> rows;
  for (int64_t m = 1; m <= most; m = m < 20 ? m + 1 : m * 5 / 4) rows.push_back(m);
  for (const int64_t edge : {32, 64, 128, 256, 512, 1024}) {
    for (const int64_t m : {edge - 1, edge, edge + 1}) {
      if (m <= most) rows.push_back(m);
    }
  }
  return rows;
}

void RequireOwnRows(Rig& rig, CudaLinear& linear, int64_t rows, int64_t n, int64_t k) {
  const DeviceMatrix in = DeviceMatrix::Random(rows, k, 7), weight = DeviceMatrix::Random(n, k, 5);
  const DeviceMatrix bias = DeviceMatrix::Random(1, n, 3), all(rows, n), part(rows, n);
  std::byte* const on_device = rig.Put(in);
  LinearWeight there = weight.weight();
  there.values = rig.Put(weight);
  there.bias = rig.Put(bias);
  std::byte* const out = rig.Put(all);
  linear.Forward({on_device, rows, k, k}, there, {out, rows, n, n});
  rig.context->Read(all.data(), out, rows * n * 2);
  for (const int64_t m : Sweep(rows)) {
    const int64_t first = m * 7 % (rows - m + 1);
    linear.Forward({on_device + first * k * 2, m, k, k}, there, {out, m, n, n});
    rig.context->Read(part.data(), out, m * n * 2);
    INFO(linear.numerics() << ", " << n << " x " << k << ": rows " << first << " + " << m);
    REQUIRE(std::memcmp(part.data(), all.data() + first * n, static_cast<size_t>(m * n * 2)) == 0);
  }
  REQUIRE(rig.context->Synchronize().ok());
}

TEST_CASE("a row's bits are its own, by our kernels and by the engine that is chosen") {
  for (const auto engine : {CudaLinearOptions::Engine::kOwn, CudaLinearOptions::Engine::kBest}) {
    Rig rig;
    CudaLinearOptions options;
    options.engine = engine;
    const auto linear = CudaLinear::Create(rig.context.get(), std::move(options)).value();
    if (rig.is_real()) {
      // Qwen3's 0.6B and 8B: qkv, o, gate and up, down.
      for (const auto& [n, k] :
           {std::pair<int64_t, int64_t>{4096, 1024}, {1024, 3072}, {6144, 4096}, {4096, 12288}}) {
        RequireOwnRows(rig, *linear, 1100, n, k);
      }
    } else {
      RequireOwnRows(rig, *linear, 140, 104, 136);
    }
    for (const auto& [shape, choice] : linear->Choices()) {
      std::printf("%s: %s\n", shape.c_str(), choice.c_str());
    }
  }
}

}  // namespace
}  // namespace tandem
