// Where payload crosses: memory of the trainer's that the rollout reads during an update. Either
// slots that rows are copied into, or the trainer's shard itself ("direct"), where nothing is
// copied. Holds payload only, never control words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <absl/status/status.h>

#include "common/types/ledger_snapshot.h"
#include "common/weights/pair_link.h"

namespace tandem {

// How the memory is used. Direct: every slot is all of it, and `slots` only says how many buckets
// may be on their way at once.
struct SlotShape {
  int64_t slot_bytes = 0;
  int slots = 0;
  bool direct = false;
  int64_t bytes() const { return direct ? slot_bytes : slot_bytes * slots; }
  friend bool operator==(const SlotShape&, const SlotShape&) = default;
};

// What the consumer opens the memory by: a descriptor of shared memory, or what the GPU's driver
// hands out, as the transport that made it wrote it down.
struct SlotHandle {
  enum class Kind : int64_t { kSharedMemory = 0, kCudaIpc = 1 };
  Kind kind = Kind::kSharedMemory;
  std::string payload;
  int fd = -1;  // the memory's own
};

// One end's view of the memory; gives it up when destroyed. Not thread-safe. On a GPU the calls
// order the device's work: what the producer copied before EndFill is there for what the consumer
// does after BeginRead, and what it has read before EndRead is read when the producer fills after
// BeginFill. The calls of an Apply carry the order from one host to the other. Nothing that is put
// on a stream waits for the other process, which may die before it happens: BeginFill and BeginRead
// wait for it on the host instead, if it has not happened yet, and look at `link` meanwhile.
// Unavailable: the process at its other end is gone. DeadlineExceeded: its device took longer than
// the link's timeout. Both say what to do.
class SlotMemory {
 public:
  virtual ~SlotMemory() = default;
  SlotMemory(const SlotMemory&) = delete;
  SlotMemory& operator=(const SlotMemory&) = delete;

  const SlotShape& shape() const { return shape_; }
  int slots() const { return shape_.slots; }
  virtual std::byte* slot(int index) const = 0;
  // Of what slot() gives: kHost only where the device is no host (StorageOps).
  virtual Location location() const { return Location::kDevice; }
  // Held beside what is there anyway.
  virtual int64_t bytes() const = 0;
  // The consumer has it open from update to update: it is not to be freed between two of them. Said
  // by both ends.
  virtual bool lasting() const { return false; }
  // Whether the consumer has to have closed it before it is freed.
  virtual bool must_be_closed() const { return false; }
  virtual SlotHandle handle() const = 0;

  // The producer's. Copy takes rows from where the trainer has them, to a place inside a slot;
  // `bytes` of the slot are filled in all.
  virtual absl::Status BeginFill(int index, const PairLink& link) = 0;
  virtual absl::Status Copy(std::byte* to, const void* rows, int64_t bytes) = 0;
  virtual absl::Status EndFill(int index, int64_t bytes) = 0;
  // The consumer's.
  virtual absl::Status BeginRead(int index, const PairLink& link) = 0;
  virtual absl::Status EndRead(int index) = 0;

 protected:
  explicit SlotMemory(const SlotShape& shape) : shape_(shape) {}
  const SlotShape shape_;
};

}  // namespace tandem
