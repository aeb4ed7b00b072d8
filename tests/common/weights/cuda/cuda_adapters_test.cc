// Adapters on a GPU against the CPU: merged rows bit for bit, gradients in the GPU's own order.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include <catch2/catch.hpp>

#include "common/base/philox.h"
#include "common/lora/lora_gradients.h"
#include "common/lora/merge.h"
#include "common/process/threads.h"
#include "common/weights/cuda/cuda_shard_ops.h"
#include "tests/common/ops/cuda/kernel_fixture.h"
#include "tests/common/ops/cuda/test_cuda.h"

namespace tandem {
namespace {

using testing::SameBits;

struct Gpu {
  std::unique_ptr<CudaApi> cuda = testing::OpenTestCuda();
  std::unique_ptr<CudaContext> context = *CudaContext::Create(cuda.get(), 0);
  std::unique_ptr<ShardOps> ops = *CreateCudaShardOps(context.get());
};

struct SentShape {
  int64_t rows, in, rank;
};
// Less than a tile, tiles, and more; every rank that a tile of ranks begins or ends with.
const std::vector<SentShape>& Shapes() {
  static const std::vector<SentShape> shapes = {{1, 1, 1},     {3, 15, 2},    {64, 128, 32},
                                                {65, 129, 33}, {20, 300, 64}, {130, 257, 7},
                                                {16, 16, 8},   {150, 40, 31}};
  return shapes;
}

std::vector<float> Values(int64_t count, uint64_t seed) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(RandomUniform(seed, 0, static_cast<uint64_t>(i)) - 0.5f);
  }
  return values;
}

// Some zeros of both signs, and denormals.
std::vector<float> Weights(int64_t count) {
  std::vector<float> values = Values(count, 7);
  for (size_t i = 0; i < values.size(); ++i) {
    if (i % 5 == 0) values[i] = i % 2 == 0 ? -0.0f : 0.0f;
    if (i % 7 == 0) values[i] *= 1e-38f;
  }
  return values;
}

std::vector<std::byte> AsBytes(const std::vector<float>& values, DType dtype) {
  std::vector<std::byte> bytes(values.size() * DTypeBytes(dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    const Bf16 rounded = ToBf16(values[i]);
    const void* const from = dtype == DType::kFloat32 ? static_cast<const void*>(&values[i])
                                                      : static_cast<const void*>(&rounded);
    std::memcpy(bytes.data() + i * DTypeBytes(dtype), from, DTypeBytes(dtype));
  }
  return bytes;
}

constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16};

// The CPU's order of sums is another one, so that only GPUs have these bits (adapter_kernels.h).
template <int kLanes, int kChunk>
float Sum(int64_t count, const auto& x, const auto& y) {
  std::array<float, kLanes> lanes = {};
  for (int64_t i = 0; i < count; ++i) {
    float& lane = lanes[static_cast<size_t>(i / kChunk % kLanes)];
    lane = std::fma(x(i), y(i), lane);
  }
  float sum = lanes[0];
  for (size_t lane = 1; lane < kLanes; ++lane) sum += lanes[lane];
  return sum;
}

struct Gradients {
  explicit Gradients(const SentShape& s) : shape(s) {}
  LoraGradientBlock Block() {
    return {.dw = dw.data(),
            .b = b.data(),
            .a = a.data(),
            .scaling = 0.75,
            .rows = shape.rows,
            .in = shape.in,
            .rank = shape.rank,
            .db = db.data(),
            .da = da.data()};
  }
  // By the host, in the GPU's order.
  void Add() {
    const int64_t rows = shape.rows, in = shape.in, rank = shape.rank;
    constexpr float kScaling = 0.75f;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t k = 0; k < rank; ++k) {
        db[row * rank + k] += kScaling * Sum<8, 16>(
                                             in, [&](int64_t j) { return dw[row * in + j]; },
                                             [&](int64_t j) { return a[k * in + j]; });
      }
    }
    for (int64_t k = 0; k < rank; ++k) {
      for (int64_t j = 0; j < in; ++j) {
        da[k * in + j] += Sum<16, 8>(
            rows, [&](int64_t row) { return kScaling * b[row * rank + k]; },
            [&](int64_t row) { return dw[row * in + j]; });
      }
    }
  }

  const SentShape shape;
  std::vector<float> dw = Values(shape.rows * shape.in, 1), b = Values(shape.rows * shape.rank, 2),
                     a = Values(shape.rank * shape.in, 3), db = Values(shape.rows * shape.rank, 4),
                     da = Values(shape.rank * shape.in, 5);
};

}  // namespace

TEST_CASE("Rows merged on a GPU have the bits of those merged on a CPU", "[weights][cuda]") {
  const Gpu gpu;
  for (const uint64_t seed : testing::TwoSeeds()) {
    const testing::ScopedSeed scoped(seed);
    for (const SentShape& s : Shapes()) {
      const std::vector<float> a = Values(s.rank * s.in, 1), b = Values(s.rows * s.rank, 2);
      for (const DType base_dtype : kDTypes) {
        for (const DType out_dtype : kDTypes) {
          INFO(s.rows << " x " << s.in << ", rank " << s.rank << ", " << DTypeName(base_dtype)
                      << " to " << DTypeName(out_dtype));
          const std::vector<std::byte> base = AsBytes(Weights(s.rows * s.in), base_dtype);
          // Rows begin wherever a tensor's do: at a multiple of their element.
          const size_t element = DTypeBytes(out_dtype);
          std::vector<std::byte> want(static_cast<size_t>(s.rows * s.in) * element + 16), got(want);
          MergeBlock block{.base = base.data(),
                           .base_dtype = base_dtype,
                           .b = b.data(),
                           .a = a.data(),
                           .scaling = 7.0 / 3,
                           .rows = s.rows,
                           .in = s.in,
                           .rank = s.rank,
                           .out = want.data() + element,
                           .out_dtype = out_dtype};
          MergeRows(block);
          block.out = got.data() + element;
          gpu.ops->Merge(block);
          REQUIRE(gpu.context->Synchronize().ok());
          REQUIRE(got == want);
        }
      }
    }
  }
}

TEST_CASE("Where B is zero a GPU merges the base, bit for bit, in its place too",
          "[weights][cuda]") {
  const Gpu gpu;
  const SentShape s = {33, 130, 5};
  const std::vector<float> a = Values(s.rank * s.in, 1);
  for (const float zero : {0.0f, -0.0f}) {
    const std::vector<float> b(static_cast<size_t>(s.rows * s.rank), zero);
    for (const DType dtype : kDTypes) {
      const std::vector<std::byte> base = AsBytes(Weights(s.rows * s.in), dtype);
      std::vector<std::byte> merged = base;
      gpu.ops->Merge({.base = merged.data(),
                      .base_dtype = dtype,
                      .b = b.data(),
                      .a = a.data(),
                      .scaling = 2,
                      .rows = s.rows,
                      .in = s.in,
                      .rank = s.rank,
                      .out = merged.data(),
                      .out_dtype = dtype});
      REQUIRE(gpu.context->Synchronize().ok());
      REQUIRE(merged == base);
    }
  }
}

TEST_CASE("Gradients of adapters on a GPU have the order of sums that is written down",
          "[weights][cuda]") {
  const Gpu gpu;
  for (const uint64_t seed : testing::TwoSeeds()) {
    const testing::ScopedSeed scoped(seed);
    for (const SentShape& s : Shapes()) {
      INFO(s.rows << " x " << s.in << ", rank " << s.rank);
      Gradients want(s), got(s);
      for (int batch = 0; batch < 2; ++batch) {
        want.Add();
        gpu.ops->AddLoraGradients(got.Block());
      }
      REQUIRE(gpu.context->Synchronize().ok());
      REQUIRE(SameBits(got.db, want.db));
      REQUIRE(SameBits(got.da, want.da));
      // The CPU's are as close as other sums of the same terms are.
      Gradients host(s);
      for (int batch = 0; batch < 2; ++batch) AddLoraGradients(host.Block());
      for (size_t i = 0; i < host.db.size(); ++i) REQUIRE(std::abs(got.db[i] - host.db[i]) < 1e-4f);
      for (size_t i = 0; i < host.da.size(); ++i) REQUIRE(std::abs(got.da[i] - host.da[i]) < 1e-4f);
    }
  }
}

TEST_CASE("Values of a shard are converted on a GPU as on a CPU", "[weights][cuda]") {
  const Gpu gpu;
  const std::unique_ptr<ShardOps> host = CreateCpuShardOps(std::make_shared<ThreadPool>(2));
  constexpr int64_t kCount = 2500;
  const std::vector<float> values = Weights(kCount);
  for (const DType from : kDTypes) {
    for (const DType to : kDTypes) {
      const std::vector<std::byte> in = AsBytes(values, from);
      std::vector<std::byte> want(static_cast<size_t>(kCount) * DTypeBytes(to)), got(want);
      host->Convert(in.data(), from, want.data(), to, kCount);
      gpu.ops->Convert(in.data(), from, got.data(), to, kCount);
      REQUIRE(gpu.context->Synchronize().ok());
      REQUIRE(got == want);
      if (to == from) REQUIRE(got == in);
    }
  }
}

TEST_CASE("Nothing to merge is not work", "[weights][cuda]") {
  const Gpu gpu;
  float value = 1;
  gpu.ops->Merge({.base = &value,
                  .base_dtype = DType::kFloat32,
                  .b = &value,
                  .a = &value,
                  .rows = 0,
                  .in = 1,
                  .rank = 1,
                  .out = &value,
                  .out_dtype = DType::kFloat32});
  gpu.ops->Convert(&value, DType::kFloat32, &value, DType::kFloat32, 0);
  gpu.ops->AddLoraGradients({.rows = 0, .in = 4, .rank = 1});
  REQUIRE(gpu.context->Synchronize().ok());
  REQUIRE(value == 1);
}

}  // namespace tandem
