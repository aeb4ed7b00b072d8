// SampleStream over the controller's ClusterService.
#pragma once

#include <functional>
#include <memory>

#include <absl/status/statusor.h>
#include <absl/time/time.h>
#include <grpcpp/channel.h>

#include "tandem/v1/types.pb.h"
#include "trainer_worker/sample_stream.h"

namespace tandem {

// Makes a channel to the controller.
using ControllerConnector = std::function<absl::StatusOr<std::shared_ptr<grpc::Channel>>()>;

// `limit` (cluster.rpc_timeout_seconds) applies to every call. The first call connects, and so does
// the one after a call that the controller did not answer: a connection may stay open and bring
// nothing any more.
std::unique_ptr<SampleStream> MakeGrpcSampleStream(ControllerConnector connect,
                                                   const v1::WorkerId& worker,
                                                   absl::Duration limit);

}  // namespace tandem
