// All rollouts of a run as one service, which answers every call from its request alone.
#pragma once

#include <memory>

namespace grpc {
class Service;
}

namespace tandem::testing {

// Generates responses of the length that the request allows, whose tokens are a function of the
// sample's id. Serves with gRPC's own few threads, however many calls run.
std::unique_ptr<grpc::Service> MakeFakeRollouts();

}  // namespace tandem::testing
