#include "common/comm/hosts/copy_flows.h"

#include <map>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/common/comm/hosts/tcp_ranks.h"

namespace tandem {
namespace {

std::vector<std::vector<int>> RanksOf(const std::vector<int>& split) {
  std::vector<std::vector<int>> ranks;
  int next = 0;
  for (const int count : split) {
    ranks.emplace_back();
    for (int i = 0; i < count; ++i) ranks.back().push_back(next++);
  }
  return ranks;
}

size_t HostOf(const std::vector<std::vector<int>>& ranks_by_host, int rank) {
  size_t host = 0;
  while (ranks_by_host[host].back() < rank) ++host;
  return host;
}

}  // namespace

TEST_CASE("a gathered piece comes to each taker once, and with relays crosses to each host once") {
  for (const std::vector<int>& split : testing::HostSplits(6)) {
    const auto ranks = RanksOf(split);
    for (unsigned mask = 1; mask < 64; ++mask) {
      std::vector<bool> takes;
      for (int rank = 0; rank < 6; ++rank) takes.push_back((mask >> rank & 1) != 0);
      for (const bool relays : {false, true}) {
        const GatherPlan plan(ranks, takes, relays);
        std::map<std::pair<int, int>, int> came;          // by piece and taker
        std::map<std::pair<int, size_t>, int> crossings;  // by piece and host
        for (int from = 0; from < 6; ++from) {
          for (int to = 0; to < 6; ++to) {
            for (const int piece : plan.Pieces(from, to)) {
              ++came[{piece, to}];
              // Who sends what it does not take itself has nowhere to receive it.
              REQUIRE((piece == from || takes[static_cast<size_t>(from)]));
              if (HostOf(ranks, from) != HostOf(ranks, to)) {
                ++crossings[{piece, HostOf(ranks, to)}];
              }
            }
          }
        }
        for (int piece = 0; piece < 6; ++piece) {
          for (int to = 0; to < 6; ++to) {
            const bool wanted = takes[static_cast<size_t>(to)] && piece != to;
            REQUIRE(came[{piece, to}] == (wanted ? 1 : 0));
          }
        }
        for (const auto& [where, times] : crossings) REQUIRE((!relays || times == 1));
      }
    }
  }
}

}  // namespace tandem
