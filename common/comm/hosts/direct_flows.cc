#include "common/comm/hosts/direct_flows.h"

#include "common/comm/rank_order_sum.h"

namespace tandem {
namespace {

constexpr auto kFrameBytes = static_cast<int64_t>(sizeof(CallFrame));
constexpr auto kFloat = static_cast<int64_t>(sizeof(float));

}  // namespace

CallFrames::CallFrames(const CallFrame& mine, int world_size)
    : mine_(mine), peers_(static_cast<size_t>(world_size)) {}

std::span<const std::byte> CallFrames::ToSend(int rank) {
  const auto sent = static_cast<size_t>(peers_[static_cast<size_t>(rank)].sent);
  return std::as_bytes(std::span(&mine_, 1)).subspan(sent);
}

std::span<std::byte> CallFrames::Room(int rank) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  return std::as_writable_bytes(std::span(&peer.frame, 1))
      .subspan(static_cast<size_t>(peer.received));
}

bool CallFrames::DoneWith(int rank) const {
  const Peer& peer = peers_[static_cast<size_t>(rank)];
  return peer.sent == kFrameBytes && peer.received == kFrameBytes;
}

DirectSum::DirectSum(const std::vector<ScatteredSum>& sums,
                     Accumulate accumulate,
                     int rank,
                     int world_size,
                     Staging* staging)
    : accumulate_(accumulate),
      rank_(rank),
      mine_(PiecesOf(sums, rank)),
      bytes_(ElementsOf(mine_) * kFloat),
      peers_(static_cast<size_t>(world_size)) {
  const int64_t room = ChunkRing::Bytes(staging->chunk(), bytes_);
  std::byte* memory = staging->Reserve(room * (world_size - 1));
  for (int other = 0; other < world_size; ++other) {
    if (other == rank) continue;
    Peer& peer = peers_[static_cast<size_t>(other)];
    peer.pieces = PiecesOf(sums, other);
    peer.bytes = ElementsOf(peer.pieces) * kFloat;
    peer.ring = ChunkRing(memory, staging->chunk(), bytes_);
    memory += room;
  }
}

std::span<const std::byte> DirectSum::ToSend(int rank) {
  const Peer& peer = peers_[static_cast<size_t>(rank)];
  if (peer.sent == peer.bytes) return {};
  return ValuesFrom(peer.pieces, peer.sent);
}

std::span<std::byte> DirectSum::Room(int rank) {
  return peers_[static_cast<size_t>(rank)].ring.Room();
}

void DirectSum::Received(int rank, int64_t bytes) {
  peers_[static_cast<size_t>(rank)].ring.Received(bytes);
  while (added_ < bytes_ && NextIsThere()) AddChunk();
}

bool DirectSum::DoneWith(int rank) const {
  const Peer& peer = peers_[static_cast<size_t>(rank)];
  return peer.sent == peer.bytes && peer.ring.complete();
}

bool DirectSum::NextIsThere() const {
  for (size_t other = 0; other < peers_.size(); ++other) {
    if (static_cast<int>(other) != rank_ && !peers_[other].ring.HasChunk(added_)) return false;
  }
  return true;
}

void DirectSum::AddChunk() {
  const size_t any = rank_ == 0 ? 1 : 0;  // all rings have the same chunks
  const int64_t end = peers_[any].ring.EndOfChunk(added_);
  std::vector<const float*> sources(peers_.size());
  ForEachPart(mine_, &SumPiece::begin, added_ / kFloat, end / kFloat,
              [&](const SumPiece& piece, int64_t from, int64_t length) {
                const int64_t offset = (piece.begin + from) * kFloat;
                for (size_t other = 0; other < peers_.size(); ++other) {
                  sources[other] =
                      static_cast<int>(other) == rank_
                          ? piece.full + from
                          : reinterpret_cast<const float*>(peers_[other].ring.At(offset));
                }
                OrderedSum(sources, length, piece.mine + from, accumulate_ == Accumulate::kAdd);
              });
  added_ = end;
  for (Peer& peer : peers_) peer.ring.FreeUpTo(end);
}

template <typename T>
AllSum<T>::AllSum(std::span<T> values, int rank, int world_size, Staging* staging)
    : values_(values),
      bytes_(static_cast<int64_t>(values.size_bytes())),
      rank_(rank),
      peers_(static_cast<size_t>(world_size)) {
  const int64_t room = ChunkRing::Bytes(staging->chunk(), bytes_);
  std::byte* memory = staging->Reserve(room * (world_size - 1));
  for (int other = 0; other < world_size; ++other) {
    if (other == rank) continue;
    peers_[static_cast<size_t>(other)].ring = ChunkRing(memory, staging->chunk(), bytes_);
    memory += room;
  }
}

template <typename T>
std::span<const std::byte> AllSum<T>::ToSend(int rank) {
  return std::as_bytes(values_).subspan(
      static_cast<size_t>(peers_[static_cast<size_t>(rank)].sent));
}

template <typename T>
void AllSum<T>::Sent(int rank, int64_t bytes) {
  peers_[static_cast<size_t>(rank)].sent += bytes;
  AddReady();
}

template <typename T>
std::span<std::byte> AllSum<T>::Room(int rank) {
  return peers_[static_cast<size_t>(rank)].ring.Room();
}

template <typename T>
void AllSum<T>::Received(int rank, int64_t bytes) {
  peers_[static_cast<size_t>(rank)].ring.Received(bytes);
  AddReady();
}

template <typename T>
bool AllSum<T>::DoneWith(int rank) const {
  const Peer& peer = peers_[static_cast<size_t>(rank)];
  return peer.sent == bytes_ && peer.ring.complete();
}

template <typename T>
void AllSum<T>::AddReady() {
  while (added_ < bytes_ && NextIsThere()) AddChunk();
}

template <typename T>
bool AllSum<T>::NextIsThere() const {
  for (size_t other = 0; other < peers_.size(); ++other) {
    const Peer& peer = peers_[other];
    if (static_cast<int>(other) == rank_) continue;
    if (!peer.ring.HasChunk(added_) || peer.sent < peer.ring.EndOfChunk(added_)) return false;
  }
  return true;
}

template <typename T>
void AllSum<T>::AddChunk() {
  constexpr auto kValue = static_cast<int64_t>(sizeof(T));
  const size_t any = rank_ == 0 ? 1 : 0;  // all rings have the same chunks
  const int64_t end = peers_[any].ring.EndOfChunk(added_);
  T* const out = values_.data() + added_ / kValue;
  std::vector<const T*> sources(peers_.size());
  for (size_t other = 0; other < peers_.size(); ++other) {
    sources[other] = static_cast<int>(other) == rank_
                         ? out
                         : reinterpret_cast<const T*>(peers_[other].ring.At(added_));
  }
  OrderedSum(sources, (end - added_) / kValue, out, false);
  added_ = end;
  for (Peer& peer : peers_) peer.ring.FreeUpTo(end);
}

template class AllSum<float>;
template class AllSum<double>;

}  // namespace tandem
