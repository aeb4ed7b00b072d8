#include "common/ops/cuda/linear/cublaslt_engine.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>

#include <fmt/format.h>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/memory/cuda_scratch.h"
#include "common/memory/op_sizes.h"
#include "common/ops/cuda/linear/copy_rows.h"

namespace tandem {
namespace {

LtShape LtShapeOf(const Gemm& gemm) {
  return {gemm.kind, gemm.output, gemm.n, gemm.k, gemm.bias != nullptr};
}

}  // namespace

std::string LtShapeName(const LtShape& shape) {
  std::string name = shape.kind == GemmKind::kInput ? "input" : "linear";
  if (shape.output == GemmOutput::kFloat) name += ", fp32 out,";
  if (shape.output == GemmOutput::kFloatAdd) name += ", added,";
  return fmt::format("{} [{} x {}]{}", name, shape.n, shape.k, shape.bias ? " with bias" : "");
}

CublasLtGemm::CublasLtGemm(CudaContext* context,
                           std::unique_ptr<LtApi> lt,
                           RowInvariancePlan plan,
                           GemmEngine* other)
    : context_(context), lt_(std::move(lt)), plan_(std::move(plan)), other_(other) {}

void CublasLtGemm::LeaveToOther(const LtShape& shape, const std::string& why) {
  LogWarn("{}: {}: {}", LtShapeName(shape), kOwnKernels, why);
  pins_[shape] = std::nullopt;
}

absl::Status CublasLtGemm::Prepare(const LtShape& shape) {
  if (pins_.contains(shape)) return absl::OkStatus();
  absl::StatusOr<PinnedAlgorithms> proved = ProveRows(context_, lt_.get(), shape, plan_);
  // The choice of the engine must not depend on anything that differs between processes: a worker
  // that starts beside a busy partner has less memory, and must still choose alike.
  if (absl::IsNotFound(proved.status())) {
    LeaveToOther(shape, std::string(proved.status().message()));
    return absl::OkStatus();
  }
  TANDEM_RETURN_IF_ERROR(
      Annotate(proved.status(), LtShapeName(shape) + ": the proof of cuBLASLt's row invariance"));
  pins_[shape] = *std::move(proved);
  return absl::OkStatus();
}

const std::optional<PinnedAlgorithms>& CublasLtGemm::Decided(const LtShape& shape) {
  static const std::optional<PinnedAlgorithms> undecided;
  const auto found = pins_.find(shape);
  if (found != pins_.end()) return found->second;
  if (sealed_) {
    LeaveToOther(shape, "the shape was not among those that were decided at the start");
  } else {
    context_->Keep(Prepare(shape));
  }
  const auto decided = pins_.find(shape);
  return decided != pins_.end() ? decided->second : undecided;
}

namespace {

int64_t OutBytes(const Gemm& gemm) { return gemm.output == GemmOutput::kBf16 ? 2 : 4; }

// Rows of a and c.
Gemm RowsOf(const Gemm& gemm, int64_t first, int64_t count) {
  Gemm rows = gemm;
  rows.m = count;
  rows.a = static_cast<const std::byte*>(gemm.a) + first * gemm.a_stride * 2;
  rows.c = static_cast<std::byte*>(gemm.c) + first * gemm.c_stride * OutBytes(gemm);
  return rows;
}

cuda::RowBytes RowsOfA(const Gemm& gemm) { return {const_cast<void*>(gemm.a), gemm.a_stride * 2}; }
cuda::RowBytes RowsOfC(const Gemm& gemm) { return {gemm.c, gemm.c_stride * OutBytes(gemm)}; }

}  // namespace

void CublasLtGemm::Run(const Gemm& gemm) {
  if (gemm.kind == GemmKind::kWeights) return RunWeights(gemm);
  const std::optional<PinnedAlgorithms>& pins = Decided(LtShapeOf(gemm));
  if (!pins.has_value()) return other_->Run(gemm);
  const bool few = gemm.m <= std::min(kFewProductRows, pins->buckets.back());
  const int64_t left = few && gemm.m % kProductRows != 0 ? gemm.m : gemm.m % kProductRows;
  RunWhole(RowsOf(gemm, 0, gemm.m - left), *pins);
  if (left > 0) RunPadded(RowsOf(gemm, gemm.m - left, left), *pins);
}

void CublasLtGemm::RunWhole(const Gemm& gemm, const PinnedAlgorithms& pins) {
  // Products with more rows than were proved are split into pieces that were: a row's bits do not
  // depend on its piece.
  const int64_t most = pins.buckets.back();
  for (int64_t first = 0; first < gemm.m; first += most) {
    const Gemm piece = RowsOf(gemm, first, std::min(most, gemm.m - first));
    context_->Keep(Annotate(lt_->Run(piece, pins.For(piece.m), context_->stream()),
                            fmt::format("{}, {} rows", LtShapeName(LtShapeOf(gemm)), piece.m)));
  }
}

void CublasLtGemm::RunPadded(const Gemm& gemm, const PinnedAlgorithms& pins) {
  const PaddedRows at = PadRows(gemm.m, gemm.n, gemm.k, OutBytes(gemm));
  std::byte* const scratch = context_->Scratch(kProductSlot, at.bytes);
  if (!context_->launching()) return;  // out of memory; Synchronize returns the error
  Gemm padded = gemm;
  padded.m = at.rows;
  padded.a = scratch;
  padded.a_stride = at.a_stride;
  padded.c = scratch + at.a_bytes;
  padded.c_stride = at.c_stride;
  const CudaStream stream = context_->stream();
  cuda::LaunchCopyRows(RowsOfA(gemm), RowsOfA(padded), at.a_stride * 2, gemm.m, at.rows, stream);
  const int64_t out_bytes = gemm.n * OutBytes(gemm);
  if (gemm.output == GemmOutput::kFloatAdd) {
    cuda::LaunchCopyRows(RowsOfC(gemm), RowsOfC(padded), out_bytes, gemm.m, at.rows, stream);
  }
  RunWhole(padded, pins);
  cuda::LaunchCopyRows(RowsOfC(padded), RowsOfC(gemm), out_bytes, gemm.m, gemm.m, stream);
}

absl::StatusOr<std::optional<LtAlgorithm>> CublasLtGemm::ForWeights(const Gemm& gemm) {
  Gemm rounded = gemm;
  rounded.k = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(gemm.k)));
  const WeightsShape shape = {gemm.m, gemm.n, rounded.k};
  const auto found = weights_.find(shape);
  if (found != weights_.end()) return found->second;
  TANDEM_ASSIGN_OR_RETURN(const std::vector<LtAlgorithm> candidates,
                          lt_->Candidates(rounded, plan_.candidates));
  std::optional<LtAlgorithm> first;
  for (const LtAlgorithm& one : candidates) {
    if (MayBeRowInvariant(one) && !first.has_value()) first = one;
  }
  weights_[shape] = first;
  return first;
}

void CublasLtGemm::RunWeights(const Gemm& gemm) {
  const absl::StatusOr<std::optional<LtAlgorithm>> algorithm = ForWeights(gemm);
  context_->Keep(algorithm.status());
  if (!algorithm.ok() || !algorithm->has_value()) return other_->Run(gemm);
  const absl::Status run = lt_->Run(gemm, **algorithm, context_->stream());
  // Whether an algorithm accepts a product depends on its number of rows alone: the choice is
  // always the same.
  if (absl::IsInvalidArgument(run)) return other_->Run(gemm);
  context_->Keep(run);
}

KernelChoices CublasLtGemm::Choices() const {
  KernelChoices choices;
  for (const auto& [shape, pins] : pins_) {
    std::string choice = pins.has_value() ? "cuBLASLt" : kOwnKernels;
    for (size_t i = 0; pins.has_value() && i < pins->buckets.size(); ++i) {
      const LtAlgorithm& algorithm = pins->algorithms[i];
      choice += fmt::format("{}algorithm {} tile {} up to {} rows", i == 0 ? " " : ", ",
                            algorithm.id, algorithm.tile, pins->buckets[i]);
    }
    choices[LtShapeName(shape)] = std::move(choice);
  }
  return choices;
}

}  // namespace tandem
