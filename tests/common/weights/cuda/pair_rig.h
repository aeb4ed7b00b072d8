// A trainer's publisher and a rollout's updates in one process, over a Unix socket and any of the
// transports; for a GPU each side has its own emulated one.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <unistd.h>

#include "common/base/status.h"
#include "common/weights/cuda/cuda_storage_ops.h"
#include "common/weights/cuda/cuda_transport.h"
#include "rollout_worker/weights/weight_updates.h"
#include "tests/common/device/cuda/calls_of.h"
#include "tests/common/weights/cuda/device_weights.h"
#include "tests/emulator/emulated_cuda.h"
#include "tests/support/patience.h"
#include "trainer_worker/weight_sync/weight_publisher.h"

namespace tandem::testing {

// The rollout's calls without gRPC. An Apply is carried out at once.
class PairClient : public UpdateClient {
 public:
  PairClient(RolloutStates* states, WeightUpdates* updates) : states_(states), updates_(updates) {}
  absl::StatusOr<PeerConnection> Begin(const UpdateRequest& request,
                                       const ProducerSlots& slots) override {
    request_ = request;
    states_->CloseAdmission();
    request_.scramble = scramble;
    TANDEM_RETURN_IF_ERROR(updates_->Begin(request_));
    PeerConnection link{.socket = UniqueFd(), .timeout = partner_timeout};
    TANDEM_ASSIGN_OR_RETURN(link.socket,
                            PassSlots(updates_->pair_socket(), request.id.update_number, slots));
    return link;
  }
  absl::Status StartApply(int slot, const std::vector<BucketEntry>& entries) override {
    if (bucket == fail_at_bucket && !entries.empty()) {
      return MakeStatus(absl::StatusCode::kUnavailable, "lost at bucket {}", bucket);
    }
    if (!entries.empty()) ++bucket;
    applied_[slot] = updates_->Apply(id(), slot, entries);
    return absl::OkStatus();
  }
  absl::Status WaitApply(int slot) override { return std::exchange(applied_[slot], {}); }
  absl::Status Commit(const std::vector<Digest>& digests) override {
    if (before_commit) before_commit();
    return updates_->Commit(id(), digests);
  }
  absl::Status Abort(const std::string& /*reason*/) override {
    if (silent) return absl::DeadlineExceededError("no answer");
    updates_->Abort(id());
    return absl::OkStatus();
  }

  bool scramble = false;
  int bucket = 0;
  int fail_at_bucket = -1;
  std::function<void()> before_commit;
  bool silent = false;  // does not answer an abort
  absl::Duration partner_timeout = kPatience;

 private:
  UpdateId id() const { return request_.id; }

  RolloutStates* const states_;
  WeightUpdates* const updates_;
  UpdateRequest request_;
  std::map<int, absl::Status> applied_;
};

enum class Way { kHost, kIpc, kPinned };
inline const char* NameOf(Way way) {
  return way == Way::kHost ? "host" : way == Way::kIpc ? "ipc" : "pinned";
}

// One side's device, if it has one, and the way that weights go.
struct Side {
  Side(Way way, const std::string& key, emulator::EmulatedCudaOptions options, int device)
      : cuda(options) {
    if (way == Way::kHost) return;
    context = CudaContext::Create(&cuda, device).value();
    cuda_transport = CudaTransport::Create(context.get(), key).value();
    transport = cuda_transport.get();
    context->Upload(&way, sizeof(way));  // its memory is there from now on
    REQUIRE(context->Synchronize().ok());
  }
  emulator::EmulatedCuda cuda;
  std::unique_ptr<CudaContext> context;
  std::unique_ptr<CudaTransport> cuda_transport;
  WeightTransport* transport = HostTransport();
};

// A separate process for the trainer.
inline emulator::EmulatedCudaOptions OfRollout(emulator::EmulatedCudaOptions options) {
  options.process = -1;
  return options;
}

struct PairRig {
  PairRig(Way rig_way,
          const ModelSpec& spec,
          DType dtype = DType::kBFloat16,
          emulator::EmulatedCudaOptions options = {},
          int device = 0)
      : way(rig_way),
        layout(WeightLayout::Build(
            spec, dtype, way == Way::kHost ? WeightFormat::kPanels : WeightFormat::kRowMajor)),
        trainer(way, way == Way::kPinned ? "shm" : "auto", {}, 0),
        rollout(way, "auto", OfRollout(options), device) {
    std::unique_ptr<StorageOps> ops;
    if (way == Way::kHost) {
      host.resize(static_cast<size_t>(layout.total_bytes()));
      storage = host.data();
      ops = CreateCpuStorageOps(&layout, storage, std::make_shared<ThreadPool>(1));
    } else {
      storage = rollout.cuda.Malloc(layout.total_bytes()).value();
      memset(storage, 0, static_cast<size_t>(layout.total_bytes()));
      ops = CreateCudaStorageOps(&layout, storage, rollout.context.get()).value();
    }
    static int rigs = 0;
    WeightUpdatesOptions update_options;
    update_options.pair_socket =
        "/tmp/tandem-rig-" + std::to_string(getpid()) + "-" + std::to_string(rigs++) + ".sock";
    update_options.slots_timeout = absl::Milliseconds(200);
    update_options.transport = rollout.transport;
    states.set_mapped(true, true);
    updates = WeightUpdates::Create(std::move(ops), &states, update_options).value();
  }

  std::unique_ptr<MemoryWeights> Weights(uint64_t seed, bool direct) {
    if (!direct) return std::make_unique<MemoryWeights>(layout, seed);
    if (way != Way::kHost) {
      return std::make_unique<DeviceWeights>(layout, seed, trainer.context.get(),
                                             DeviceWeights::Use::kShared);
    }
    auto weights = std::make_unique<MemoryWeights>(layout, seed);
    weights->Share();
    return weights;
  }
  PublishOptions Options(int64_t slot_bytes, int slots, int64_t keep_bytes = 0) {
    return {slot_bytes, slots, &ledger, keep_bytes, slot_bytes, trainer.transport};
  }
  bool Holds(MemoryWeights& weights) {
    const auto held = updates->transaction().Digests();
    REQUIRE(held.ok());
    REQUIRE(*held == weights.Digests().value());
    for (const TensorPlace& place : layout.places()) {
      const int64_t bytes = MemoryWeights::Bytes(layout, place);
      std::vector<std::byte> rows(static_cast<size_t>(bytes));
      layout.ReadRows(storage + layout.group_offset(place.layer), place, 0, place.rows(),
                      rows.data());
      if (bytes > 0 && memcmp(rows.data(), weights.tensor(place.name), rows.size()) != 0) {
        return false;
      }
    }
    return updates->transaction().storage().CheckPadding().ok();
  }

  const Way way;
  WeightLayout layout;
  Ledger ledger;
  Side trainer, rollout;
  std::vector<std::byte> host;
  std::byte* storage = nullptr;
  RolloutStates states;
  std::unique_ptr<WeightUpdates> updates;
};

}  // namespace tandem::testing
