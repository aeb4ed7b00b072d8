// The parts of a worker that depend on where it computes: the device, its ops, and the operations
// on weights stored there. Only this folder knows which kinds of device exist.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/comm/shared_memory_communicator.h"
#include "common/device/device.h"
#include "common/model_spec/model_spec.h"
#include "common/ops/backward_ops.h"
#include "common/ops/forward_ops.h"
#include "common/process/threads.h"
#include "common/types/numerics_choices.h"
#include "common/weights/layout.h"
#include "common/weights/shard_ops.h"
#include "common/weights/storage_ops.h"
#include "common/weights/weight_transport.h"

namespace tandem {

// What a worker uses a model's ops for.
enum class ModelUse { kForward, kTraining };

// Not thread-safe: used by the engine thread once it is made. Outlives everything that it makes.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual Device* device() = 0;
  // Errors of the device's own factory (CreateCpuForwardOps, CreateCudaForwardOps).
  virtual absl::StatusOr<std::unique_ptr<ForwardOps>> MakeForwardOps(DType compute_dtype) = 0;
  virtual absl::StatusOr<std::unique_ptr<BackwardOps>> MakeBackwardOps(DType compute_dtype) = 0;
  // Ops for a storage on the device; `layout` and `storage` outlive them.
  virtual absl::StatusOr<std::unique_ptr<StorageOps>> MakeStorageOps(const WeightLayout* layout,
                                                                     std::byte* storage) = 0;
  // InvalidArgument names the part of the model that the ops cannot compute.
  virtual absl::Status CheckModel(const ModelSpec& spec) const = 0;
  // Decides once how the model's products are computed. Must run before the first op and before the
  // large regions are mapped: on a GPU it takes tens of milliseconds and some hundred MiB per
  // shape, which are freed again. InvalidArgument: `spec` or `vocab_limit`. Internal: the device.
  virtual absl::Status PrepareModel(const ModelSpec& spec, int64_t vocab_limit, ModelUse use) = 0;
  // The choices of PrepareModel, for the controller, which compares them between workers.
  virtual KernelChoices numerics_choices() const = 0;
  // Ops for a trainer's shard on the device.
  virtual absl::StatusOr<std::unique_ptr<ShardOps>> MakeShardOps() = 0;
  // The group of ranks, connected as their devices and hosts allow. Errors as JoinGroup
  // (common/comm/hosts/join_group.h).
  virtual absl::StatusOr<std::unique_ptr<Communicator>> JoinGroup(
      const SharedMemoryGroupOptions& options) = 0;
  // The transport from a trainer to its rollout that `key` (weight_sync.transport) selects; logs
  // the choice and its reason. Errors as ChooseTransport and ChooseCudaTransport.
  virtual absl::StatusOr<WeightTransport*> Transport(const std::string& key) = 0;
};

struct BackendOptions {
  std::string device = "auto";  // trainer.device: auto, cpu, cuda
  std::string place = "cpu:0";  // --device of the worker: which device of the process
  int threads = 1;  // of the host, for its ops and for the work that a GPU's worker does on it
  std::vector<int> cores;  // of the threads; empty: not pinned
};

// Sets what the libraries of devices read from the environment in a process that trains. Call it at
// the beginning of main, before other threads exist.
void PinDeviceLibraries();

// `auto` chooses the CPU, never a GPU. FailedPrecondition: `cuda`, and why no GPU can be used.
// InvalidArgument: `place` names no device.
absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const BackendOptions& options);

struct DeviceIdentity {
  int64_t memory_bytes = 0;  // the GPU's, or what this host may use
  std::string uuid;          // the GPU's, 32 hex digits: the same in every process; empty on a CPU
};

// Identifies the device that --device names. Errors as MakeBackend.
absl::StatusOr<DeviceIdentity> IdentifyDevice(const std::string& place);

}  // namespace tandem
