#include "common/backend/cuda_backend.h"

#include <algorithm>
#include <utility>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/comm/cuda/device_group.h"
#include "common/comm/cuda/nccl_api.h"
#include "common/device/cuda/cuda_device.h"
#include "common/ops/cuda/attention/attention.h"
#include "common/ops/cuda/backward_ops.h"
#include "common/ops/cuda/forward_ops.h"
#include "common/ops/cuda/linear/linear.h"
#include "common/weights/cuda/cuda_shard_ops.h"
#include "common/weights/cuda/cuda_storage_ops.h"
#include "common/weights/cuda/cuda_transport.h"

namespace tandem {
namespace {

using Use = LinearShape::Use;

// The weights of a layer as Decoder uses them: fused.
std::vector<LinearShape> LayerLinears(const ModelSpec& spec) {
  return {{.n = spec.qkv_rows(), .k = spec.hidden_size, .bias = spec.qkv_bias},
          {.n = spec.hidden_size, .k = spec.q_rows()},
          {.n = 2 * spec.intermediate_size, .k = spec.hidden_size},
          {.n = spec.hidden_size, .k = spec.intermediate_size}};
}

}  // namespace

std::vector<LinearShape> ModelLinears(const ModelSpec& spec, int64_t vocab_limit, bool trains) {
  std::vector<LinearShape> shapes = LayerLinears(spec);
  const int64_t groups = HeadGroups(vocab_limit);
  // All groups except the last have the same number of ids; in forward they cover the ids of the
  // head, in backward those of the tokenizer.
  for (const int64_t i : {int64_t{0}, groups - 1}) {
    shapes.push_back({.use = Use::kLogits,
                      .n = HeadGroupAt(i, spec.vocab_size, vocab_limit).ids,
                      .k = spec.hidden_size});
  }
  if (!trains) return shapes;
  for (LinearShape layer : LayerLinears(spec)) {
    layer.use = Use::kInput;
    layer.bias = false;
    shapes.push_back(layer);
  }
  for (const int64_t i : {int64_t{0}, groups - 1}) {
    shapes.push_back({.use = Use::kAddInput,
                      .n = HeadGroupAt(i, vocab_limit, vocab_limit).ids,
                      .k = spec.hidden_size});
  }
  // Only the q and k rows of qkv, which are computed again if they were normed in place.
  if (spec.qk_norm) {
    shapes.push_back(
        {.n = spec.q_rows() + spec.kv_rows(), .k = spec.hidden_size, .bias = spec.qkv_bias});
  }
  return shapes;
}

namespace {

// Rows of matrices are read 16 bytes at a time.
constexpr int64_t kRowElements = 8;

absl::Status CheckCudaModel(const ModelSpec& spec) {
  TANDEM_RETURN_IF_ERROR(
      Annotate(CudaAttention::CheckShape({spec.num_heads, spec.num_kv_heads, spec.head_dim}),
               "the model cannot be computed on a GPU; set trainer.device=cpu"));
  for (const auto& [name, size] : {std::pair("hidden_size", spec.hidden_size),
                                   std::pair("intermediate_size", spec.intermediate_size)}) {
    if (size % kRowElements == 0) continue;
    return InvalidArgument(
        "the model's {} is {}, and a GPU computes multiples of {} only; set trainer.device=cpu",
        name, size, kRowElements);
  }
  return absl::OkStatus();
}

// Tensor cores support bf16 from this generation on.
constexpr int kOldestMajor = 8;

class CudaBackend final : public Backend {
 public:
  CudaBackend(std::unique_ptr<CudaApi> api,
              std::unique_ptr<CudaContext> context,
              std::shared_ptr<CudaLinear> linear)
      : api_(std::move(api)), device_(std::move(context)), linear_(std::move(linear)) {}

  Device* device() override { return &device_; }
  absl::StatusOr<std::unique_ptr<ForwardOps>> MakeForwardOps(DType compute_dtype) override {
    TANDEM_RETURN_IF_ERROR(CheckCudaComputeDtype(compute_dtype));
    return std::make_unique<CudaForwardOps>(&device_.context(), linear_);
  }
  absl::StatusOr<std::unique_ptr<BackwardOps>> MakeBackwardOps(DType compute_dtype) override {
    TANDEM_RETURN_IF_ERROR(CheckCudaComputeDtype(compute_dtype));
    return std::make_unique<CudaBackwardOps>(&device_.context(), linear_);
  }
  absl::StatusOr<std::unique_ptr<StorageOps>> MakeStorageOps(const WeightLayout* layout,
                                                             std::byte* storage) override {
    return CreateCudaStorageOps(layout, storage, &device_.context());
  }
  absl::Status CheckModel(const ModelSpec& spec) const override { return CheckCudaModel(spec); }
  absl::Status PrepareModel(const ModelSpec& spec, int64_t vocab_limit, ModelUse use) override {
    TANDEM_RETURN_IF_ERROR(CheckCudaModel(spec));
    if (vocab_limit < 1 || vocab_limit > spec.vocab_size) {
      return InvalidArgument(
          "the tokenizer has {} ids but the model {} embedding rows: they do not belong together",
          vocab_limit, spec.vocab_size);
    }
    return linear_->Prepare(ModelLinears(spec, vocab_limit, use == ModelUse::kTraining));
  }
  KernelChoices numerics_choices() const override { return linear_->Choices(); }
  absl::StatusOr<std::unique_ptr<ShardOps>> MakeShardOps() override {
    return CreateCudaShardOps(&device_.context());
  }
  absl::StatusOr<std::unique_ptr<Communicator>> JoinGroup(
      const SharedMemoryGroupOptions& options) override {
    if (options.world_size > 1 && nccl_ == nullptr) OpenNcclOnce();
    const CudaContext& context = device_.context();
    return JoinDeviceGroup({.group = options,
                            .cuda = api_.get(),
                            .device = context.device(),
                            .compute = context.stream(),
                            .nccl = nccl_.get()});
  }

  absl::StatusOr<WeightTransport*> Transport(const std::string& key) override {
    TANDEM_ASSIGN_OR_RETURN(transport_, CudaTransport::Create(&device_.context(), key));
    return transport_.get();
  }

 private:
  void OpenNcclOnce() {
    absl::StatusOr<std::unique_ptr<NcclApi>> nccl = OpenNccl();
    if (nccl.ok()) {
      nccl_ = *std::move(nccl);
    } else {
      LogWarn("ranks exchange through host memory: {}", std::string(nccl.status().message()));
    }
  }

  const std::unique_ptr<CudaApi> api_;
  std::unique_ptr<NcclApi> nccl_;  // of groups of several ranks, if there is one
  CudaDevice device_;
  // Used by forward and backward, so that both make the same choices.
  const std::shared_ptr<CudaLinear> linear_;
  std::unique_ptr<CudaTransport> transport_;
};

}  // namespace

void PinCudaLibraries() { PinNcclSums(); }

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(std::unique_ptr<CudaApi> api,
                                                         int index,
                                                         CudaLinearOptions linear_options) {
  TANDEM_ASSIGN_OR_RETURN(const int devices, api->DeviceCount());
  if (index >= devices) {
    return FailedPrecondition("this process sees {} GPUs, and is to use number {}", devices, index);
  }
  TANDEM_ASSIGN_OR_RETURN(auto context, CudaContext::Create(api.get(), index));
  const CudaDeviceInfo& info = context->info();
  if (info.compute_major < kOldestMajor || !info.virtual_memory) {
    return FailedPrecondition(
        "{} has compute capability {}.{}{}; Tandem needs 8.0 or newer, with virtual memory "
        "management",
        info.name, info.compute_major, info.compute_minor,
        info.virtual_memory ? "" : " and no virtual memory management");
  }
  TANDEM_ASSIGN_OR_RETURN(auto linear,
                          CudaLinear::Create(context.get(), std::move(linear_options)));
  return std::make_unique<CudaBackend>(std::move(api), std::move(context), std::move(linear));
}

}  // namespace tandem
