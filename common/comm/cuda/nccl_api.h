// The interface of the NCCL communicator to NCCL: the library, looked up at run time
// (nccl_library.cc), or a test's stand-in. No NCCL header is needed to use it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/device/cuda/launch.h"

struct ncclComm;

namespace tandem {

using NcclComm = ncclComm*;

// What identifies a group to its ranks: an ncclUniqueId.
struct NcclId {
  std::array<char, 128> bytes{};
};

struct NcclMember {
  NcclId id;
  int rank = 0;
  int world_size = 1;
  bool single_channel = false;  // one ring, one order of every sum; slower
};

// Sends `bytes` to `peer`, or receives them from it.
struct NcclTransfer {
  enum class Way { kSend, kReceive };
  Way way = Way::kSend;
  void* data = nullptr;
  int64_t bytes = 0;
  int peer = 0;
};

// With a root, `to` [count] on that rank is the sum over ranks of their `from` [count], and `to` is
// ignored on the others. With kEveryRank, `to` [count] on each rank is the sum over ranks of its
// piece of `from` [world * count].
struct NcclSum {
  static constexpr int kEveryRank = -1;
  const float* from = nullptr;
  float* to = nullptr;
  int64_t count = 0;
  int root = 0;
};

// Communicators are non-blocking: a call may return before its work is on the stream. Until Ready
// says that it is, nothing else may be enqueued on the stream or the communicator. One thread at a
// time per communicator, Abort included. Errors: Unavailable (a peer is gone), Internal (all
// others), with NCCL's name of the error.
class NcclApi {
 public:
  virtual ~NcclApi() = default;

  virtual int version() const = 0;  // 22809 is 2.28.9
  virtual absl::StatusOr<NcclId> NewId() = 0;
  // Starts to form the group; Ready says when it is formed. The current device becomes the rank's.
  virtual absl::StatusOr<NcclComm> Join(const NcclMember& member) = 0;
  virtual absl::StatusOr<bool> Ready(NcclComm comm) = 0;

  // all [world * bytes]; `mine` may point to its place in it.
  virtual absl::Status AllGather(
      const void* mine, void* all, int64_t bytes, NcclComm comm, CudaStream stream) = 0;
  virtual absl::Status Broadcast(
      void* data, int64_t bytes, int root, NcclComm comm, CudaStream stream) = 0;
  // All sums as one group, the same on all ranks.
  virtual absl::Status Reduce(const std::vector<NcclSum>& sums,
                              NcclComm comm,
                              CudaStream stream) = 0;
  // All transfers as one group. Every send needs a matching receive on its peer.
  virtual absl::Status Transfer(const std::vector<NcclTransfer>& transfers,
                                NcclComm comm,
                                CudaStream stream) = 0;

  // Ends a communicator whose work is done: Finalize, Ready, Destroy.
  virtual absl::Status Finalize(NcclComm comm) = 0;
  virtual absl::Status Destroy(NcclComm comm) = 0;
  // Ends it without waiting for its work, and stops its kernels.
  virtual absl::Status Abort(NcclComm comm) = 0;
};

// Pins algorithm and protocol of all of NCCL's sums by setting NCCL_ALGO=Ring and NCCL_PROTO=Simple
// in the environment. Call it at the beginning of main, before other threads read the environment.
// Other values are overwritten, with a warning in the log.
void PinNcclSums();
// FailedPrecondition if PinNcclSums has not been called.
absl::Status CheckNcclSumsPinned();

// The machine's libnccl.so.2 (library_search.h). FailedPrecondition: PinNcclSums was not called,
// this program was built without NCCL's header, or there is no library, or it lacks a function; the
// message says which.
absl::StatusOr<std::unique_ptr<NcclApi>> OpenNccl();

}  // namespace tandem
