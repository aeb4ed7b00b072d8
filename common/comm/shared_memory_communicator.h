// Collectives of ranks on one host, over unnamed shared memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include "common/base/clock.h"
#include "common/comm/communicator.h"

namespace tandem {

// Identifies a call by its collective and sizes, so that ranks notice if they make different calls.
inline uint64_t CallSignature(std::string_view collective, const std::vector<int64_t>& sizes) {
  uint64_t hash = 0;
  for (const char c : collective) hash = (hash ^ static_cast<uint64_t>(c)) * 0x9E3779B97F4A7C15u;
  for (const int64_t size : sizes) {
    hash = (hash ^ static_cast<uint64_t>(size)) * 0xD6E8FEB86659FD93u;
    hash ^= hash >> 32;
  }
  return hash;
}

// More than any host has devices. Sizes of a group are products with this number at most.
inline constexpr int kMostRanksOfHost = 1024;

struct GroupHosts;

// The ranks are processes or threads of one host and share one unnamed memory segment, but where
// `hosts` says otherwise.
struct SharedMemoryGroupOptions {
  int rank = 0;
  int world_size = 1;
  std::string rendezvous;  // path of a Unix socket; rank 0 makes and removes it
  int64_t generation = 0;  // of the group; others are refused
  absl::Duration deadline = absl::Seconds(600);  // of joining and of every call
  int64_t staging_bytes = 1 << 20;               // one of the two staging buffers of a rank
  const std::atomic<bool>* cancelled = nullptr;  // ends a pending Join when set
  bool single_channel = false;                   // passed on to NCCL if it is used: NcclOptions
  // Where the ranks are, for JoinGroup (common/comm/hosts/join_group.h) while it joins; null: all
  // on this host.
  const GroupHosts* hosts = nullptr;
  // Measures the deadline of this group's waits; waits for devices have clocks of their own.
  Clock* clock = &RealClock();
};

// Blocks until all ranks have joined, in any order. World size 1 gives a SoloCommunicator.
// DeadlineExceeded names the ranks that did not come; Aborted: a newer generation has begun, or
// cancelled; InvalidArgument: options differ between ranks, or more than kMostRanksOfHost.
absl::StatusOr<std::unique_ptr<Communicator>> JoinSharedMemoryGroup(
    const SharedMemoryGroupOptions& options);

// The same for two ranks or more, as the base of a group of devices.
absl::StatusOr<std::unique_ptr<HostGroup>> JoinHostGroup(const SharedMemoryGroupOptions& options);

}  // namespace tandem
