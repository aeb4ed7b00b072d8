// Ranks as threads, each with its own context on a GPU.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include "common/base/status.h"
#include "common/comm/cuda/device_group.h"
#include "common/device/cuda/cuda_context.h"
#include "tests/support/patience.h"

namespace tandem::testing {

struct DeviceRank {
  CudaContext& context;
  Communicator& group;
};

// The status of every rank's `body`, or of its joining. Rank r has device r % devices.
inline std::vector<absl::Status> RunDeviceRanks(
    CudaApi* cuda,
    NcclApi* nccl,
    int devices,
    int ranks,
    const std::function<absl::Status(DeviceRank rank)>& body) {
  std::vector<absl::Status> results(static_cast<size_t>(ranks));
  const auto run = [&](int rank) -> absl::Status {
    const int device = rank % devices;
    TANDEM_ASSIGN_OR_RETURN(auto context, CudaContext::Create(cuda, device));
    DeviceGroupOptions options;
    options.group.rank = rank;
    options.group.world_size = ranks;
    options.group.rendezvous = "/tmp/tandem-gpu-ranks-" + std::to_string(getpid()) + ".sock";
    options.group.deadline = kPatience;
    options.cuda = cuda;
    options.device = device;
    options.compute = context->stream();
    options.nccl = nccl;
    TANDEM_ASSIGN_OR_RETURN(auto group, JoinDeviceGroup(options));
    return body({*context, *group});
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] { results[static_cast<size_t>(rank)] = run(rank); });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

}  // namespace tandem::testing
