// A rollout's half of a pair: its weights, and the calls about them.
#pragma once

#include <csignal>
#include <memory>
#include <string>

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include "common/base/mutex.h"
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
      : parts_{device, weights, states, updates, std::move(fault)} {}

  grpc::Status BeginUpdate(grpc::ServerContext*,
                           const v1::BeginUpdateRequest* request,
                           v1::BeginUpdateResponse* response) override {
    return Locked([&](Parts& parts) -> absl::Status {
      TANDEM_ASSIGN_OR_RETURN(const Manifest manifest, FromProto(request->manifest()));
      response->set_pair_socket(parts.updates->pair_socket());
      parts.trainer = request->trainer_boot_id();
      parts.states->CloseAdmission();
      StreamOffer offer;
      TANDEM_RETURN_IF_ERROR(parts.updates->Begin(
          {.id = {request->version(), request->generation()},
           .slots = {request->slot_bytes(), request->slots(), request->direct()},
           .manifest = manifest,
           .scramble = request->scramble(),
           .group_generation = request->group_generation(),
           .over_tcp = request->over_tcp()},
          &offer));
      response->set_data_address(offer.address);
      response->set_ticket(offer.ticket);
      return absl::OkStatus();
    });
  }
  grpc::Status ApplyBucket(grpc::ServerContext*,
                           const v1::ApplyBucketRequest* request,
                           v1::ApplyBucketResponse*) override {
    return Locked([&](Parts& parts) {
      if (request->entries_size() > 0 && parts.fault.Step()) {
        parts.fault.Strike();
        if (parts.fault.kind == "kill") kill(std::stoi(parts.trainer), SIGKILL);
        if (parts.fault.kind == "occupy") TANDEM_RETURN_IF_ERROR(parts.device->Occupy());
      }
      const absl::Status status =
          parts.updates->Apply({request->version(), request->generation()}, request->slot(),
                               FromProto(request->entries()));
      if (absl::IsUnavailable(status)) parts.last_action = std::string(status.message());
      return status;
    });
  }
  grpc::Status CommitUpdate(grpc::ServerContext*,
                            const v1::CommitUpdateRequest* request,
                            v1::CommitUpdateResponse*) override {
    return Locked([&](Parts& parts) -> absl::Status {
      TANDEM_ASSIGN_OR_RETURN(const auto digests, FromProto(request->digests()));
      return parts.updates->Commit({request->version(), request->generation()}, digests);
    });
  }
  grpc::Status AbortUpdate(grpc::ServerContext*,
                           const v1::AbortUpdateRequest* request,
                           v1::AbortUpdateResponse* response) override {
    return Locked([&](Parts& parts) {
      parts.updates->Abort({request->version(), request->generation()});
      response->set_version(parts.updates->transaction().version());
      return absl::OkStatus();
    });
  }
  grpc::Status GetDigests(grpc::ServerContext*,
                          const v1::GetDigestsRequest*,
                          v1::GetDigestsResponse* response) override {
    return Locked([&](Parts& parts) -> absl::Status {
      response->set_version(parts.updates->transaction().version());
      ToProto(ManifestOf(parts.updates->transaction().storage().layout()),
              response->mutable_manifest());
      TANDEM_ASSIGN_OR_RETURN(const auto digests, parts.updates->transaction().Digests());
      ToProto(digests, response->mutable_digests());
      return absl::OkStatus();
    });
  }
  grpc::Status ReadTensor(grpc::ServerContext*,
                          const v1::ReadTensorRequest* request,
                          v1::ReadTensorResponse* response) override {
    return Locked([&](Parts& parts) -> absl::Status {
      TANDEM_ASSIGN_OR_RETURN(
          *response->mutable_data(),
          parts.updates->ReadRows(request->name(), request->row(), request->rows()));
      return absl::OkStatus();
    });
  }
  // Level 2, of the weights, which is all there is.
  grpc::Status Sleep(grpc::ServerContext*,
                     const v1::SleepRequest*,
                     v1::SleepResponse* response) override {
    return Locked([&](Parts& parts) -> absl::Status {
      parts.states->CloseAdmission();
      TANDEM_RETURN_IF_ERROR(parts.weights->Release());
      parts.states->set_mapped(false, false);
      parts.updates->DropVersion();
      TANDEM_RETURN_IF_ERROR(parts.states->Handle(RolloutEvent::kSleep));
      response->set_freed_bytes(parts.weights->bytes());
      return absl::OkStatus();
    });
  }
  grpc::Status Wake(grpc::ServerContext*, const v1::WakeRequest*, v1::WakeResponse*) override {
    return Locked([&](Parts& parts) -> absl::Status {
      TANDEM_RETURN_IF_ERROR(parts.weights->Map());
      parts.states->set_mapped(true, true);
      return parts.states->Handle(RolloutEvent::kWake);
    });
  }
  // As the engine does between its steps.
  grpc::Status GetStatus(grpc::ServerContext*,
                         const v1::RolloutStatusRequest*,
                         v1::RolloutStatusResponse* response) override {
    return Locked([&](Parts& parts) {
      const absl::Status peer = parts.updates->Poll();
      if (!peer.ok()) parts.last_action = std::string(peer.message());
      response->set_last_action(parts.last_action);
      response->set_version(parts.updates->transaction().version());
      response->set_state(parts.updates->transaction().updating()                ? v1::UPDATING
                          : parts.updates->transaction().version() == kNoVersion ? v1::EMPTY
                                                                                 : v1::SERVING);
      return absl::OkStatus();
    });
  }

 private:
  struct Parts {
    PairDevice* const device;
    MemoryRegion* const weights;
    RolloutStates* const states;
    WeightUpdates* const updates;
    PairFault fault;
    std::string trainer = {};  // the process's id
    std::string last_action = {};
  };
  // One call at a time, on whichever thread, as an engine's are.
  template <typename Call>
  grpc::Status Locked(const Call& call) {
    const MutexLock lock(parts_mutex_);
    const absl::Status here = parts_.device->device().UseOnThisThread();
    return ToGrpcStatus(here.ok() ? call(parts_) : here);
  }

  Mutex parts_mutex_;
  Parts parts_ ABSL_GUARDED_BY(parts_mutex_);
};

}  // namespace tandem::testing
