// Which algorithms pass the test of row invariance.
#include "common/ops/cuda/linear/row_invariance.h"

#include <catch2/catch.hpp>

#include "tests/common/ops/cuda/linear/fake_lt.h"
#include "tests/emulator/emulated_cuda.h"

namespace tandem {
namespace {

using testing::FakeLt;
using testing::LtFault;

constexpr LtFault kRowFaults[] = {LtFault::kByRows, LtFault::kByPlace, LtFault::kByNeighbour,
                                  LtFault::kLeavesOut, LtFault::kRefusesFew};

struct LtProofBench {
  LtProofBench() { context = CudaContext::Create(&cuda, 0).value(); }
  absl::StatusOr<PinnedAlgorithms> Prove() { return ProveRows(context.get(), &lt, shape, plan); }
  static LtAlgorithm Algorithm(LtFault fault, int number = 0) {
    return FakeLt::Algorithm(fault, number);
  }

  emulator::EmulatedCuda cuda;
  std::unique_ptr<CudaContext> context;
  FakeLt lt;
  LtShape shape = {.output = GemmOutput::kFloat, .n = 24, .k = 48};
  RowInvariancePlan plan = {.buckets = {16, 32}, .reference_rows = 48};
};

TEST_CASE("The first candidate of every bucket is pinned where all are row-invariant",
          "[ops][cuda][lt]") {
  LtProofBench bench;
  bench.lt.Offer(
      16, {LtProofBench::Algorithm(LtFault::kNone, 1), LtProofBench::Algorithm(LtFault::kNone, 2)});
  bench.lt.Offer(32, {LtProofBench::Algorithm(LtFault::kNone, 3)});
  bench.lt.Offer(48, {LtProofBench::Algorithm(LtFault::kNone, 4)});
  const absl::StatusOr<PinnedAlgorithms> pins = bench.Prove();
  REQUIRE(pins.ok());
  REQUIRE(pins->For(1).id == 100);
  REQUIRE(pins->For(16).id == 100);
  REQUIRE(pins->For(17).id == 300);
  REQUIRE(pins->For(32).id == 300);
  REQUIRE(pins->For(100000).id == 300);
  // Asked with whole sixteens of rows, which no matrix-vector kernel serves.
  for (const int64_t rows : bench.lt.rows_asked) REQUIRE(rows % 16 == 0);
}

TEST_CASE("A candidate whose rows depend on anything is passed over", "[ops][cuda][lt]") {
  for (const LtFault fault : kRowFaults) {
    LtProofBench bench;
    bench.lt.Offer(16,
                   {LtProofBench::Algorithm(fault), LtProofBench::Algorithm(LtFault::kNone, 1)});
    bench.lt.Offer(48, {LtProofBench::Algorithm(LtFault::kNone, 2)});
    const absl::StatusOr<PinnedAlgorithms> pins = bench.Prove();
    INFO("fault " << static_cast<int>(fault));
    REQUIRE(pins.ok());
    REQUIRE(pins->For(1).id == 100);
    REQUIRE(pins->For(32).id == 200);
  }
}

TEST_CASE("Gradients of inputs and biases are proved as well, in bf16", "[ops][cuda][lt]") {
  for (const bool bias : {false, true}) {
    LtProofBench bench;
    bench.shape = {
        .kind = bias ? GemmKind::kForward : GemmKind::kInput, .n = 24, .k = bias ? 40 : 44};
    bench.shape.bias = bias;
    bench.lt.Offer(16, {LtProofBench::Algorithm(LtFault::kLeavesOut),
                        LtProofBench::Algorithm(LtFault::kNone, 1)});
    bench.lt.Offer(48, {LtProofBench::Algorithm(LtFault::kDropsTail),
                        LtProofBench::Algorithm(LtFault::kNone, 2)});
    const absl::StatusOr<PinnedAlgorithms> pins = bench.Prove();
    REQUIRE(pins.ok());
    REQUIRE(pins->For(1).id == 100);
    REQUIRE(pins->For(32).id == 200);
  }
}

TEST_CASE("Row-invariant alone is not enough: all buckets have the same bits", "[ops][cuda][lt]") {
  LtProofBench bench;
  bench.lt.Offer(16, {LtProofBench::Algorithm(LtFault::kOtherOrder),
                      LtProofBench::Algorithm(LtFault::kNone, 1)});
  bench.lt.Offer(48, {LtProofBench::Algorithm(LtFault::kNone, 2)});
  REQUIRE(bench.Prove()->For(1).id == 100);
  // Where nothing else is offered, the reference serves the bucket itself.
  bench.lt.Offer(16, {LtProofBench::Algorithm(LtFault::kOtherOrder)});
  REQUIRE(bench.Prove()->For(1).id == 200);
}

TEST_CASE("A reference that is not like itself gives way to the next one", "[ops][cuda][lt]") {
  for (const LtFault fault : {LtFault::kByPlace, LtFault::kByNeighbour, LtFault::kDropsTail}) {
    LtProofBench bench;
    bench.lt.Offer(
        48, {LtProofBench::Algorithm(fault), LtProofBench::Algorithm(LtFault::kOtherOrder, 1)});
    const absl::StatusOr<PinnedAlgorithms> pins = bench.Prove();
    INFO("fault " << static_cast<int>(fault));
    REQUIRE(pins.ok());
    for (const int64_t rows : {1, 20, 40}) {
      REQUIRE(pins->For(rows) == LtProofBench::Algorithm(LtFault::kOtherOrder, 1));
    }
  }
}

TEST_CASE("Splits are not even tried", "[ops][cuda][lt]") {
  LtAlgorithm split = LtProofBench::Algorithm(LtFault::kNone), reduced = split,
              with_workspace = split;
  split.split_k = 2;
  reduced.reduction = 1;
  with_workspace.workspace_bytes = 32;
  for (const LtAlgorithm& one : {split, reduced, with_workspace}) {
    REQUIRE(!MayBeRowInvariant(one));
    LtProofBench bench;
    bench.lt.Offer(48, {one});
    REQUIRE(absl::IsNotFound(bench.Prove().status()));
    REQUIRE(bench.lt.ids_run.empty());
  }
  REQUIRE(MayBeRowInvariant(LtProofBench::Algorithm(LtFault::kNone)));
}

TEST_CASE("Without an algorithm that passes there is no pin", "[ops][cuda][lt]") {
  for (const LtFault fault : kRowFaults) {
    LtProofBench bench;
    bench.lt.Offer(48, {LtProofBench::Algorithm(fault)});
    const absl::Status status = bench.Prove().status();
    INFO("fault " << static_cast<int>(fault) << ": " << status);
    REQUIRE(absl::IsNotFound(status));
    REQUIRE(status.message().find("1 references") != std::string::npos);
  }
  LtProofBench nothing_offered;
  REQUIRE(absl::IsNotFound(nothing_offered.Prove().status()));
}

TEST_CASE("A device that breaks, and memory that is short, are errors", "[ops][cuda][lt]") {
  LtProofBench bench;
  bench.lt.Offer(48, {LtProofBench::Algorithm(LtFault::kBreaks)});
  REQUIRE(absl::IsInternal(bench.Prove().status()));
  bench.cuda.FailCall("Malloc", absl::ResourceExhaustedError("no memory"));
  const absl::Status status = bench.Prove().status();
  REQUIRE(absl::IsResourceExhausted(status));
  REQUIRE(status.message().find("row-invariance proof") != std::string::npos);
  REQUIRE(status.message().find(std::to_string(ProofBytes(bench.shape, bench.plan))) !=
          std::string::npos);
}

TEST_CASE("The proof gives its memory back", "[ops][cuda][lt]") {
  LtProofBench bench;
  const int64_t before = bench.cuda.used_bytes();
  bench.lt.Offer(48, {LtProofBench::Algorithm(LtFault::kNone)});
  bench.shape.bias = true;
  REQUIRE(bench.Prove().ok());
  REQUIRE(bench.cuda.used_bytes() == before);
  bench.cuda.FailCall("Synchronize", absl::InternalError("lost"));
  REQUIRE(absl::IsInternal(bench.Prove().status()));
  REQUIRE(bench.cuda.used_bytes() == before);
  // in, weight, bias, twice the result: each a multiple of 256 bytes.
  REQUIRE(ProofBytes(bench.shape, bench.plan) >=
          48 * 48 * 2 + 24 * 48 * 2 + 24 * 2 + 2 * 48 * 24 * 4);
}

TEST_CASE("The proof stays within the memory it is granted, or is not made", "[ops][cuda][lt]") {
  // The largest shapes of an 8B model: MLP, a group of the head, and its gradient.
  const RowInvariancePlan plan;
  for (const LtShape& shape :
       {LtShape{.n = 28672, .k = 4096},
        LtShape{.output = GemmOutput::kFloat, .n = 16384, .k = 4096},
        LtShape{
            .kind = GemmKind::kInput, .output = GemmOutput::kFloatAdd, .n = 4096, .k = 16384}}) {
    REQUIRE(ReferenceRows(shape, plan) == plan.reference_rows);
    REQUIRE(ProofBytes(shape, plan) < int64_t{600} << 20);
  }
  // Of a larger one the reference is shorter, and as long as fits.
  const LtShape large = {.n = 51200, .k = 5120};
  const int64_t rows = ReferenceRows(large, plan);
  REQUIRE(rows > plan.buckets.back());
  REQUIRE(rows < plan.reference_rows);
  REQUIRE(ProofBytes(large, plan) <= plan.most_bytes);
  REQUIRE(ProofBytes(large, plan) > plan.most_bytes - (4 << 20));
  // A whole head's weight alone is too much.
  const LtShape head = {.kind = GemmKind::kInput, .n = 4096, .k = 151936};
  REQUIRE(ReferenceRows(head, plan) == 0);
  REQUIRE(ProofBytes(head, plan) == 0);

  LtProofBench bench;
  bench.lt.Offer(64, {LtProofBench::Algorithm(LtFault::kNone)});
  bench.plan.reference_rows = 64;
  const int64_t all = ProofBytes(bench.shape, bench.plan);
  bench.plan.most_bytes = all - 2000;
  REQUIRE(ReferenceRows(bench.shape, bench.plan) == 48);
  REQUIRE(bench.Prove().ok());
  bench.plan.most_bytes = all / 2;
  bench.cuda.ForgetCalls();
  // Every process says so of this shape, whatever its device has free.
  REQUIRE(absl::IsNotFound(bench.Prove().status()));
  REQUIRE(bench.cuda.calls().empty());
}

TEST_CASE("Gradients that are added are proved over zeros", "[ops][cuda][lt]") {
  LtProofBench bench;
  bench.shape = {.kind = GemmKind::kInput, .output = GemmOutput::kFloatAdd, .n = 24, .k = 44};
  bench.lt.Offer(16, {LtProofBench::Algorithm(LtFault::kLeavesOut),
                      LtProofBench::Algorithm(LtFault::kNone, 1)});
  bench.lt.Offer(48, {LtProofBench::Algorithm(LtFault::kDropsTail),
                      LtProofBench::Algorithm(LtFault::kNone, 2)});
  const absl::StatusOr<PinnedAlgorithms> pins = bench.Prove();
  REQUIRE(pins.ok());
  REQUIRE(pins->For(1).id == 100);
  REQUIRE(pins->For(32).id == 200);
}

TEST_CASE("Every number of rows that is run is tried", "[ops][cuda][lt]") {
  const RowInvariancePlan plan;
  REQUIRE(RowsToTry(plan, 0) == std::vector<int64_t>{16});
  REQUIRE(RowsToTry(plan, 1) == std::vector<int64_t>{32});
  std::vector<int64_t> all;
  for (size_t bucket = 0; bucket < plan.buckets.size(); ++bucket) {
    for (const int64_t rows : RowsToTry(plan, bucket)) all.push_back(rows);
  }
  REQUIRE(all.size() == 2048 / 16);
  for (size_t i = 0; i < all.size(); ++i) REQUIRE(all[i] == 16 * static_cast<int64_t>(i + 1));

  LtProofBench bench;
  bench.lt.Offer(48, {LtProofBench::Algorithm(LtFault::kNone)});
  REQUIRE(bench.Prove().ok());
  for (const int64_t rows : bench.lt.rows_run) REQUIRE(rows % 16 == 0);
}

}  // namespace
}  // namespace tandem
