// Collectives that copy: all-gather and broadcast.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/comm/hosts/peer_exchange.h"

namespace tandem {

// Who sends the piece of each rank to whom.
class GatherPlan {
 public:
  // With `relays`, a piece crosses to each other host once, to one of its ranks that takes
  // something, which sends it on to the others. `takes`, by rank: whether it wants the pieces.
  GatherPlan(std::vector<std::vector<int>> ranks_by_host, std::vector<bool> takes, bool relays);

  bool Takes(int rank) const { return takes_[static_cast<size_t>(rank)]; }
  int world_size() const { return static_cast<int>(takes_.size()); }
  // The ranks whose pieces `from` sends to `to`, in the order in which it does: its own first.
  std::vector<int> Pieces(int from, int to) const;

 private:
  int Sender(int piece, int to) const;

  std::vector<bool> takes_;
  bool relays_;
  std::vector<size_t> host_;              // by rank
  std::vector<size_t> index_;             // by rank: its place among the ranks of its host
  std::vector<std::vector<int>> takers_;  // by host
};

class GatherFlow final : public Flow {
 public:
  // `places` [world size]: where each rank's piece goes, of this many bytes; that of `rank` is
  // where its piece is. Void where the plan takes nothing here.
  GatherFlow(const GatherPlan& plan, int rank, std::vector<std::span<std::byte>> places);
  std::span<const std::byte> ToSend(int rank) override;
  void Sent(int rank, int64_t bytes) override;
  std::span<std::byte> Room(int rank) override;
  void Received(int rank, int64_t bytes) override;
  bool DoneWith(int rank) const override;

 private:
  // The pieces that go one way between two ranks.
  struct Way {
    std::vector<int> pieces;
    size_t piece = 0;   // the one that moves
    int64_t moved = 0;  // bytes of it
  };
  void Skip(Way& way) const;
  void Count(Way& way, int64_t bytes) const;
  int64_t BytesOf(int piece) const {
    return static_cast<int64_t>(places_[static_cast<size_t>(piece)].size());
  }

  const std::vector<std::span<std::byte>> places_;
  std::vector<int64_t> here_;  // bytes of each piece that are here
  std::vector<Way> out_, in_;  // by rank
};

// The bytes of `root` go from rank to rank.
class BroadcastFlow final : public Flow {
 public:
  BroadcastFlow(std::span<std::byte> data, int rank, int world_size, int root);
  std::span<const std::byte> ToSend(int rank) override;
  void Sent(int rank, int64_t bytes) override;
  std::span<std::byte> Room(int rank) override;
  void Received(int rank, int64_t bytes) override;
  bool DoneWith(int rank) const override;

 private:
  const std::span<std::byte> data_;
  const int from_, to_;  // -1: nobody
  size_t here_, sent_ = 0;
};

}  // namespace tandem
