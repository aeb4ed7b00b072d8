// The calls to cuBLASLt, as a stand-in for the library interprets them.
#include <cstdlib>
#include <vector>

#include <catch2/catch.hpp>

#include "common/ops/cuda/linear/cublaslt_api.h"
#include "common/ops/cuda/linear/linear.h"
#include "tests/common/ops/cuda/linear/gemm_fixture.h"
#include "tests/emulator/emulated_cuda.h"

namespace tandem {
namespace {

using testing::DeviceMatrix;

Gemm Product(GemmKind kind, const DeviceMatrix& a, const DeviceMatrix& b) {
  return {.kind = kind,
          .m = kind == GemmKind::kWeights ? a.cols() : a.rows(),
          .n = kind == GemmKind::kForward ? b.rows() : b.cols(),
          .k = kind == GemmKind::kWeights ? a.rows() : a.cols(),
          .a = a.data(),
          .a_stride = a.stride(),
          .b = b.data(),
          .b_stride = b.stride()};
}

TEST_CASE("cuBLASLt is found by the folder that is named", "[ops][cuda][lt]") {
  const auto lt = OpenLt();
  INFO(lt.status());
  REQUIRE(lt.ok());
  REQUIRE((*lt)->version() == "13.2.3");
}

TEST_CASE("A device without memory for cuBLASLt is no machine without it", "[ops][cuda][lt]") {
  setenv("FAKE_CUBLASLT_NO_MEMORY", "1", 1);
  const absl::Status opened = OpenLt().status();
  // Nor do our own kernels stand in for it: the other workers' bits are the library's.
  emulator::EmulatedCuda cuda;
  const auto context = CudaContext::Create(&cuda, 0).value();
  const absl::Status made = CudaLinear::Create(context.get(), {}).status();
  unsetenv("FAKE_CUBLASLT_NO_MEMORY");
  REQUIRE(absl::IsResourceExhausted(opened));
  REQUIRE(absl::IsResourceExhausted(made));
  REQUIRE(made.message().find("opening cuBLASLt: cublasLtCreate") == 0);
}

TEST_CASE("Candidates are read with their configuration", "[ops][cuda][lt]") {
  const auto lt = OpenLt().value();
  const DeviceMatrix a = DeviceMatrix::Random(16, 24, 1), b = DeviceMatrix::Random(40, 24, 2);
  const DeviceMatrix c(16, 40);
  Gemm gemm = Product(GemmKind::kForward, a, b);
  gemm.c = c.data();
  gemm.c_stride = c.stride();
  const std::vector<LtAlgorithm> found = lt->Candidates(gemm, 8).value();
  REQUIRE(found.size() == 2);  // the one in between cannot run
  REQUIRE(found[0].id == 66);
  REQUIRE(found[0].tile == 20);
  REQUIRE(found[0].split_k == 1);
  REQUIRE(found[0].workspace_bytes == 0);
  REQUIRE(found[1].id == 68);
  REQUIRE(found[1].split_k == 4);
  REQUIRE(found[1].workspace_bytes == 1024);
  REQUIRE(lt->Candidates(gemm, 1).value().size() == 1);
  gemm.m = 7;
  REQUIRE(lt->Candidates(gemm, 8).value().empty());  // it knows none: no error
}

TEST_CASE("Products come back row-major, of every kind", "[ops][cuda][lt]") {
  const auto lt = OpenLt().value();
  const DeviceMatrix bias = DeviceMatrix::Random(1, 40, 3);
  const DeviceMatrix in = DeviceMatrix::Random(19, 24, 1, 32);
  const DeviceMatrix weight = DeviceMatrix::Random(40, 24, 2);
  const DeviceMatrix dout = DeviceMatrix::Random(19, 40, 4, 56);
  std::vector<Gemm> products = {
      Product(GemmKind::kForward, in, weight), Product(GemmKind::kForward, in, weight),
      Product(GemmKind::kInput, dout, weight), Product(GemmKind::kWeights, dout, in)};
  products[1].bias = bias.data();
  for (Gemm& gemm : products) {
    const DeviceMatrix c(gemm.m, gemm.n, gemm.n + 8, -77.0f);
    gemm.c = c.data();
    gemm.c_stride = c.stride();
    std::vector<float> sums(static_cast<size_t>(gemm.m * gemm.n), 0.5f);
    if (gemm.kind == GemmKind::kWeights) {
      gemm.output = GemmOutput::kFloatAdd;
      gemm.c = sums.data();
      gemm.c_stride = gemm.n;
    }
    const std::vector<float> before = gemm.kind == GemmKind::kWeights ? sums : std::vector<float>();
    const LtAlgorithm algorithm = lt->Candidates(gemm, 1).value()[0];
    REQUIRE(lt->Run(gemm, algorithm, nullptr).ok());
    INFO("kind " << static_cast<int>(gemm.kind));
    REQUIRE(testing::WorstError(gemm, before) < 1.0f);
    REQUIRE(c.ChangedGaps() == 0);
  }
  // fp32 logits.
  Gemm logits = products[0];
  std::vector<float> out(19 * 44);
  logits.output = GemmOutput::kFloat;
  logits.c = out.data();
  logits.c_stride = 44;
  REQUIRE(lt->Run(logits, lt->Candidates(logits, 1).value()[0], nullptr).ok());
  REQUIRE(testing::WorstError(logits, {}) < 1.0f);
}

TEST_CASE("An algorithm that does not fit is refused as such", "[ops][cuda][lt]") {
  const auto lt = OpenLt().value();
  const DeviceMatrix in = DeviceMatrix::Random(16, 24, 1), weight = DeviceMatrix::Random(40, 24, 2);
  const DeviceMatrix out(16, 40);
  Gemm gemm = Product(GemmKind::kForward, in, weight);
  gemm.c = out.data();
  gemm.c_stride = out.stride();
  const absl::Status status = lt->Run(gemm, lt->Candidates(gemm, 2).value()[1], nullptr);
  REQUIRE(absl::IsInvalidArgument(status));
  REQUIRE(status.message().find("cublasLtMatmul") == 0);
}

}  // namespace
}  // namespace tandem
