// How weights cross between two processes on one GPU: its own memory, opened by handle and ordered
// by events, or, where the system refuses that, pinned shared memory of the host.
#pragma once

#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "common/device/cuda/cuda_context.h"
#include "common/weights/weight_transport.h"

namespace tandem {

// The consumer keeps these open from update to update.
class IpcMapping;
class PinnedSlots;

// Not thread-safe.
class CudaTransport final : public WeightTransport {
 public:
  // `key` is weight_sync.transport: auto tries IPC, and logs the choice with its reason.
  // FailedPrecondition: ipc is requested, and this device or process does not support it. `context`
  // outlives it.
  static absl::StatusOr<std::unique_ptr<CudaTransport>> Create(CudaContext* context,
                                                               const std::string& key);
  ~CudaTransport() override;

  absl::StatusOr<std::unique_ptr<ProducerSlots>> Create(const SlotShape& shape,
                                                        SlotLife life,
                                                        Ledger* ledger) override;
  absl::StatusOr<std::unique_ptr<ProducerSlots>> Over(const ShardMemory& shard, int slots) override;
  bool can_share() const override { return ipc_; }
  bool unproven() const override { return ipc_ && !proven_; }
  bool FallBack(const absl::Status& why) override;
  void Proven() override { proven_ = true; }
  absl::StatusOr<std::unique_ptr<ConsumerSlots>> Open(PassedSlots passed, Ledger* ledger) override;
  absl::StatusOr<std::unique_ptr<ConsumerSlots>> MakeOwn(const SlotShape& shape,
                                                         Ledger* ledger) override;
  void Forget() override;

  bool ipc() const { return ipc_; }

 private:
  CudaTransport(CudaContext* context, bool ipc, bool may_fall_back)
      : context_(context), ipc_(ipc), may_fall_back_(may_fall_back) {}
  absl::StatusOr<std::unique_ptr<ConsumerSlots>> OpenIpc(const PassedSlots& passed);
  absl::StatusOr<std::unique_ptr<ConsumerSlots>> OpenPinned(PassedSlots passed, Ledger* ledger);

  CudaContext* const context_;
  bool ipc_;
  const bool may_fall_back_;
  bool proven_ = false;
  // The consumer's, of the payload that was opened last; null unless it is persistent.
  std::string payload_;
  std::shared_ptr<IpcMapping> opened_;
  std::shared_ptr<PinnedSlots> pinned_;
};

}  // namespace tandem
