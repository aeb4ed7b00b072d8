// Collectives in which every rank sends its part to each other rank, and each adds up for itself in
// ascending rank order, whatever comes first.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/comm/communicator.h"
#include "common/comm/hosts/chunk_ring.h"
#include "common/comm/hosts/peer_exchange.h"
#include "common/comm/hosts/staging.h"
#include "common/comm/hosts/sum_pieces.h"

namespace tandem {

// What every rank tells each other at the beginning of a collective: nothing else moves before it
// is known that all make the same call.
struct CallFrame {
  uint64_t magic = 0x31304c4c41434e54;  // "TNCALL01"
  int64_t number = 0;
  uint64_t signature = 0;
  int64_t takes = 1;  // 0: this rank wants nothing of an all-gather
  std::array<char, 32> collective = {};
};

class CallFrames final : public Flow {
 public:
  CallFrames(const CallFrame& mine, int world_size);
  std::span<const std::byte> ToSend(int rank) override;
  void Sent(int rank, int64_t bytes) override { peers_[static_cast<size_t>(rank)].sent += bytes; }
  std::span<std::byte> Room(int rank) override;
  void Received(int rank, int64_t bytes) override {
    peers_[static_cast<size_t>(rank)].received += bytes;
  }
  bool DoneWith(int rank) const override;
  const CallFrame& of(int rank) const { return peers_[static_cast<size_t>(rank)].frame; }

 private:
  struct Peer {
    CallFrame frame;
    int64_t sent = 0, received = 0;
  };
  const CallFrame mine_;
  std::vector<Peer> peers_;
};

// Each rank sends each other its piece; the owner adds a chunk when all parts of it are there.
class DirectSum final : public Flow {
 public:
  DirectSum(const std::vector<ScatteredSum>& sums,
            Accumulate accumulate,
            int rank,
            int world_size,
            Staging* staging);
  std::span<const std::byte> ToSend(int rank) override;
  void Sent(int rank, int64_t bytes) override { peers_[static_cast<size_t>(rank)].sent += bytes; }
  std::span<std::byte> Room(int rank) override;
  void Received(int rank, int64_t bytes) override;
  bool DoneWith(int rank) const override;

 private:
  struct Peer {
    SumPieces pieces;  // of the peer
    int64_t bytes = 0, sent = 0;
    ChunkRing ring;  // the peer's values of this rank's pieces
  };
  bool NextIsThere() const;
  void AddChunk();

  const Accumulate accumulate_;
  const int rank_;
  const SumPieces mine_;
  const int64_t bytes_;  // of this rank's pieces
  std::vector<Peer> peers_;
  int64_t added_ = 0;  // bytes
};

// values = the sum over ranks, on every rank. T: float or double.
template <typename T>
class AllSum final : public Flow {
 public:
  AllSum(std::span<T> values, int rank, int world_size, Staging* staging);
  std::span<const std::byte> ToSend(int rank) override;
  void Sent(int rank, int64_t bytes) override;
  std::span<std::byte> Room(int rank) override;
  void Received(int rank, int64_t bytes) override;
  bool DoneWith(int rank) const override;

 private:
  struct Peer {
    int64_t sent = 0;
    ChunkRing ring;
  };
  void AddReady();
  bool NextIsThere() const;
  void AddChunk();

  const std::span<T> values_;  // a chunk is written over when all others have it
  const int64_t bytes_;
  const int rank_;
  std::vector<Peer> peers_;
  int64_t added_ = 0;  // bytes
};

}  // namespace tandem
