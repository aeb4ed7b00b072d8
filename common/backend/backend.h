// Everything of a worker that depends on where it computes: the device, the ops over it, and the
// operations on a storage of weights there. The only place that knows which kinds of device exist.
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

// Which ops a worker uses of a model.
enum class ModelUse { kForward, kTraining };

// Not thread-safe: the engine thread's, once it is made. Outlives all that it makes.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual Device* device() = 0;
  // Errors as the factories of the kind.
  virtual absl::StatusOr<std::unique_ptr<ForwardOps>> MakeForwardOps(DType compute_dtype) = 0;
  virtual absl::StatusOr<std::unique_ptr<BackwardOps>> MakeBackwardOps(DType compute_dtype) = 0;
  // Of a storage on the device; `layout` and `storage` outlive it.
  virtual absl::StatusOr<std::unique_ptr<StorageOps>> MakeStorageOps(const WeightLayout* layout,
                                                                     std::byte* storage) = 0;
  // InvalidArgument names the part of the model that the ops cannot compute.
  virtual absl::Status CheckModel(const ModelSpec& spec) const = 0;
  // Decides once how the model's products are computed, before the first op and the large regions
  // take their memory: on a GPU tens of milliseconds and some hundred MiB per shape, which are
  // given back. InvalidArgument: `spec` or `vocab_limit`. Internal: the device.
  virtual absl::Status PrepareModel(const ModelSpec& spec, int64_t vocab_limit, ModelUse use) = 0;
  // What PrepareModel decided: to be told to the controller, which compares it between workers.
  virtual KernelChoices numerics_choices() const = 0;
  // Of a trainer's shard on the device.
  virtual absl::StatusOr<std::unique_ptr<ShardOps>> MakeShardOps() = 0;
  // The group of ranks, over the links between their devices. Errors as JoinSharedMemoryGroup.
  virtual absl::StatusOr<std::unique_ptr<Communicator>> JoinGroup(
      const SharedMemoryGroupOptions& options) = 0;
  // The way from a trainer to its rollout that weight_sync.transport (`key`) comes to, which the
  // log says with the reason. Errors as ChooseTransport and ChooseCudaTransport.
  virtual absl::StatusOr<WeightTransport*> Transport(const std::string& key) = 0;
};

struct BackendOptions {
  std::string device = "auto";  // trainer.device: auto, cpu, cuda
  std::string place = "cpu:0";  // --device of the worker: which one, among those of the process
  int threads = 1;              // of the host, for its ops and for work that a GPU leaves to it
  std::vector<int> cores;       // of the threads; empty: not pinned
};

// What the libraries of devices read from the environment of a process that trains: to be called at
// the beginning of main, before there are other threads.
void PinDeviceLibraries();

// auto: the CPU, as long as no GPU has run this (docs/guides/gpus.md). cuda: FailedPrecondition
// says why there is no GPU to be used; InvalidArgument: `place` names none.
absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const BackendOptions& options);

struct DeviceIdentity {
  int64_t memory_bytes = 0;  // the GPU's, or what this host may use
  std::string uuid;          // the GPU's, 32 hex digits: the same in every process; empty on a CPU
};

// Of the device that --device names. Errors as MakeBackend.
absl::StatusOr<DeviceIdentity> IdentifyDevice(const std::string& place);

}  // namespace tandem
