// Waiting for what the other process of a pair has put on its device.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/device/cuda/cuda_api.h"
#include "common/device/cuda/cuda_context.h"
#include "common/weights/pair_link.h"
#include "common/weights/weight_transport.h"

namespace tandem {

// In the words of an error: "the rollout died before its GPU read slot 1".
struct PartnerWork {
  const char* partner;  // who does it
  std::string what;     // in the past tense
  const char* remedy;   // where it is dead
};

// Waits until `event`, which the partner records, has happened: mostly it has. It does so on the
// host, and no stream waits for such an event: the manual does not say what becomes of one whose
// process is killed before it happens, and a stream that waits for it may never go on.
// Unavailable: the partner is gone. DeadlineExceeded: it is there, and needs longer than
// `link.timeout`. Otherwise what the driver says.
absl::Status AwaitPartner(CudaApi& api,
                          CudaEvent event,
                          const PairLink& link,
                          const PartnerWork& work);

// Slots in a GPU's memory that the consumer opens by the driver's handles (legacy CUDA IPC), and
// the events that order both sides' work: "filled" of every slot is recorded by the producer,
// "drained" by the consumer. The producer makes both, so that they outlive a consumer that dies. A
// side goes on once the other's event has happened (await_partner.h): given up for that is that a
// stream waits by itself while its host is already further; the other slot's work goes on
// meanwhile. A handle opens a whole block of the driver's, so that slots take whole blocks of 2
// MiB.

// What the payload of a handle says.
struct IpcPayload {
  int64_t mapping = 0;  // tells mappings of a process, and processes, apart
  bool lasting = false;
  std::string uuid;  // of the device that the memory lies on
  CudaIpcHandle memory;
  std::vector<CudaIpcHandle> filled, drained;  // of every slot

  std::string ToBytes() const;
  // InvalidArgument: not what ToBytes makes.
  static absl::StatusOr<IpcPayload> FromBytes(const std::string& bytes);
};

// Whether this process may hand out memory and events at all: OK, or why not.
absl::Status ProbeIpc(CudaContext& context);

// The index here of the device with that uuid, whatever CUDA_VISIBLE_DEVICES says here and there.
// FailedPrecondition: none has it; names it and those there are.
absl::StatusOr<int> DeviceOfUuid(CudaApi& api, const std::string& uuid);

// The producer's end. `context` outlives it. Frees the memory, after what is under way in it, when
// destroyed.
absl::StatusOr<std::unique_ptr<SlotMemory>> CreateIpcSlots(CudaContext* context,
                                                           const SlotShape& shape,
                                                           SlotLife life,
                                                           Ledger* ledger);
// Direct: `shard` is a whole allocation (CudaApi::Malloc).
absl::StatusOr<std::unique_ptr<SlotMemory>> IpcSlotsOver(CudaContext* context,
                                                         const ShardMemory& shard,
                                                         int slots);

// What the consumer has opened of a payload; closes it when destroyed.
class IpcMapping {
 public:
  // Unimplemented: the system refuses to open it. FailedPrecondition: it lies on another device
  // than the context's; names both. ResourceExhausted. Otherwise the device here is lost.
  static absl::StatusOr<std::shared_ptr<IpcMapping>> Open(CudaContext* context,
                                                          const IpcPayload& payload);
  ~IpcMapping();
  IpcMapping(const IpcMapping&) = delete;
  IpcMapping& operator=(const IpcMapping&) = delete;

  bool lasting() const { return lasting_; }
  std::byte* memory() const { return memory_; }
  CudaEvent filled(int slot) const { return filled_[static_cast<size_t>(slot)]; }
  CudaEvent drained(int slot) const { return drained_[static_cast<size_t>(slot)]; }

 private:
  IpcMapping(CudaContext* context, bool lasting) : context_(context), lasting_(lasting) {}
  CudaContext* const context_;
  const bool lasting_;
  std::byte* memory_ = nullptr;
  std::vector<CudaEvent> filled_, drained_;
};

// The consumer's end, for one update: waits for the reads under way when destroyed.
std::unique_ptr<SlotMemory> IpcSlotsOf(CudaContext* context,
                                       std::shared_ptr<IpcMapping> mapping,
                                       const SlotShape& shape);

}  // namespace tandem
