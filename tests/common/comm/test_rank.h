// One rank of a group of each kind: over host memory, staged from an emulated GPU, and NCCL's
// stand-in between emulated GPUs.
#pragma once

#include <memory>

#include <absl/status/statusor.h>
#include <catch2/catch.hpp>

#include "common/base/status.h"
#include "common/comm/cuda/device_group.h"
#include "tests/common/comm/cuda/fake_nccl.h"
#include "tests/emulator/emulated_cuda.h"

namespace tandem::testing {

enum class Way { kHost, kStaged, kNccl };
inline constexpr Way kWays[] = {Way::kHost, Way::kStaged, Way::kNccl};

inline const char* NameOf(Way way) {
  return way == Way::kHost ? "host" : way == Way::kStaged ? "staged" : "NCCL";
}

// The rank that a sum for `rank` begins with; the others follow, around the ring.
inline int FirstOfSum(Way way, int rank, int world) {
  return way == Way::kNccl ? (rank + 1) % world : 0;
}

class TestRank {
 public:
  // Small chunks, so that a few thousand values are several. `nccl` may be null but for kNccl.
  static absl::StatusOr<std::unique_ptr<TestRank>> Join(Way way,
                                                        const SharedMemoryGroupOptions& options,
                                                        FakeNccl* nccl) {
    auto rank = std::make_unique<TestRank>(options.world_size);
    if (way == Way::kHost) {
      TANDEM_ASSIGN_OR_RETURN(rank->group_, JoinSharedMemoryGroup(options));
      return rank;
    }
    TANDEM_ASSIGN_OR_RETURN(rank->compute_, rank->cuda_.CreateStream());
    DeviceGroupOptions device;
    device.group = options;
    device.cuda = &rank->cuda_;
    device.device = way == Way::kNccl ? options.rank : 0;
    device.compute = rank->compute_;
    device.nccl = nccl;
    device.scratch_bytes = 8192;
    device.staging_bytes = 8192;
    TANDEM_ASSIGN_OR_RETURN(rank->group_, JoinDeviceGroup(device));
    return rank;
  }

  explicit TestRank(int devices)
      : cuda_(emulator::EmulatedCudaOptions{.devices = devices, .late_streams = true}) {}
  ~TestRank() {
    group_.reset();
    if (compute_ != nullptr) (void)cuda_.DestroyStream(compute_);
  }
  Communicator& group() { return *group_; }
  emulator::EmulatedCuda& cuda() { return cuda_; }
  CudaStream compute() const { return compute_; }

 private:
  emulator::EmulatedCuda cuda_;
  CudaStream compute_ = nullptr;
  std::unique_ptr<Communicator> group_;
};

}  // namespace tandem::testing
