// Where the ranks of a group are.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/tcp/tcp_security.h"

namespace tandem {

class TcpListener;

struct GroupMember {
  std::string host;          // equal for ranks of one host, which are neighbours
  std::string data_address;  // of its TcpListener, as other hosts reach it
};

// How sums and copies go between hosts; the bits are the same.
enum class HostWay {
  kAuto,
  // Every rank sends each other rank its piece.
  kDirect,
  // Sums go from rank to rank, so that each leaves a host once, and a gathered piece crosses to a
  // host once and goes on from there.
  kChain,
};

// Equal on all ranks, but for `listener` and the files of `security`.
struct GroupHosts {
  std::vector<GroupMember> members;  // by rank; empty: all are on this host
  TcpListener* listener = nullptr;   // this rank's own, with this security; outlives the group
  TcpSecurity security;
  // A secret, at most 64 bytes, of the run: who does not have it is refused.
  std::string ticket;
  HostWay way = HostWay::kAuto;
  // Also where one host has all ranks, for tests and measurements.
  bool always = false;
};

// Whether the ranks meet over TCP.
bool UsesTcp(const GroupHosts& hosts);

// The ranks of each host, both in ascending order. InvalidArgument: ranks of one host are not
// neighbours, with their numbers.
absl::StatusOr<std::vector<std::vector<int>>> RanksByHost(const std::vector<GroupMember>& members);

// What kAuto stands for: the chain where it is the way by which fewer bytes leave a host.
bool UsesChain(HostWay way, const std::vector<std::vector<int>>& ranks_by_host);

}  // namespace tandem
