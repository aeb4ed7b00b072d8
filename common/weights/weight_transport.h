// The ways that payload crosses between the two processes of a pair, behind one interface: shared
// memory of the host, or what a GPU's driver lets another process open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "common/device/ledger.h"
#include "common/process/local_socket.h"
#include "common/weights/slot_memory.h"

namespace tandem {

// A shard that the rollout may read where it lies.
struct ShardMemory {
  std::byte* data = nullptr;
  int64_t bytes = 0;
  int fd = -1;  // of host memory
};

enum class SlotLife { kOneUpdate, kManyUpdates };

// What came over the pair's socket.
struct PassedSlots {
  SlotHandle handle;  // its `fd` is not set
  UniqueFd fd;
  SlotShape shape;
};

// Not thread-safe, except that of HostTransport(). Outlives the slots it makes.
class WeightTransport {
 public:
  virtual ~WeightTransport() = default;

  // The producer's. `ledger` may be null; it counts the bytes under "bucket" once, here.
  // ResourceExhausted names the bytes and the key that lowers them.
  virtual absl::StatusOr<std::unique_ptr<SlotMemory>> Create(const SlotShape& shape,
                                                             SlotLife life,
                                                             Ledger* ledger) = 0;
  // Direct, over `shard`, which outlives it; only where can_share().
  virtual absl::StatusOr<std::unique_ptr<SlotMemory>> Over(const ShardMemory& shard, int slots) = 0;
  virtual bool can_share() const = 0;
  // Whether a rollout may turn out to be unable to open what this makes: an update then asks before
  // anything is gathered.
  virtual bool unproven() const = 0;
  // Whether, after an update that failed with `why` before anything was gathered, another one would
  // go another way.
  virtual bool FallBack(const absl::Status& why) = 0;
  virtual void Proven() = 0;

  // The consumer's. `ledger` may be null: SharedRegion::MapForeign. InvalidArgument: not what the
  // shape says, or a kind that this device does not have. Unimplemented: the system refuses to open
  // it, and another way might do.
  virtual absl::StatusOr<std::unique_ptr<SlotMemory>> Open(PassedSlots passed, Ledger* ledger) = 0;
  // Closes what is kept open between updates: the producer is gone.
  virtual void Forget() = 0;
};

// Shared memory between workers on CPUs: one object without state, for all threads.
WeightTransport* HostTransport();

// Which way the slots of an update are shared between the two processes of a pair.

// What weight_sync.transport comes to for workers on a CPU, as a line for the log: what was chosen
// and why. FailedPrecondition: a transport that this device does not have.
absl::StatusOr<std::string> ChooseTransport(const std::string& key);

struct CudaTransportChoice {
  bool ipc = false;  // else pinned shared memory
  std::string why;   // a line for the log
};

// The same for workers on a GPU. `ipc`: whether the device's memory can be handed out, or why not.
// FailedPrecondition: ipc is asked for and refused. InvalidArgument: no such transport.
absl::StatusOr<CudaTransportChoice> ChooseCudaTransport(const std::string& key,
                                                        const absl::Status& ipc);

}  // namespace tandem
