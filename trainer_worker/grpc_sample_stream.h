// SampleStream over the controller's ClusterService.
#pragma once

#include <memory>

#include <absl/time/time.h>
#include <grpcpp/channel.h>

#include "tandem/v1/types.pb.h"
#include "trainer_worker/sample_stream.h"

namespace tandem {

// `limit` (cluster.rpc_timeout_seconds) applies to every call.
std::unique_ptr<SampleStream> MakeGrpcSampleStream(std::shared_ptr<grpc::Channel> channel,
                                                   const v1::WorkerId& worker,
                                                   absl::Duration limit);

}  // namespace tandem
