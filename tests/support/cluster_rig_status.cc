// Separate from the rest, so that only programs that ask for a status link gRPC.
#include <stdexcept>

#include <grpcpp/channel.h>

#include "common/net/channel.h"
#include "tandem/v1/controller.grpc.pb.h"
#include "tests/support/cluster_rig.h"
#include "tests/support/patience.h"

namespace tandem::testing {

std::optional<v1::GetStatusResponse> ClusterRig::Status() const {
  auto channel = MakeChannel(controller_address(), {.token_file = token_file()});
  if (!channel.ok()) throw std::runtime_error(channel.status().ToString());
  grpc::ClientContext context;
  SetDeadline(context, kPatience);
  v1::GetStatusResponse response;
  const auto stub = v1::TandemService::NewStub(*channel);
  if (!stub->GetStatus(&context, {}, &response).ok()) return std::nullopt;
  return response;
}

}  // namespace tandem::testing
