#include "common/backend/cpu_backend.h"

#include <utility>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/comm/hosts/join_group.h"
#include "common/weights/weight_transport.h"

namespace tandem {
namespace {

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(std::shared_ptr<ThreadPool> pool) : pool_(std::move(pool)) {}

  Device* device() override { return HostDevice(); }
  absl::StatusOr<std::unique_ptr<ForwardOps>> MakeForwardOps(DType compute_dtype) override {
    return CreateCpuForwardOps(compute_dtype, pool_);
  }
  absl::StatusOr<std::unique_ptr<BackwardOps>> MakeBackwardOps(DType compute_dtype) override {
    return CreateCpuBackwardOps(compute_dtype, pool_);
  }
  absl::StatusOr<std::unique_ptr<StorageOps>> MakeStorageOps(const WeightLayout* layout,
                                                             std::byte* storage) override {
    return CreateCpuStorageOps(layout, storage, pool_);
  }
  absl::Status CheckModel(const ModelSpec& /*spec*/) const override { return absl::OkStatus(); }
  // A CPU's kernels have nothing to decide.
  absl::Status PrepareModel(const ModelSpec& /*spec*/,
                            int64_t /*vocab_limit*/,
                            ModelUse /*use*/) override {
    return absl::OkStatus();
  }
  KernelChoices numerics_choices() const override { return {}; }
  absl::StatusOr<std::unique_ptr<ShardOps>> MakeShardOps() override {
    return CreateCpuShardOps(pool_);
  }
  absl::StatusOr<std::unique_ptr<Communicator>> JoinGroup(
      const SharedMemoryGroupOptions& options) override {
    return tandem::JoinGroup(options);
  }

  absl::StatusOr<WeightTransport*> Transport(const std::string& key) override {
    TANDEM_ASSIGN_OR_RETURN(const std::string chosen, ChooseTransport(key));
    LogInfo("{}", chosen);
    return HostTransport();
  }

 private:
  const std::shared_ptr<ThreadPool> pool_;
};

}  // namespace

std::unique_ptr<Backend> MakeCpuBackend(std::shared_ptr<ThreadPool> pool) {
  return std::make_unique<CpuBackend>(std::move(pool));
}

}  // namespace tandem
