// All trainers of a run as one service, which answers every call from its request alone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace grpc {
class Channel;
class Service;
}  // namespace grpc

namespace tandem::testing {

// Whose request it is: the incarnation tells, as no two workers of the bench have the same.
struct FakeTrainer {
  int rank = 0;
  std::shared_ptr<grpc::Channel> controller;  // its own connection
};

// A mini-batch is fetched from the controller as a real trainer fetches it, counted and dropped:
// that is a part of the controller's work. Serves with gRPC's own few threads, however many calls
// run.
std::unique_ptr<grpc::Service> MakeFakeTrainers(
    std::function<FakeTrainer(int64_t incarnation)> trainer_of);

}  // namespace tandem::testing
