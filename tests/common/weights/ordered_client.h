// A trainer's client whose buckets arrive in order, for tests that count them.
#pragma once

#include "common/base/status.h"
#include "trainer_worker/weight_sync/grpc_update_client.h"

namespace tandem::testing {

constexpr int kSlots = 2;  // of a pair's updates

// Buckets of different slots are sent without waiting for each other, and a rollout may take them
// in any order: a fault that strikes its n-th may find another than the trainer's n-th.
class OrderedClient : public GrpcUpdateClient {
 public:
  using GrpcUpdateClient::GrpcUpdateClient;

 protected:
  // Waits until the buckets that are on their way have been answered.
  absl::Status AwaitEarlier() {
    for (int slot = 0; slot < kSlots; ++slot) {
      TANDEM_RETURN_IF_ERROR(GrpcUpdateClient::WaitApply(slot));
    }
    return absl::OkStatus();
  }
};

}  // namespace tandem::testing
