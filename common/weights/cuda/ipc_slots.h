// Slots in a GPU's memory that the consumer opens by the driver's handles (legacy CUDA IPC).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/device/cuda/cuda_api.h"
#include "common/device/cuda/cuda_context.h"
#include "common/weights/peer_connection.h"
#include "common/weights/weight_transport.h"

namespace tandem {

// The words of an error message: "the rollout died before its GPU read slot 1".
struct PartnerWork {
  const char* partner;  // the process that does it
  std::string what;     // in the past tense
  const char* remedy;   // if it has died
};

// Waits until `event`, which the partner records, has happened; usually it has. The host waits,
// never a stream: CUDA's manual does not say what becomes of an event whose process is killed
// before it happens, and a stream that waits for it might wait forever. Unavailable: the partner
// has died. DeadlineExceeded: it is alive, but needs longer than `connection.timeout`. Otherwise
// the driver's error.
absl::Status AwaitPartner(CudaApi& api,
                          CudaEvent event,
                          const PeerConnection& connection,
                          const PartnerWork& work);

// Two events per slot order both sides' work: the producer records "filled", the consumer
// "drained". The producer creates both, so that they outlive a consumer that dies. A side continues
// once the other's event has happened (AwaitPartner); the work on the other slot runs meanwhile. A
// handle opens the driver's whole 2 MiB block, so slots never share a block with other memory.

// The payload of a handle.
struct IpcPayload {
  int64_t mapping = 0;  // distinguishes the mappings of one process, and processes
  bool persistent = false;
  std::string uuid;  // of the device that owns the memory
  CudaIpcHandle memory;
  std::vector<CudaIpcHandle> filled, drained;  // of every slot

  std::string ToBytes() const;
  // InvalidArgument where ToBytes did not make the bytes.
  static absl::StatusOr<IpcPayload> FromBytes(const std::string& bytes);
};

// OK if this process can export memory and events, or the reason why not.
absl::Status ProbeIpc(CudaContext& context);

// The index, in this process, of the device with that UUID; CUDA_VISIBLE_DEVICES may differ between
// processes. FailedPrecondition: no visible device has it; names it and the visible ones.
absl::StatusOr<int> DeviceOfUuid(CudaApi& api, const std::string& uuid);

// The producer's end. `context` outlives it. Frees the memory when destroyed, after pending work in
// it.
absl::StatusOr<std::unique_ptr<ProducerSlots>> CreateIpcSlots(CudaContext* context,
                                                              const SlotShape& shape,
                                                              SlotLife life,
                                                              Ledger* ledger);
// Direct: `shard` is a whole allocation (CudaApi::Malloc).
absl::StatusOr<std::unique_ptr<ProducerSlots>> IpcSlotsOver(CudaContext* context,
                                                            const ShardMemory& shard,
                                                            int slots);

// A payload as the consumer opened it; closes it when destroyed.
class IpcMapping {
 public:
  // Unimplemented: the system refuses to open it. FailedPrecondition: its device is not
  // the context's; names both. ResourceExhausted. Otherwise the device here is lost.
  static absl::StatusOr<std::shared_ptr<IpcMapping>> Open(CudaContext* context,
                                                          const IpcPayload& payload);
  ~IpcMapping();
  IpcMapping(const IpcMapping&) = delete;
  IpcMapping& operator=(const IpcMapping&) = delete;

  bool persistent() const { return persistent_; }
  std::byte* memory() const { return memory_; }
  CudaEvent filled(int slot) const { return filled_[static_cast<size_t>(slot)]; }
  CudaEvent drained(int slot) const { return drained_[static_cast<size_t>(slot)]; }

 private:
  IpcMapping(CudaContext* context, bool persistent) : context_(context), persistent_(persistent) {}
  CudaContext* const context_;
  const bool persistent_;
  std::byte* memory_ = nullptr;
  std::vector<CudaEvent> filled_, drained_;
};

// The consumer's end, for one update: waits for pending reads when destroyed.
std::unique_ptr<ConsumerSlots> IpcSlotsOf(CudaContext* context,
                                          std::shared_ptr<IpcMapping> mapping,
                                          const SlotShape& shape);

}  // namespace tandem
