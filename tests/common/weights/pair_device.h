// What a process of a pair computes on in tests of both ends: the host, or a GPU or its emulator,
// by what the program links (host_pair_device.cc, cuda/cuda_pair_device.cc).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/device/device.h"
#include "common/weights/layout.h"
#include "common/weights/storage_ops.h"
#include "common/weights/tcp/slot_listener.h"
#include "common/weights/weight_transport.h"
#include "tests/fakes/memory_weights.h"

namespace tandem::testing {

// Not thread-safe.
class PairDevice {
 public:
  virtual ~PairDevice() = default;
  virtual Device& device() = 0;
  virtual WeightTransport* transport() = 0;
  virtual WeightFormat format() const = 0;
  // Of the models in pair_fixture.h, that it is quick enough for instead of `size`.
  virtual std::string Model(const std::string& size) const = 0;
  virtual absl::StatusOr<std::unique_ptr<StorageOps>> Storage(const WeightLayout* layout,
                                                              std::byte* storage) = 0;
  // Where the trainer's rows lie: in this device's memory, the same bits for the same seed
  // everywhere. `direct`: shared, where the device can.
  virtual std::unique_ptr<MemoryWeights> Weights(const WeightLayout& layout,
                                                 uint64_t seed,
                                                 bool direct) = 0;
  // What is put on the device from now on does not happen soon, as if other work kept it busy.
  virtual absl::Status Occupy() = 0;
  // In use, and how much of it may come and go by itself.
  virtual int64_t UsedBytes() = 0;
  virtual int64_t SlackBytes() const = 0;
  // A fault is tried at every one, second, ... bucket: processes take a second to start on a GPU.
  virtual int FaultStride() const { return 1; }
  // Whether slots are sent over TCP, as between hosts; how for a peer in `role`; and where a
  // rollout takes them, null if it does not.
  virtual bool over_tcp() const { return false; }
  virtual TcpSecurity DataSecurity(const std::string& /*role*/) const { return {}; }
  virtual absl::StatusOr<std::unique_ptr<SlotListener>> ListenForSlots() { return nullptr; }
};

// A way that weights may go here: "host"; "tcp", plain, also between GPUs, or "tls"; "ipc"
// or "shm" between GPUs, also followed by "@" and the UUID of the GPU. FailedPrecondition: there is
// none.
absl::StatusOr<std::unique_ptr<PairDevice>> MakePairDevice(const std::string& way);
// All of them that this program can take.
std::vector<std::string> PairWays();
// The program, with first arguments, that is one side of a pair (RunPairPeer).
std::vector<std::string> PairPeerCommand();

}  // namespace tandem::testing
