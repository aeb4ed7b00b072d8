// A row's bits do not depend on the other rows, at the shapes of real models.
#include <vector>

#include <catch2/catch.hpp>

#include "tests/common/ops/cuda/device_ops.h"
#include "tests/gpu/gpu.h"

namespace tandem {
namespace {

using testing::DeviceOps;
using testing::RowMajor;
using testing::TestMatrix;
using testing::TestWeight;

constexpr DType kBf16 = DType::kBFloat16;

struct Product {
  int64_t out, inner;
};

// Qwen3's linear layers of 0.6B and 8B. The emulator takes one that is as odd as its time allows.
std::vector<Product> Products(bool emulated) {
  if (emulated) return {{40, 64}};
  return {{4096, 1024}, {1024, 2048}, {6144, 1024},  {1024, 3072},
          {6144, 4096}, {4096, 4096}, {24576, 4096}, {4096, 12288}};
}

bool IsEmulated(DeviceOps& device) { return device.context().info().name == "emulated"; }

}  // namespace

TEST_CASE("a row of a linear layer has the same bits in every batch and at every place") {
  DeviceOps device;
  const bool emulated = IsEmulated(device);
  for (const Product& product : Products(emulated)) {
    const TestWeight weight(kBf16, product.out, product.inner, 1, 0.1f);
    const int64_t rows = emulated ? 18 : 257;
    const TestMatrix x = TestMatrix::Random(kBf16, rows, product.inner, 2);
    TestMatrix whole(kBf16, rows, product.out);
    device.forward().Linear(x.view(), RowMajor(weight), whole.view());
    const std::vector<int64_t> batches =
        emulated ? std::vector<int64_t>{1, 17}
                 : std::vector<int64_t>{1, 2, 7, 16, 17, 64, 100, 128, 129, 256};
    for (const int64_t batch : batches) {
      const int64_t first = rows - batch;  // at another place than in the whole
      TestMatrix part(kBf16, batch, product.out);
      device.forward().Linear(x.Rows(first, batch), RowMajor(weight), part.view());
      for (int64_t row = 0; row < batch; ++row) {
        INFO(product.out << " x " << product.inner << ", batch " << batch << ", row " << row);
        REQUIRE(part.SameRow(row, whole, first + row));
      }
    }
  }
}

TEST_CASE("a row of a linear layer with adapters has the same bits in every batch") {
  DeviceOps device;
  const bool emulated = IsEmulated(device);
  const std::vector<Product> products =
      emulated ? Products(true) : std::vector<Product>{{6144, 1024}, {1024, 3072}, {4096, 4096}};
  for (const Product& product : products) {
    for (const int64_t rank : {4, 32}) {
      const TestWeight weight(kBf16, product.out, product.inner, 1, 0.1f);
      const TestWeight a(kBf16, 2 * rank, product.inner, 3, 0.1f);
      const TestWeight b(kBf16, product.out, rank, 4, 0.1f);
      const int64_t first_part = product.out / 16 * 8;
      LinearWeight adapted = RowMajor(weight);
      adapted.adapter = {.parts = 2,
                         .a = RowMajor(a).values,
                         .b = RowMajor(b).values,
                         .rank = rank,
                         .scaling = 2.0f,
                         .part = {{0, first_part}, {first_part, product.out - first_part}}};
      const int64_t rows = emulated ? 35 : 257;
      const TestMatrix x = TestMatrix::Random(kBf16, rows, product.inner, 2);
      TestMatrix whole(kBf16, rows, product.out), base = whole;
      device.forward().Linear(x.view(), adapted, whole.view());
      device.forward().Linear(x.view(), RowMajor(weight), base.view());
      REQUIRE_FALSE(whole.SameBits(base));
      for (const int64_t batch : {1, 16, 33, 128}) {
        if (batch > rows) continue;
        const int64_t first = rows - batch;
        TestMatrix part(kBf16, batch, product.out);
        device.forward().Linear(x.Rows(first, batch), adapted, part.view());
        for (int64_t row = 0; row < batch; ++row) {
          INFO(product.out << " x " << product.inner << ", rank " << rank << ", batch " << batch
                           << ", row " << row);
          REQUIRE(part.SameRow(row, whole, first + row));
        }
      }
    }
  }
}

TEST_CASE("a residual is added and normed at once with the bits of the two ops") {
  DeviceOps device;
  const std::vector<int64_t> widths = IsEmulated(device)
                                          ? std::vector<int64_t>{64, 1096}
                                          : std::vector<int64_t>{64, 1024, 2560, 4096, 8192, 16384};
  for (const int64_t cols : widths) {
    const TestMatrix weight = TestMatrix::Random(kBf16, 1, cols, 1);
    const TestMatrix delta = TestMatrix::Random(kBf16, 5, cols, 2);
    TestMatrix x = TestMatrix::Random(kBf16, 5, cols, 3, 2.0f), apart_x = x;
    TestMatrix out(kBf16, 5, cols), apart(kBf16, 5, cols);
    device.forward().AddRmsNorm(x.view(), delta.view(), weight.data(), 1e-6f, out.view());
    device.forward().Add(apart_x.view(), delta.view());
    device.forward().RmsNorm(apart_x.view(), weight.data(), 1e-6f, apart.view());
    REQUIRE(device.context().Synchronize().ok());
    INFO(cols << " columns");
    REQUIRE(x.SameBits(apart_x));
    REQUIRE(out.SameBits(apart));
  }
}

TEST_CASE("a token's log-prob has the same bits in every batch, and sampling gives the same") {
  DeviceOps device;
  const bool emulated = IsEmulated(device);
  const int64_t vocab = emulated ? 1100 : 151936;
  const int64_t inner = emulated ? 64 : 1024;
  const int64_t rows = emulated ? 3 : 130;
  const TestWeight head(kBf16, vocab, inner, 3, 0.1f);
  const TestMatrix x = TestMatrix::Random(kBf16, rows, inner, 4);
  const auto count = static_cast<size_t>(rows);
  std::vector<SampleRow> wanted(count);
  for (size_t i = 0; i < count; ++i) wanted[i].uniform = (static_cast<float>(i) + 0.5f) / 131;
  std::vector<SampledToken> sampled(count);
  device.forward().Sample(x.view(), RowMajor(head), vocab - 7, wanted, sampled.data());
  std::vector<int32_t> targets;
  for (const SampledToken& token : sampled) targets.push_back(token.token);
  const std::vector<float> ones(count, 1.0f);
  std::vector<float> log_probs(count);
  device.forward().TokenLogProbs(x.view(), RowMajor(head), vocab - 7, targets.data(), ones.data(),
                                 log_probs.data(), nullptr);
  for (size_t row = 0; row < count; row += 17) {
    const auto at = static_cast<int64_t>(row);
    float alone = 0;
    device.forward().TokenLogProbs(x.Rows(at, 1), RowMajor(head), vocab - 7, &targets[row],
                                   ones.data(), &alone, nullptr);
    INFO("row " << row);
    REQUIRE(alone == log_probs[row]);
    REQUIRE(sampled[row].log_prob == log_probs[row]);
  }
}

}  // namespace tandem
