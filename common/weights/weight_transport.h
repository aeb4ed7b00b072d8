// The memory through which the payload of a weight update crosses from trainer to rollout, and the
// ways to share it between the two processes: shared memory of the host, or a GPU driver's handles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "common/device/ledger.h"
#include "common/process/local_socket.h"
#include "common/types/ledger_snapshot.h"

namespace tandem {

struct PeerConnection;  // common/weights/peer_connection.h

// With `direct` all slots are the same memory, the trainer's shard, and `slots` only limits the
// number of buckets that may be in flight at once.
struct SlotShape {
  int64_t slot_bytes = 0;
  int slots = 0;
  bool direct = false;
  int64_t bytes() const { return direct ? slot_bytes : slot_bytes * slots; }
  friend bool operator==(const SlotShape&, const SlotShape&) = default;
};

// What the consumer needs to open the memory: a descriptor of shared memory, or handles of the
// GPU's driver, serialised by the transport that created them.
struct SlotHandle {
  enum class Kind : int64_t { kSharedMemory = 0, kCudaIpc = 1 };
  Kind kind = Kind::kSharedMemory;
  std::string payload;
  int fd = -1;  // the memory's own
};

// One end's mapping of the memory through which the payload of an update crosses: slots that rows
// are copied into, or the trainer's shard itself ("direct"), where nothing is copied. It never
// holds control words. Unmapped when destroyed. Not thread-safe. The transport that makes an end
// chooses its implementation: host memory, a GPU's memory, or host memory between two GPU workers.
//
// On a GPU the calls order the device's work: rows copied before EndFill are visible to work that
// the consumer submits after BeginRead, and rows read before EndRead have been read when the
// producer fills the slot after BeginFill. The RPCs of an Apply carry the order from one host
// thread to the other. No stream ever waits for the other process, which may die first: BeginFill
// and BeginRead wait on the host and watch the connection meanwhile. Unavailable: the process at
// its other end has died. DeadlineExceeded: its device took longer than the connection's timeout.
class SlotMemory {
 public:
  virtual ~SlotMemory() = default;
  SlotMemory(const SlotMemory&) = delete;
  SlotMemory& operator=(const SlotMemory&) = delete;

  const SlotShape& shape() const { return shape_; }
  int slots() const { return shape_.slots; }
  virtual std::byte* slot(int index) const = 0;
  // The consumer keeps it open from update to update, so the producer must not free it between two
  // of them. True at both ends.
  virtual bool persistent() const = 0;

 protected:
  explicit SlotMemory(const SlotShape& shape) : shape_(shape) {}
  const SlotShape shape_;
};

// The trainer's end.
class ProducerSlots : public SlotMemory {
 public:
  // Memory held for the slots alone; 0 if they are the trainer's shard.
  virtual int64_t bytes() const = 0;
  // Whether the memory may be freed only after the consumer has closed it.
  virtual bool must_be_closed() const = 0;
  virtual SlotHandle handle() const = 0;

  virtual absl::Status BeginFill(int index, const PeerConnection& connection) = 0;
  // Copies the trainer's rows to a place inside a slot.
  virtual absl::Status Copy(std::byte* to, const void* rows, int64_t bytes) = 0;
  // `bytes`: the filled size of the slot.
  virtual absl::Status EndFill(int index, int64_t bytes) = 0;
  // The memory of a filled slot that this process can send: the host's. Null: it is a GPU's.
  virtual const std::byte* host_slot(int index) const { return slot(index); }

 protected:
  using SlotMemory::SlotMemory;
};

// The rollout's end.
class ConsumerSlots : public SlotMemory {
 public:
  // Of slot(), for StorageOps::StoreRows.
  virtual Location location() const = 0;

  virtual absl::Status BeginRead(int index, const PeerConnection& connection) = 0;
  virtual absl::Status EndRead(int index) = 0;

 protected:
  using SlotMemory::SlotMemory;
};

// A trainer's shard that the rollout may read in place.
struct ShardMemory {
  std::byte* data = nullptr;
  int64_t bytes = 0;
  int fd = -1;  // of host memory
};

enum class SlotLife { kOneUpdate, kManyUpdates };

// The slots as they arrived over the pair's socket.
struct PassedSlots {
  SlotHandle handle;  // its `fd` is not set
  UniqueFd fd;
  SlotShape shape;
};

// Not thread-safe, except the one of HostTransport(). Outlives the slots that it makes.
class WeightTransport {
 public:
  virtual ~WeightTransport() = default;

  // The producer's. `ledger` may be null; it counts the bytes under "bucket" once, here.
  // ResourceExhausted names the bytes and the key that lowers them.
  virtual absl::StatusOr<std::unique_ptr<ProducerSlots>> Create(const SlotShape& shape,
                                                                SlotLife life,
                                                                Ledger* ledger) = 0;
  // Direct slots over `shard`, which outlives them; only if can_share().
  virtual absl::StatusOr<std::unique_ptr<ProducerSlots>> Over(const ShardMemory& shard,
                                                              int slots) = 0;
  virtual bool can_share() const = 0;
  // Whether the rollout may be unable to open the slots: an update then tries to open them before
  // it gathers any tensor.
  virtual bool unproven() const = 0;
  // Called with the status `why` of each update's opening. True if the rollout could not open this
  // kind of memory and the next update will use another one.
  virtual bool FallBack(const absl::Status& why) = 0;
  virtual void Proven() = 0;

  // The consumer's. `ledger` may be null (see SharedRegion::MapForeign). InvalidArgument: not of
  // this shape, or a kind that this device does not have. Unimplemented: the system refuses to open
  // it, and another kind might work.
  virtual absl::StatusOr<std::unique_ptr<ConsumerSlots>> Open(PassedSlots passed,
                                                              Ledger* ledger) = 0;
  // The consumer's too: slots of its own, in memory of the host, which a SlotReceiver fills.
  // `ledger` (may be null) counts them under "bucket". InvalidArgument: a shape that no producer
  // sends. ResourceExhausted as of Create.
  virtual absl::StatusOr<std::unique_ptr<ConsumerSlots>> MakeOwn(const SlotShape& shape,
                                                                 Ledger* ledger) = 0;
  // Closes persistent slots: the producer has died.
  virtual void Forget() = 0;
};

// Shared memory between workers on CPUs: one object without state, for all threads.
WeightTransport* HostTransport();

// A line for the log: which transport weight_sync.transport selects for workers on a CPU, and why.
// FailedPrecondition: a transport that this device does not have.
absl::StatusOr<std::string> ChooseTransport(const std::string& key);

struct CudaTransportChoice {
  bool ipc = false;  // else pinned shared memory
  std::string why;   // a line for the log
};

// The same for workers on a GPU. `ipc`: OK if the device's memory can be exported, otherwise why
// not. FailedPrecondition: ipc is requested and refused. InvalidArgument: there is no such
// transport.
absl::StatusOr<CudaTransportChoice> ChooseCudaTransport(const std::string& key,
                                                        const absl::Status& ipc);

}  // namespace tandem
