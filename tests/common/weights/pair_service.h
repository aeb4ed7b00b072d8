// A rollout's half of a pair: its weights, and the calls about them.
#pragma once

#include <csignal>
#include <memory>
#include <mutex>
#include <string>

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include "common/base/status.h"
#include "common/net/grpc_status.h"
#include "common/net/update_codec.h"
#include "rollout_worker/weights/weight_updates.h"
#include "tandem/v1/rollout.grpc.pb.h"
#include "tests/common/weights/pair_device.h"

namespace tandem::testing {

struct PairFault {
  std::string kind = "none";
  int at = -1;
  int bucket = 0;
  // Whether the fault strikes at this bucket, which is the next one.
  bool Step() { return bucket++ == at; }
  // What strikes a process.
  void Strike() const {
    if (kind == "die") kill(getpid(), SIGKILL);
    while (kind == "stall") pause();  // until it is killed
  }
};

class PairService : public v1::RolloutService::Service {
 public:
  PairService(PairDevice* device,
              MemoryRegion* weights,
              RolloutStates* states,
              WeightUpdates* updates,
              PairFault fault)
      : device_(device),
        weights_(weights),
        states_(states),
        updates_(updates),
        fault_(std::move(fault)) {}

  grpc::Status BeginUpdate(grpc::ServerContext*,
                           const v1::BeginUpdateRequest* request,
                           v1::BeginUpdateResponse* response) override {
    return Locked([&]() -> absl::Status {
      TANDEM_ASSIGN_OR_RETURN(const Manifest manifest, FromProto(request->manifest()));
      response->set_pair_socket(updates_->pair_socket());
      trainer_ = request->trainer_boot_id();
      states_->CloseAdmission();
      return updates_->Begin({{request->version(), request->generation()},
                              {request->slot_bytes(), request->slots(), request->direct()},
                              manifest,
                              request->scramble()});
    });
  }
  grpc::Status ApplyBucket(grpc::ServerContext*,
                           const v1::ApplyBucketRequest* request,
                           v1::ApplyBucketResponse*) override {
    return Locked([&] {
      if (request->entries_size() > 0 && fault_.Step()) {
        fault_.Strike();
        if (fault_.kind == "kill") kill(std::stoi(trainer_), SIGKILL);
        if (fault_.kind == "occupy") TANDEM_RETURN_IF_ERROR(device_->Occupy());
      }
      const absl::Status status = updates_->Apply({request->version(), request->generation()},
                                                  request->slot(), FromProto(request->entries()));
      if (absl::IsUnavailable(status)) last_action_ = std::string(status.message());
      return status;
    });
  }
  grpc::Status CommitUpdate(grpc::ServerContext*,
                            const v1::CommitUpdateRequest* request,
                            v1::CommitUpdateResponse*) override {
    return Locked([&]() -> absl::Status {
      TANDEM_ASSIGN_OR_RETURN(const auto digests, FromProto(request->digests()));
      return updates_->Commit({request->version(), request->generation()}, digests);
    });
  }
  grpc::Status AbortUpdate(grpc::ServerContext*,
                           const v1::AbortUpdateRequest* request,
                           v1::AbortUpdateResponse* response) override {
    return Locked([&] {
      updates_->Abort({request->version(), request->generation()});
      response->set_version(updates_->transaction().version());
      return absl::OkStatus();
    });
  }
  grpc::Status GetDigests(grpc::ServerContext*,
                          const v1::GetDigestsRequest*,
                          v1::GetDigestsResponse* response) override {
    return Locked([&]() -> absl::Status {
      response->set_version(updates_->transaction().version());
      ToProto(ManifestOf(updates_->transaction().storage().layout()), response->mutable_manifest());
      TANDEM_ASSIGN_OR_RETURN(const auto digests, updates_->transaction().Digests());
      ToProto(digests, response->mutable_digests());
      return absl::OkStatus();
    });
  }
  grpc::Status ReadTensor(grpc::ServerContext*,
                          const v1::ReadTensorRequest* request,
                          v1::ReadTensorResponse* response) override {
    return Locked([&]() -> absl::Status {
      TANDEM_ASSIGN_OR_RETURN(*response->mutable_data(),
                              updates_->ReadRows(request->name(), request->row(), request->rows()));
      return absl::OkStatus();
    });
  }
  // Level 2, of the weights, which is all there is.
  grpc::Status Sleep(grpc::ServerContext*,
                     const v1::SleepRequest*,
                     v1::SleepResponse* response) override {
    return Locked([&]() -> absl::Status {
      states_->CloseAdmission();
      TANDEM_RETURN_IF_ERROR(weights_->Release());
      states_->set_mapped(false, false);
      updates_->DropVersion();
      TANDEM_RETURN_IF_ERROR(states_->Handle(RolloutEvent::kSleep));
      response->set_freed_bytes(weights_->bytes());
      return absl::OkStatus();
    });
  }
  grpc::Status Wake(grpc::ServerContext*, const v1::WakeRequest*, v1::WakeResponse*) override {
    return Locked([&]() -> absl::Status {
      TANDEM_RETURN_IF_ERROR(weights_->Map());
      states_->set_mapped(true, true);
      return states_->Handle(RolloutEvent::kWake);
    });
  }
  // As the engine does between its steps.
  grpc::Status GetStatus(grpc::ServerContext*,
                         const v1::RolloutStatusRequest*,
                         v1::RolloutStatusResponse* response) override {
    return Locked([&] {
      const absl::Status peer = updates_->Poll();
      if (!peer.ok()) last_action_ = std::string(peer.message());
      response->set_last_action(last_action_);
      response->set_version(updates_->transaction().version());
      response->set_state(updates_->transaction().updating()                ? v1::UPDATING
                          : updates_->transaction().version() == kNoVersion ? v1::EMPTY
                                                                            : v1::SERVING);
      return absl::OkStatus();
    });
  }

 private:
  // One call at a time, on whichever thread, as an engine's are.
  template <typename Call>
  grpc::Status Locked(const Call& call) {
    std::lock_guard lock(mutex_);
    const absl::Status here = device_->device().UseOnThisThread();
    return ToGrpcStatus(here.ok() ? call() : here);
  }

  std::mutex mutex_;
  // Guarded by mutex_.
  PairDevice* const device_;
  MemoryRegion* const weights_;
  RolloutStates* const states_;
  WeightUpdates* const updates_;
  PairFault fault_;
  std::string trainer_;  // the process's id
  std::string last_action_;
};

}  // namespace tandem::testing
