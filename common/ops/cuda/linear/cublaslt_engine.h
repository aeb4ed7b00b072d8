// Products by cuBLASLt, where its algorithms are proved row-invariant, and by another engine where
// not.
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

class LtEngine final : public GemmEngine {
 public:
  // `context` and `other` must outlive the engine.
  LtEngine(CudaContext* context, std::unique_ptr<LtApi> lt, ProofPlan plan, GemmEngine* other);

  // Proves a shape, once; without an algorithm that passes it is the other engine's from now on,
  // and the log says why. Nothing is decided after ResourceExhausted, which names the bytes that
  // the proof wants of the device, and Internal: the device.
  absl::Status Prepare(const LtShape& shape);
  // From now on shapes that were not prepared are the other engine's.
  void Seal() { sealed_ = true; }

  // A shape that was not prepared is, here, unless sealed. Where the device fails at it, the step's
  // Synchronize says so, and the next use of the shape tries again.
  void Run(const Gemm& gemm) override;

  std::string version() const { return lt_->version(); }
  // Of every shape that was decided: the algorithms of its buckets, or kOwnKernels.
  NumericsChoices Choices() const;

 private:
  // Of kWeights, whose sums are over the rows: m, n, and the power of two at or above k.
  using WeightsShape = std::tuple<int64_t, int64_t, int64_t>;

  const std::optional<LtPins>& Decided(const LtShape& shape);
  // Of whole sixteens of rows, of which each piece was proved.
  void RunWhole(const Gemm& gemm, const LtPins& pins);
  // Of any few rows, filled up in scratch: neither rows behind a are read nor rows behind c
  // written.
  void RunPadded(const Gemm& gemm, const LtPins& pins);
  // The other engine's, and why.
  void LeaveToOther(const LtShape& shape, const std::string& why);
  void RunWeights(const Gemm& gemm);
  // The first candidate that does not split sums.
  absl::StatusOr<std::optional<LtAlgorithm>> ForWeights(const Gemm& gemm);

  CudaContext* const context_;
  const std::unique_ptr<LtApi> lt_;
  const ProofPlan plan_;
  GemmEngine* const other_;
  std::map<LtShape, std::optional<LtPins>> pins_;  // none: the other engine's
  bool sealed_ = false;
  std::map<WeightsShape, std::optional<LtAlgorithm>> weights_;
};

}  // namespace tandem
