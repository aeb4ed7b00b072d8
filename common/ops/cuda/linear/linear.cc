#include "common/ops/cuda/linear/linear.h"

#include <cstdlib>
#include <string_view>
#include <utility>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/ops/cuda/linear/cublaslt_engine.h"
#include "common/ops/cuda/linear/gemm_kernels.h"
#include "common/ops/cuda/linear/tandem_gemm.h"

namespace tandem {
namespace {

absl::StatusOr<bool> OwnIsAskedFor() {
  const char* const wish = std::getenv("TANDEM_CUDA_LINEAR");
  if (wish == nullptr) return false;
  if (std::string_view(wish) == "own") return true;
  return InvalidArgument(
      "TANDEM_CUDA_LINEAR is \"{}\": \"own\" lets our own kernels compute all matrix products; "
      "without the variable cuBLASLt does where it is row-invariant",
      wish);
}

LtShape ProvedShape(const LinearShape& shape) {
  using Use = LinearShape::Use;
  const bool input = shape.use == Use::kInput || shape.use == Use::kAddInput;
  return {.kind = input ? GemmKind::kInput : GemmKind::kForward,
          .output = shape.use == Use::kLogits     ? GemmOutput::kFloat
                    : shape.use == Use::kAddInput ? GemmOutput::kFloatAdd
                                                  : GemmOutput::kBf16,
          .n = input ? shape.k : shape.n,
          .k = input ? shape.n : shape.k,
          .bias = shape.bias};
}

}  // namespace

CudaLinear::CudaLinear(CudaContext* context)
    : context_(context), own_(std::make_unique<TandemGemm>(context)) {}

CudaLinear::~CudaLinear() = default;

absl::StatusOr<std::unique_ptr<CudaLinear>> CudaLinear::Create(CudaContext* context,
                                                               CudaLinearOptions options) {
  std::unique_ptr<CudaLinear> linear(new CudaLinear(context));
  TANDEM_ASSIGN_OR_RETURN(const bool own, OwnIsAskedFor());
  if (own || options.engine == CudaLinearOptions::Engine::kOwn) return linear;
  if (options.lt == nullptr) {
    absl::StatusOr<std::unique_ptr<LtApi>> found = OpenLt();
    // The memory that is free now must not decide, because the other workers' bits depend on the
    // choice too.
    if (absl::IsResourceExhausted(found.status())) {
      return Annotate(found.status(), "opening cuBLASLt");
    }
    if (!found.ok()) {
      LogWarn("matrix products: own kernels, since {}", std::string(found.status().message()));
      return linear;
    }
    options.lt = *std::move(found);
  }
  linear->lt_ = std::make_unique<CublasLtGemm>(context, std::move(options.lt),
                                               std::move(options.proof), linear->own_.get());
  LogInfo("matrix products: cuBLASLt {} where it is row-invariant", linear->lt_->version());
  return linear;
}

absl::Status CudaLinear::Prepare(const std::vector<LinearShape>& shapes) {
  for (const LinearShape& shape : shapes) {
    if (lt_ == nullptr) {
      without_lt_[LtShapeName(ProvedShape(shape))] = kOwnKernels;
    } else {
      TANDEM_RETURN_IF_ERROR(lt_->Prepare(ProvedShape(shape)));
    }
  }
  if (lt_ != nullptr) lt_->Seal();
  for (const auto& [shape, choice] : Choices()) LogDebug("{}: {}", shape, choice);
  return absl::OkStatus();
}

void CudaLinear::Run(const Gemm& gemm) {
  if (!context_->launching() || gemm.m == 0 || gemm.n == 0 || gemm.k == 0) return;
  lt_ != nullptr ? lt_->Run(gemm) : own_->Run(gemm);
}

void CudaLinear::Forward(Matrix in, const LinearWeight& weight, Matrix out) {
  Run({.kind = GemmKind::kForward,
       .output = GemmOutput::kBf16,
       .m = in.rows,
       .n = weight.rows,
       .k = weight.cols,
       .a = in.data,
       .a_stride = in.stride,
       .b = weight.values,
       .b_stride = weight.cols,
       .bias = weight.bias,
       .c = out.data,
       .c_stride = out.stride});
}

void CudaLinear::Logits(Matrix hidden,
                        const LinearWeight& head,
                        int64_t first_id,
                        int64_t ids,
                        float* out,
                        int64_t out_stride) {
  Run({.kind = GemmKind::kForward,
       .output = GemmOutput::kFloat,
       .m = hidden.rows,
       .n = ids,
       .k = head.cols,
       .a = hidden.data,
       .a_stride = hidden.stride,
       .b = head.values + first_id * head.cols * 2,
       .b_stride = head.cols,
       .c = out,
       .c_stride = out_stride});
}

void CudaLinear::Input(Matrix dout, const LinearWeight& weight, Matrix din) {
  Run({.kind = GemmKind::kInput,
       .output = GemmOutput::kBf16,
       .m = dout.rows,
       .n = weight.cols,
       .k = weight.rows,
       .a = dout.data,
       .a_stride = dout.stride,
       .b = weight.values,
       .b_stride = weight.cols,
       .c = din.data,
       .c_stride = din.stride});
}

void CudaLinear::AddInput(Matrix dout, const LinearWeight& weight, FloatMatrix din) {
  Run({.kind = GemmKind::kInput,
       .output = GemmOutput::kFloatAdd,
       .m = dout.rows,
       .n = weight.cols,
       .k = weight.rows,
       .a = dout.data,
       .a_stride = dout.stride,
       .b = weight.values,
       .b_stride = weight.cols,
       .c = din.data,
       .c_stride = din.stride});
}

void CudaLinear::Weights(Matrix dout, Matrix in, float* dweight, float* dbias) {
  Run({.kind = GemmKind::kWeights,
       .output = GemmOutput::kFloatAdd,
       .m = dout.cols,
       .n = in.cols,
       .k = dout.rows,
       .a = dout.data,
       .a_stride = dout.stride,
       .b = in.data,
       .b_stride = in.stride,
       .c = dweight,
       .c_stride = in.cols});
  if (dbias == nullptr || dout.rows == 0 || !context_->launching()) return;
  cuda::LaunchColumnSums(dout.data, dout.rows, dout.cols, dout.stride, dbias, context_->stream());
}

std::string CudaLinear::numerics() const {
  return lt_ == nullptr ? "own" : "cublaslt-" + lt_->version();
}

KernelChoices CudaLinear::Choices() const { return lt_ == nullptr ? without_lt_ : lt_->Choices(); }

}  // namespace tandem
