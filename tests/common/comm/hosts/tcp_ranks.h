// Runs the ranks of a group over TCP as threads of this process.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "common/comm/group_hosts.h"
#include "common/comm/hosts/join_group.h"
#include "common/tcp/tcp_listener.h"
#include "tests/common/comm/comm_test_group.h"
#include "tests/support/patience.h"

namespace tandem::testing {

// Hosts of so many neighbouring ranks each, on 127.0.0.1.
class TcpRanks {
 public:
  explicit TcpRanks(const std::vector<int>& ranks_of_hosts, TcpSecurity security = {}) {
    hosts_.always = true;
    hosts_.security = std::move(security);
    hosts_.ticket = "the run's secret";
    for (size_t host = 0; host < ranks_of_hosts.size(); ++host) {
      for (int i = 0; i < ranks_of_hosts[host]; ++i) {
        listeners_.push_back(TcpListener::Listen("127.0.0.1:0", hosts_.security).value());
        hosts_.members.push_back(
            {fmt::format("host{}", host), fmt::format("127.0.0.1:{}", listeners_.back()->port())});
      }
    }
  }

  int world_size() const { return static_cast<int>(listeners_.size()); }
  TcpListener& listener(int rank) { return *listeners_[static_cast<size_t>(rank)]; }
  // What all ranks have in common; changed before they join.
  GroupHosts& hosts() { return hosts_; }
  GroupHosts HostsOf(int rank) {
    GroupHosts hosts = hosts_;
    hosts.listener = &listener(rank);
    return hosts;
  }
  SharedMemoryGroupOptions OptionsOf(int rank) const { return GroupOptions(rank, world_size()); }

  // The status of every rank's `body`, or of its Join.
  std::vector<absl::Status> Run(
      const std::function<absl::Status(Communicator&)>& body,
      const std::function<void(SharedMemoryGroupOptions&)>& adjust = [](auto&) {}) {
    std::vector<absl::Status> results(listeners_.size());
    std::vector<std::thread> threads;
    for (int rank = 0; rank < world_size(); ++rank) {
      threads.emplace_back([&, rank] {
        const GroupHosts hosts = HostsOf(rank);
        SharedMemoryGroupOptions options = OptionsOf(rank);
        options.hosts = &hosts;
        adjust(options);
        auto joined = JoinGroup(options);
        results[static_cast<size_t>(rank)] = joined.ok() ? body(**joined) : joined.status();
      });
    }
    for (std::thread& thread : threads) thread.join();
    return results;
  }

 private:
  std::vector<std::unique_ptr<TcpListener>> listeners_;
  GroupHosts hosts_;
};

// All ways to put `ranks` neighbouring ranks on hosts: {1, 2} is rank 0 alone, then ranks 1 and 2.
inline std::vector<std::vector<int>> HostSplits(int ranks) {
  std::vector<std::vector<int>> splits;
  for (int cuts = 0; cuts < 1 << (ranks - 1); ++cuts) {
    std::vector<int> split = {1};
    for (int rank = 1; rank < ranks; ++rank) {
      if ((cuts >> (rank - 1) & 1) != 0) {
        split.push_back(1);
      } else {
        ++split.back();
      }
    }
    splits.push_back(split);
  }
  return splits;
}

}  // namespace tandem::testing
