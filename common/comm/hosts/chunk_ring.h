// Memory into which one peer's bytes are received, chunk by chunk.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tandem {

// A sequence of `total` bytes in chunks, of which the last may be shorter; those that are received
// and not freed are in memory, at most kChunksInFlight.
class ChunkRing {
 public:
  static constexpr int64_t kChunksInFlight = 4;
  // Of memory for a sequence of `total` bytes.
  static int64_t Bytes(int64_t chunk, int64_t total) {
    const int64_t chunks = std::min(kChunksInFlight, (total + chunk - 1) / chunk);
    return chunks * chunk;
  }

  ChunkRing() = default;
  // `memory` has Bytes(chunk, total).
  ChunkRing(std::byte* memory, int64_t chunk, int64_t total)
      : memory_(memory), chunk_(chunk), total_(total) {}

  // Where the next bytes go, to the end of their chunk; empty: none are expected, or no chunk is
  // free.
  std::span<std::byte> Room() const {
    if (received_ == total_ || received_ / chunk_ >= freed_ / chunk_ + kChunksInFlight) return {};
    return {At(received_), static_cast<size_t>(EndOfChunk(received_) - received_)};
  }
  void Received(int64_t bytes) { received_ += bytes; }
  // Chunks that end at `end` or before may be written over.
  void FreeUpTo(int64_t end) { freed_ = end == total_ ? total_ : end / chunk_ * chunk_; }

  std::byte* At(int64_t offset) const {
    return memory_ + offset / chunk_ % kChunksInFlight * chunk_ + offset % chunk_;
  }
  int64_t EndOfChunk(int64_t offset) const {
    return std::min(total_, offset / chunk_ * chunk_ + chunk_);
  }
  // Whether the chunk that begins at `offset`, which is not the end, has been received.
  bool HasChunk(int64_t offset) const { return received_ >= EndOfChunk(offset); }
  int64_t total() const { return total_; }
  bool complete() const { return received_ == total_; }

 private:
  std::byte* memory_ = nullptr;
  int64_t chunk_ = 1;
  int64_t total_ = 0, received_ = 0, freed_ = 0;
};

}  // namespace tandem
