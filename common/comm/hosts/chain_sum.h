// A summing collective in which every byte leaves a rank once: rank 0 sends its values to rank 1,
// which adds its own and sends the sum on; the last rank sends every owner its piece of the sum.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/comm/communicator.h"
#include "common/comm/hosts/chunk_ring.h"
#include "common/comm/hosts/peer_exchange.h"
#include "common/comm/hosts/staging.h"
#include "common/comm/hosts/sum_pieces.h"

namespace tandem {

// ((r0 + r1) + r2) + ... is the order of all of Tandem's sums, so the bits are those of DirectSum.
// Ranks are numbered host by host: each sum of a host's ranks leaves it once, and between the ranks
// of one host the bytes go over the loopback.
class ChainSum final : public Flow {
 public:
  ChainSum(const std::vector<ScatteredSum>& sums,
           Accumulate accumulate,
           int rank,
           int world_size,
           Staging* staging);
  std::span<const std::byte> ToSend(int rank) override;
  void Sent(int rank, int64_t bytes) override;
  std::span<std::byte> Room(int rank) override;
  void Received(int rank, int64_t bytes) override;
  bool DoneWith(int rank) const override;

 private:
  // What the last rank sends to another one.
  struct Owner {
    SumPieces pieces;
    int64_t bytes = 0, sent = 0;
    // The place, among all tensors' bytes, of the first byte that is not sent; kNone at the end.
    int64_t NextPlace() const;
  };
  bool is_first() const { return rank_ == 0; }
  bool is_last() const { return rank_ == last_; }
  void AddChunk();
  // Writes the sums of [begin, end), bytes of all tensors, that are this rank's own.
  void TakeOwn(int64_t begin, int64_t end);
  void TakeResult();
  void FreeSent();

  const Accumulate accumulate_;
  const int rank_, last_;
  const SumPieces whole_, mine_;
  const int64_t bytes_;  // of all tensors
  ChunkRing sums_;       // of the ranks before this one, then with its own values
  int64_t added_ = 0;    // bytes of it that have them
  int64_t sent_ = 0;     // to the next rank
  ChunkRing result_;     // of this rank's pieces, from the last rank
  int64_t taken_ = 0;
  std::vector<Owner> owners_;  // on the last rank
};

}  // namespace tandem
