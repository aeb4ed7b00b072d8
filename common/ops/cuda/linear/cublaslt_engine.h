// Matrix products by cuBLASLt for the shapes whose algorithms are proved row-invariant, and by
// another implementation for all others.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include <absl/status/status.h>

#include "common/device/cuda/cuda_context.h"
#include "common/ops/cuda/linear/cublaslt_api.h"
#include "common/ops/cuda/linear/gemm.h"
#include "common/ops/cuda/linear/row_invariance.h"
#include "common/types/numerics_choices.h"

namespace tandem {

// "linear [1024 x 4096] with bias", "input, added, [4096 x 16384]"; what the other engine is
// called.
std::string LtShapeName(const LtShape& shape);
inline constexpr char kOwnKernels[] = "own kernels";

class CublasLtGemm final : public GemmEngine {
 public:
  // `context` and `other` must outlive the engine.
  CublasLtGemm(CudaContext* context,
               std::unique_ptr<LtApi> lt,
               RowInvariancePlan plan,
               GemmEngine* other);

  // Proves a shape, once. If no algorithm passes, the other engine computes the shape from then on,
  // and the log says why. ResourceExhausted names the device memory that the proof needs, Internal
  // a failure of the device; after either the shape is still undecided.
  absl::Status Prepare(const LtShape& shape);
  // From then on the other engine computes the shapes that were not prepared.
  void Seal() { sealed_ = true; }

  // Prepares the shape first if that was not done and the engine is not sealed. If the device fails
  // at that, the step's Synchronize reports it, and the next use of the shape tries again.
  void Run(const Gemm& gemm) override;

  std::string version() const { return lt_->version(); }
  // For every shape that was decided: the algorithms of its buckets, or kOwnKernels.
  KernelChoices Choices() const;

 private:
  // Key of a kWeights product, whose sums are over the rows: m, n, and k rounded up to a power of
  // two.
  using WeightsShape = std::tuple<int64_t, int64_t, int64_t>;

  const std::optional<PinnedAlgorithms>& Decided(const LtShape& shape);
  // For multiples of sixteen rows, split into pieces that were proved.
  void RunWhole(const Gemm& gemm, const PinnedAlgorithms& pins);
  // For fewer rows, padded in scratch memory, so that nothing is read or written past the ends of a
  // and c.
  void RunPadded(const Gemm& gemm, const PinnedAlgorithms& pins);
  // Leaves the shape to the other engine and logs the reason.
  void LeaveToOther(const LtShape& shape, const std::string& why);
  void RunWeights(const Gemm& gemm);
  // The first candidate that does not split sums.
  absl::StatusOr<std::optional<LtAlgorithm>> ForWeights(const Gemm& gemm);

  CudaContext* const context_;
  const std::unique_ptr<LtApi> lt_;
  const RowInvariancePlan plan_;
  GemmEngine* const other_;
  std::map<LtShape, std::optional<PinnedAlgorithms>> pins_;  // nullopt: the other engine
  bool sealed_ = false;
  std::map<WeightsShape, std::optional<LtAlgorithm>> weights_;
};

}  // namespace tandem
