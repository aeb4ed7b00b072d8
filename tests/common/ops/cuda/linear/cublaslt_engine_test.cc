// How CudaLinear chooses between cuBLASLt and our own kernels.
#include "common/ops/cuda/linear/cublaslt_engine.h"

#include <cstdlib>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "common/ops/cuda/linear/linear.h"
#include "tests/common/ops/cuda/linear/fake_lt.h"
#include "tests/common/ops/cuda/linear/gemm_fixture.h"
#include "tests/emulator/emulated_cuda.h"
#include "tests/emulator/emulator.h"

namespace tandem {
namespace {

using testing::DeviceMatrix;
using testing::FakeLt;
using testing::LtFault;

struct LtEngineBench {
  explicit LtEngineBench(std::vector<LtAlgorithm> offered) {
    context = CudaContext::Create(&cuda, 0).value();
    auto fake = std::make_unique<FakeLt>();
    lt = fake.get();
    lt->Offer(1 << 20, std::move(offered));
    CudaLinearOptions options;
    options.lt = std::move(fake);
    options.proof = {.buckets = {16, 32}, .reference_rows = 48};
    linear = CudaLinear::Create(context.get(), std::move(options)).value();
  }
  void Forward(const DeviceMatrix& out) {
    linear->Forward(in.Rows(0, out.rows()), weight.weight(), out.view());
  }

  emulator::EmulatedCuda cuda;
  std::unique_ptr<CudaContext> context;
  FakeLt* lt = nullptr;
  std::unique_ptr<CudaLinear> linear;
  const DeviceMatrix in = DeviceMatrix::Random(20, 48, 7);
  const DeviceMatrix weight = DeviceMatrix::Random(24, 48, 5);
};

const LtAlgorithm kGood = FakeLt::Algorithm(LtFault::kNone, 3);
const LtAlgorithm kBad = FakeLt::Algorithm(LtFault::kDropsTail);

TEST_CASE("A proved shape is the library's, with the pinned algorithm", "[ops][cuda][lt]") {
  LtEngineBench bench({kBad, kGood});
  REQUIRE(bench.linear->numerics() == "cublaslt-13.0.0");
  REQUIRE(bench.linear->Prepare({{.n = 24, .k = 48}}).ok());
  bench.lt->ids_run.clear();
  const int64_t kernels = emulator::KernelsRun();
  const DeviceMatrix out(20, 24);
  bench.Forward(out);
  REQUIRE(bench.lt->ids_run == std::vector<int>{kGood.id});
  // 20 rows become 32: there and back through scratch.
  REQUIRE(bench.lt->rows_run.back() == 32);
  REQUIRE(emulator::KernelsRun() == kernels + 2);
  REQUIRE(bench.context->Synchronize().ok());
  REQUIRE(bench.linear->Choices() ==
          KernelChoices{{"linear [24 x 48]",
                         "cuBLASLt algorithm 300 tile 0 up to 16 rows, algorithm 300 tile 0 up to "
                         "32 rows"}});
}

TEST_CASE("A shape without an algorithm stays our own kernels', for any number of rows",
          "[ops][cuda][lt]") {
  LtEngineBench bench({kBad});
  REQUIRE(bench.linear->Prepare({{.n = 24, .k = 48}}).ok());
  bench.lt->ids_run.clear();
  for (const int64_t rows : {1, 16, 20}) {
    const int64_t kernels = emulator::KernelsRun();
    bench.Forward(DeviceMatrix(rows, 24));
    REQUIRE(emulator::KernelsRun() == kernels + 1);
  }
  REQUIRE(bench.lt->ids_run.empty());
  REQUIRE(bench.linear->Choices().at("linear [24 x 48]") == "own kernels");
}

TEST_CASE("A shape is proved once, at its first use where nothing is prepared", "[ops][cuda][lt]") {
  LtEngineBench bench({kGood});
  bench.Forward(DeviceMatrix(20, 24));
  const size_t proof = bench.lt->ids_run.size();
  REQUIRE(proof > 2);
  bench.Forward(DeviceMatrix(3, 24));
  REQUIRE(bench.linear->Prepare({{.n = 24, .k = 48}}).ok());
  REQUIRE(bench.lt->ids_run.size() == proof + 1);
  // With a bias, in fp32, and of the input, it is another shape.
  using Use = LinearShape::Use;
  REQUIRE(bench.linear
              ->Prepare({{.n = 24, .k = 48, .bias = true},
                         {.use = Use::kLogits, .n = 24, .k = 48},
                         {.use = Use::kInput, .n = 24, .k = 48},
                         {.use = Use::kAddInput, .n = 24, .k = 48}})
              .ok());
  REQUIRE(bench.linear->Choices().size() == 5);
  for (const auto& [shape, choice] : bench.linear->Choices()) {
    INFO(shape);
    REQUIRE(choice.find("cuBLASLt algorithm 300") == 0);
  }
  REQUIRE(bench.context->Synchronize().ok());
}

TEST_CASE("More rows than were proved go in pieces, and have the same bits", "[ops][cuda][lt]") {
  LtEngineBench bench({kGood});
  REQUIRE(bench.linear
              ->Prepare({{.n = 24, .k = 48}, {.use = LinearShape::Use::kLogits, .n = 24, .k = 48}})
              .ok());
  const DeviceMatrix in = DeviceMatrix::Random(77, 48, 9);
  const DeviceMatrix whole(77, 24), one(1, 24);
  bench.lt->rows_run.clear();
  bench.linear->Forward(in.Rows(0, 77), bench.weight.weight(), whole.view());
  REQUIRE(bench.lt->rows_run == std::vector<int64_t>{32, 32, 16});  // the last one of 13
  std::vector<float> logits(77 * 24), row(24);
  bench.linear->Logits(in.Rows(0, 77), bench.weight.weight(), 0, 24, logits.data(), 24);
  for (int64_t i = 0; i < 77; ++i) {
    bench.linear->Forward(in.Rows(i, 1), bench.weight.weight(), one.view());
    bench.linear->Logits(in.Rows(i, 1), bench.weight.weight(), 0, 24, row.data(), 24);
    REQUIRE(bench.context->Synchronize().ok());
    REQUIRE(whole.SameRow(i, one, 0));
    REQUIRE(std::equal(row.begin(), row.end(), logits.begin() + i * 24));
  }
}

TEST_CASE("The library is given whole sixteens of rows, and nothing behind a matrix is written",
          "[ops][cuda][lt]") {
  constexpr int64_t kRoom = 80;
  for (const int64_t cols : {24, 20}) {
    LtEngineBench bench({kGood});
    const DeviceMatrix weight = DeviceMatrix::Random(cols, 48, 5);
    for (const int64_t rows : {1, 15, 16, 17, 20, 32, 33, 48, 50, 64, 71}) {
      INFO(rows << " rows, " << cols << " columns");
      const DeviceMatrix in = DeviceMatrix::Random(rows, 48, 9, 64);
      DeviceMatrix out(kRoom, cols, 32, -7.5f);  // in the gaps, and behind the rows
      bench.linear->Forward(in.view(), weight.weight(), out.Rows(0, rows));
      REQUIRE(bench.context->Synchronize().ok());
      const Gemm want = {.m = rows,
                         .n = cols,
                         .k = 48,
                         .a = in.data(),
                         .a_stride = in.stride(),
                         .b = weight.data(),
                         .b_stride = weight.stride(),
                         .c = out.data(),
                         .c_stride = out.stride()};
      REQUIRE(testing::WorstError(want, {}) < 1.0f);
      REQUIRE(out.ChangedGaps() == 0);
      for (int64_t row = rows; row < kRoom; ++row) {
        for (int64_t col = 0; col < cols; ++col) REQUIRE(out.At(row, col) == -7.5f);
      }
    }
    REQUIRE(bench.lt->rows_run.size() > 11);
    for (const int64_t rows : bench.lt->rows_run) REQUIRE(rows % 16 == 0);
  }
}

TEST_CASE("Without memory to fill rows up a step fails, and the next one has it",
          "[ops][cuda][lt]") {
  LtEngineBench bench({kGood});
  REQUIRE(bench.linear->Prepare({{.n = 24, .k = 48}}).ok());
  bench.lt->ids_run.clear();
  bench.cuda.FailCall("Malloc", absl::ResourceExhaustedError("full"));
  const DeviceMatrix out(20, 24);
  bench.Forward(out);
  REQUIRE(bench.lt->ids_run.empty());
  REQUIRE(absl::IsResourceExhausted(bench.context->Synchronize()));
  bench.Forward(out);
  REQUIRE(bench.context->Synchronize().ok());
  REQUIRE(bench.lt->ids_run.size() == 1);
}

TEST_CASE("A shape is proved inside a graph's first step, and the graph does it again",
          "[ops][cuda][lt]") {
  LtEngineBench bench({kBad});
  const DeviceMatrix out(5, 24);  // where every step writes: a graph keeps its address
  for (int step = 0; step < 3; ++step) {
    const int64_t kernels = emulator::KernelsRun();
    bench.context->BeginGraph(1);
    bench.Forward(out);
    REQUIRE(bench.context->EndGraph());
    REQUIRE(bench.context->Synchronize().ok());
    if (step > 0) REQUIRE(emulator::KernelsRun() == kernels + 1);
  }
}

TEST_CASE("What is free decides nothing: without memory for a proof there is no choice",
          "[ops][cuda][lt]") {
  LtEngineBench bench({kGood});
  bench.cuda.FailCall("Malloc", absl::ResourceExhaustedError("no memory"));
  const absl::Status status = bench.linear->Prepare({{.n = 24, .k = 48}});
  REQUIRE(absl::IsResourceExhausted(status));
  const std::string message(status.message());
  INFO(message);
  REQUIRE(message.find("linear [24 x 48]") != std::string::npos);
  const int64_t bytes = ProofBytes({.n = 24, .k = 48}, {.buckets = {16, 32}, .reference_rows = 48});
  REQUIRE(message.find(fmt::format("take {} bytes", bytes)) != std::string::npos);
  REQUIRE(bench.linear->Choices().empty());
  // Asked again, it comes to what every other worker has come to.
  REQUIRE(bench.linear->Prepare({{.n = 24, .k = 48}}).ok());
  LtEngineBench other({kGood});
  REQUIRE(other.linear->Prepare({{.n = 24, .k = 48}}).ok());
  REQUIRE(other.linear->Choices() == bench.linear->Choices());
  REQUIRE(other.linear->Choices().at("linear [24 x 48]").find("cuBLASLt") == 0);
}

TEST_CASE("A product whose proof has no memory fails its step and decides nothing",
          "[ops][cuda][lt]") {
  LtEngineBench bench({kGood});
  bench.cuda.FailCall("Malloc", absl::ResourceExhaustedError("no memory"));
  bench.Forward(DeviceMatrix(3, 24));
  REQUIRE(absl::IsResourceExhausted(bench.context->Synchronize()));
  REQUIRE(bench.linear->Choices().empty());
  bench.Forward(DeviceMatrix(3, 24));
  REQUIRE(bench.context->Synchronize().ok());
  REQUIRE(bench.linear->Choices().at("linear [24 x 48]").find("cuBLASLt") == 0);
}

TEST_CASE("A device that fails at a proof is an error, now or at the step's end",
          "[ops][cuda][lt]") {
  LtEngineBench bench({kGood});
  bench.cuda.FailCall("Malloc", absl::InternalError("lost"));
  const absl::Status status = bench.linear->Prepare({{.n = 24, .k = 48}});
  REQUIRE(absl::IsInternal(status));
  REQUIRE(status.message().find("linear [24 x 48]") != std::string::npos);
  REQUIRE(bench.linear->Choices().empty());
  bench.cuda.FailCall("Malloc", absl::InternalError("lost"));
  bench.Forward(DeviceMatrix(3, 24));
  REQUIRE(absl::IsInternal(bench.context->Synchronize()));
  REQUIRE(bench.context->Synchronize().ok());
}

TEST_CASE("After the start no shape is proved any more", "[ops][cuda][lt]") {
  LtEngineBench bench({kGood});
  REQUIRE(bench.linear->Prepare({{.n = 32, .k = 48}}).ok());
  bench.lt->ids_run.clear();
  bench.cuda.ForgetCalls();
  bench.Forward(DeviceMatrix(20, 24));
  REQUIRE(bench.lt->ids_run.empty());
  REQUIRE(bench.cuda.calls().empty());
  REQUIRE(bench.linear->Choices().at("linear [24 x 48]") == "own kernels");
  REQUIRE(bench.context->Synchronize().ok());
}

TEST_CASE("Gradients of inputs are added piece by piece", "[ops][cuda][lt]") {
  for (const LtAlgorithm& offered : {kGood, kBad}) {
    LtEngineBench bench({offered});
    const DeviceMatrix dout = DeviceMatrix::Random(20, 24, 3);
    std::vector<float> sums(20 * 48, 0.25f);
    const FloatMatrix din = {sums.data(), 20, 48, 48};
    LinearWeight piece = bench.weight.weight();
    piece.rows = 16;
    bench.linear->AddInput({dout.data(), 20, 16, dout.stride()}, piece, din);
    piece.values += 16 * 48 * 2;
    piece.rows = 8;
    bench.linear->AddInput({dout.data() + 16, 20, 8, dout.stride()}, piece, din);
    REQUIRE(bench.context->Synchronize().ok());
    const std::string choice = bench.linear->Choices().at("input, added, [48 x 16]");
    REQUIRE((choice == "own kernels") == (offered == kBad));
    const Gemm whole = {.kind = GemmKind::kInput,
                        .output = GemmOutput::kFloatAdd,
                        .m = 20,
                        .n = 48,
                        .k = 24,
                        .a = dout.data(),
                        .a_stride = dout.stride(),
                        .b = bench.weight.data(),
                        .b_stride = 48,
                        .c = sums.data(),
                        .c_stride = 48};
    REQUIRE(testing::WorstError(whole, std::vector<float>(20 * 48, 0.25f)) < 1.0f);
  }
}

TEST_CASE("Gradients of weights take the first algorithm that does not split", "[ops][cuda][lt]") {
  LtAlgorithm split = FakeLt::Algorithm(LtFault::kNone, 1);
  split.split_k = 4;
  LtEngineBench bench({split, kGood});
  const DeviceMatrix dout = DeviceMatrix::Random(20, 24, 3);
  std::vector<float> dweight(24 * 48, 0.25f), dbias(24), expected = dweight;
  bench.linear->Weights(dout.view(), bench.in.view(), dweight.data(), dbias.data());
  REQUIRE(bench.lt->ids_run == std::vector<int>{kGood.id});
  const Gemm gemm = {.kind = GemmKind::kWeights,
                     .output = GemmOutput::kFloatAdd,
                     .m = 24,
                     .n = 48,
                     .k = 20,
                     .a = dout.data(),
                     .a_stride = dout.stride(),
                     .b = bench.in.data(),
                     .b_stride = bench.in.stride(),
                     .c = dweight.data(),
                     .c_stride = 48};
  REQUIRE(testing::WorstError(gemm, expected) < 1.0f);
  float sum = 0;
  for (int64_t i = 0; i < 20; ++i) sum += dout.At(i, 5);
  REQUIRE(dbias[5] == Approx(sum).margin(1e-4));
  // Our own kernels where there is none.
  LtEngineBench without({split});
  without.linear->Weights(dout.view(), bench.in.view(), dweight.data(), nullptr);
  REQUIRE(without.lt->ids_run.empty());
}

TEST_CASE("What the library cannot do shows at the step's end", "[ops][cuda][lt]") {
  LtEngineBench bench({FakeLt::Algorithm(LtFault::kBreaks)});
  const DeviceMatrix dout = DeviceMatrix::Random(20, 24, 3);
  std::vector<float> dweight(24 * 48);
  bench.linear->Weights(dout.view(), bench.in.view(), dweight.data(), nullptr);
  REQUIRE(absl::IsInternal(bench.context->Synchronize()));
}

TEST_CASE("Our own kernels alone can be asked for, by a test and by the environment",
          "[ops][cuda][lt]") {
  LtEngineBench bench({kGood});
  CudaLinearOptions options;
  options.engine = CudaLinearOptions::Engine::kOwn;
  options.lt = std::make_unique<FakeLt>();
  const auto own = CudaLinear::Create(bench.context.get(), std::move(options)).value();
  REQUIRE(own->numerics() == "own");
  const auto asked = [&](const char* value) {
    setenv("TANDEM_CUDA_LINEAR", value, 1);
    CudaLinearOptions with_lt;
    with_lt.lt = std::make_unique<FakeLt>();
    auto made = CudaLinear::Create(bench.context.get(), std::move(with_lt));
    unsetenv("TANDEM_CUDA_LINEAR");
    return made;
  };
  REQUIRE((*asked("own"))->numerics() == "own");
  const absl::Status refused = asked("mine").status();
  REQUIRE(absl::IsInvalidArgument(refused));
  REQUIRE(refused.message().find("TANDEM_CUDA_LINEAR is \"mine\"") == 0);
}

}  // namespace
}  // namespace tandem
