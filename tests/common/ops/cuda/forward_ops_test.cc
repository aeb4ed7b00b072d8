#include "common/ops/cuda/forward_ops.h"

#include <catch2/catch.hpp>

#include "tests/common/ops/cuda/device_ops.h"
#include "tests/common/ops/ops_fixture.h"
#include "tests/emulator/emulated_cuda.h"

namespace tandem {
namespace {
using testing::DeviceOps;
using testing::kBf16;
using testing::RowMajor;
using testing::TestMatrix;
using testing::TestWeight;

}  // namespace

TEST_CASE("A GPU's ops say what they are and refuse fp32", "[cuda][ops]") {
  DeviceOps device;
  REQUIRE(device.forward().compute_dtype() == kBf16);
  REQUIRE(device.forward().weight_format() == WeightFormat::kRowMajor);
  const CudaDeviceInfo& info = device.context().info();
  const std::string arch =
      "sm" + std::to_string(info.compute_major) + std::to_string(info.compute_minor);
  REQUIRE(device.forward().kernel_set() == arch);
  REQUIRE(device.forward().numerics_class() == "cuda-" + arch + "-own-bf16");
  const auto refused = CreateCudaForwardOps(DType::kFloat32, &device.context());
  REQUIRE(refused.status().code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(std::string(refused.status().message()).find("compute_dtype") != std::string::npos);
}

TEST_CASE("Ops on a GPU are counted as a CPU's are", "[cuda][ops]") {
  DeviceOps device;
  ForwardOps& ops = device.forward();
  const TestWeight table(kBf16, 40, 64, 1, 1.0f);
  const TestWeight square(kBf16, 64, 64, 2, 0.3f);
  const TestMatrix weight = TestMatrix::Random(kBf16, 1, 64, 3);
  TestMatrix x(kBf16, 5, 64), y(kBf16, 5, 64), z(kBf16, 5, 32);
  const std::vector<int32_t> ids = {3, 39, 0, 3, 7};
  ops.Embed(ids.data(), RowMajor(table), x.view());
  for (int64_t i = 0; i < 5; ++i) {
    REQUIRE(x.SameRow(i, table.source, ids[static_cast<size_t>(i)]));
  }
  ops.RmsNorm(x.view(), weight.data(), 1e-6f, y.view());
  ops.Linear(y.view(), RowMajor(square), x.view());
  ops.Add(x.view(), y.view());
  ops.SiluMul(x.view(), z.view());
  const std::vector<int32_t> rows = {4, 1};
  TestMatrix taken(kBf16, 2, 64);
  ops.TakeRows(x.view(), rows.data(), taken.view());
  REQUIRE(taken.SameRow(0, x, 4));
  REQUIRE(taken.SameRow(1, x, 1));
  REQUIRE(device.context().Synchronize().ok());
  REQUIRE(ops.counts().Text() ==
          "embed 1 (5 rows), rms_norm 1 (5 rows), linear 1 (5 rows), add 1 (5 rows), "
          "silu_mul 1 (5 rows)");
}

TEST_CASE("All heads are normed at once, as one after the other", "[cuda][ops]") {
  DeviceOps device;
  ForwardOps& ops = device.forward();
  const AttentionShape shape = {4, 2, 64};
  const TestMatrix q = TestMatrix::Random(kBf16, 1, 64, 1), k = TestMatrix::Random(kBf16, 1, 64, 2);
  const TestMatrix qkv = TestMatrix::Random(kBf16, 5, shape.qkv_cols(), 3);
  TestMatrix at_once = qkv, by_head = qkv;
  ops.HeadRmsNorms(at_once.view(), shape, q.data(), k.data(), 1e-6f);
  REQUIRE(ops.counts().Text() == "rms_norm 6 (30 rows)");
  ops.ForwardOps::HeadRmsNorms(by_head.view(), shape, q.data(), k.data(), 1e-6f);
  REQUIRE(ops.counts().Text() == "rms_norm 12 (60 rows)");
  REQUIRE(device.context().Synchronize().ok());
  REQUIRE(at_once.SameBits(by_head));
  REQUIRE_FALSE(at_once.SameBits(qkv));
}

TEST_CASE("A residual is added and normed at once, as one after the other", "[cuda][ops]") {
  // Rows of a part of a warp, of a block, and of several words per thread.
  for (const int64_t cols : {64, 1096, 4096}) {
    DeviceOps device;
    ForwardOps& ops = device.forward();
    const TestMatrix weight = TestMatrix::Random(kBf16, 1, cols, 1);
    const TestMatrix delta = TestMatrix::Random(kBf16, 5, cols, 2);
    const TestMatrix before = TestMatrix::Random(kBf16, 5, cols, 3, 2.0f);
    TestMatrix x = before, apart_x = before, out(kBf16, 5, cols), apart(kBf16, 5, cols);
    ops.AddRmsNorm(x.view(), delta.view(), weight.data(), 1e-6f, out.view());
    REQUIRE(ops.counts().Text() == "rms_norm 1 (5 rows), add 1 (5 rows)");
    ops.ForwardOps::AddRmsNorm(apart_x.view(), delta.view(), weight.data(), 1e-6f, apart.view());
    REQUIRE(ops.counts().Text() == "rms_norm 2 (10 rows), add 2 (10 rows)");
    REQUIRE(device.context().Synchronize().ok());
    REQUIRE(x.SameBits(apart_x));
    REQUIRE(out.SameBits(apart));
    REQUIRE_FALSE(x.SameBits(before));
  }
}

TEST_CASE("No memory for an op's scratch is its step's error, and the next step goes on",
          "[cuda][ops]") {
  DeviceOps device;
  const TestWeight head(kBf16, 1500, 64, 2, 0.3f);
  const TestMatrix hidden = TestMatrix::Random(kBf16, 3, 64, 1);
  const std::vector<int32_t> targets = {4, 1499, 70};
  const std::vector<float> temperatures(3, 1.0f);
  const auto score = [&] {
    std::vector<float> log_probs(3, 7.0f);
    device.forward().TokenLogProbs(hidden.view(), RowMajor(head), 1500, targets.data(),
                                   temperatures.data(), log_probs.data(), nullptr);
    return log_probs;
  };
  const std::vector<SampleRow> rows(3);
  std::vector<SampledToken> drawn(3);
  // Each of the buffers that the first call needs.
  for (int skipped = 0; skipped < 4; ++skipped) {
    DeviceOps fresh;
    fresh.cuda().FailCall("Malloc", absl::ResourceExhaustedError("full"), skipped);
    fresh.forward().TokenLogProbs(hidden.view(), RowMajor(head), 1500, targets.data(),
                                  temperatures.data(), std::vector<float>(3).data(), nullptr);
    fresh.forward().Sample(hidden.view(), RowMajor(head), 1500, rows, drawn.data());
    INFO("allocation " << skipped);
    REQUIRE(absl::IsResourceExhausted(fresh.context().Synchronize()));
    std::vector<float> again(3);
    fresh.forward().TokenLogProbs(hidden.view(), RowMajor(head), 1500, targets.data(),
                                  temperatures.data(), again.data(), nullptr);
    REQUIRE(fresh.context().Synchronize().ok());
    REQUIRE(again == score());
  }
  REQUIRE(device.context().Synchronize().ok());
}

TEST_CASE("No memory for a rope table is the step's error, and the next step copies it",
          "[cuda][ops]") {
  DeviceOps device;
  const AttentionShape shape = {2, 1, 64};
  const RopeTable rope = testing::TestRope(64, 128);
  TestMatrix qkv = TestMatrix::Random(kBf16, 3, shape.qkv_cols(), 1), before = qkv;
  std::vector<std::byte> pool(static_cast<size_t>(KvBlockBytes(shape, kBf16)));
  const std::vector<int32_t> blocks = {0};
  const std::vector<AttentionSpan> spans = {{.rows = 3, .blocks = blocks.data()}};
  device.cuda().FailCall("Malloc", absl::ResourceExhaustedError("full"));
  device.forward().RopeAndStore(qkv.view(), shape, rope, spans, {pool.data(), 1});
  REQUIRE(absl::IsResourceExhausted(device.context().Synchronize()));
  REQUIRE(qkv.SameBits(before));
  device.forward().RopeAndStore(qkv.view(), shape, rope, spans, {pool.data(), 1});
  REQUIRE(device.context().Synchronize().ok());
  REQUIRE_FALSE(qkv.SameBits(before));
}

TEST_CASE("Blocks are copied in order", "[cuda][ops]") {
  DeviceOps device;
  const AttentionShape shape = {2, 1, 64};
  const int64_t bytes = KvBlockBytes(shape, kBf16);
  std::vector<std::byte> pool(static_cast<size_t>(4 * bytes));
  for (size_t i = 0; i < pool.size(); ++i) pool[i] = static_cast<std::byte>(i / 7 % 251);
  const std::vector<std::byte> before = pool;
  device.forward().CopyBlocks(shape, {{0, 2}, {2, 3}}, {pool.data(), 4});
  REQUIRE(device.context().Synchronize().ok());
  const auto same = [&](int64_t block, int64_t source) {
    return std::equal(pool.begin() + block * bytes, pool.begin() + (block + 1) * bytes,
                      before.begin() + source * bytes);
  };
  REQUIRE(same(0, 0));
  REQUIRE(same(1, 1));
  REQUIRE(same(2, 0));
  REQUIRE(same(3, 0));
}

TEST_CASE("A step that is a graph computes what its ops do", "[cuda][ops]") {
  DeviceOps device;
  ForwardOps& ops = device.forward();
  const TestWeight table(kBf16, 40, 64, 1, 1.0f);
  const TestWeight up(kBf16, 128, 64, 2, 0.3f);
  const TestMatrix weight = TestMatrix::Random(kBf16, 1, 64, 3);
  TestMatrix x(kBf16, 3, 64), norm(kBf16, 3, 64), wide(kBf16, 3, 128), out(kBf16, 3, 64);
  const auto step = [&](const std::vector<int32_t>& ids) {
    ops.Embed(ids.data(), RowMajor(table), x.view());
    ops.RmsNorm(x.view(), weight.data(), 1e-6f, norm.view());
    ops.Linear(norm.view(), RowMajor(up), wide.view());
    ops.SiluMul(wide.view(), out.view());
    ops.Add(out.view(), x.view());
  };
  for (const std::vector<int32_t>& ids :
       {std::vector<int32_t>{1, 2, 3}, {9, 2, 39}, {4, 4, 0}, {11, 30, 5}}) {
    step(ids);
    REQUIRE(device.context().Synchronize().ok());
    const TestMatrix expected = out;
    device.context().BeginGraph(7);
    step(ids);
    REQUIRE(device.context().EndGraph());
    REQUIRE(device.context().Synchronize().ok());
    REQUIRE(out.SameBits(expected));
  }
  REQUIRE(device.context().graphs() == 1);
}

}  // namespace tandem
