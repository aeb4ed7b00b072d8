#include "common/comm/hosts/chain_sum.h"

#include <algorithm>
#include <limits>

#include "common/comm/rank_order_sum.h"

namespace tandem {
namespace {

constexpr auto kFloat = static_cast<int64_t>(sizeof(float));
constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

}  // namespace

ChainSum::ChainSum(const std::vector<ScatteredSum>& sums,
                   Accumulate accumulate,
                   int rank,
                   int world_size,
                   Staging* staging)
    : accumulate_(accumulate),
      rank_(rank),
      last_(world_size - 1),
      whole_(WholeTensors(sums)),
      mine_(PiecesOf(sums, rank)),
      bytes_(ElementsOf(whole_) * kFloat) {
  const int64_t chunk = staging->chunk();
  const int64_t of_sums = is_first() ? 0 : ChunkRing::Bytes(chunk, bytes_);
  const int64_t results = is_last() ? 0 : ElementsOf(mine_) * kFloat;
  std::byte* const memory = staging->Reserve(of_sums + ChunkRing::Bytes(chunk, results));
  sums_ = ChunkRing(memory, chunk, is_first() ? 0 : bytes_);
  result_ = ChunkRing(memory + of_sums, chunk, results);
  if (!is_last()) return;
  for (int owner = 0; owner < last_; ++owner) {
    SumPieces pieces = PiecesOf(sums, owner);
    const int64_t bytes = ElementsOf(pieces) * kFloat;
    owners_.push_back({std::move(pieces), bytes, 0});
  }
}

int64_t ChainSum::Owner::NextPlace() const {
  if (sent == bytes) return kNone;
  const SumPiece& piece = PieceAt(pieces, sent / kFloat);
  return piece.place * kFloat + sent - piece.begin * kFloat;
}

std::span<const std::byte> ChainSum::ToSend(int rank) {
  if (is_last()) {
    const Owner& owner = owners_[static_cast<size_t>(rank)];
    const int64_t place = owner.NextPlace();
    if (place >= added_) return {};
    const SumPiece& piece = PieceAt(owner.pieces, owner.sent / kFloat);
    const int64_t end =
        std::min({(piece.place + piece.count) * kFloat, sums_.EndOfChunk(place), added_});
    return {sums_.At(place), static_cast<size_t>(end - place)};
  }
  if (rank != rank_ + 1) return {};
  if (is_first()) {
    return sent_ == bytes_ ? std::span<const std::byte>() : ValuesFrom(whole_, sent_);
  }
  if (sent_ == added_) return {};
  return {sums_.At(sent_), static_cast<size_t>(std::min(sums_.EndOfChunk(sent_), added_) - sent_)};
}

void ChainSum::Sent(int rank, int64_t bytes) {
  (is_last() ? owners_[static_cast<size_t>(rank)].sent : sent_) += bytes;
  if (!is_first()) FreeSent();
}

void ChainSum::FreeSent() {
  int64_t free = is_last() ? added_ : sent_;
  for (const Owner& owner : owners_) free = std::min(free, owner.NextPlace());
  sums_.FreeUpTo(free);
}

std::span<std::byte> ChainSum::Room(int rank) {
  if (!is_first() && rank == rank_ - 1) return sums_.Room();
  return rank == last_ ? result_.Room() : std::span<std::byte>();
}

void ChainSum::Received(int rank, int64_t bytes) {
  if (!is_first() && rank == rank_ - 1) {
    sums_.Received(bytes);
    while (added_ < bytes_ && sums_.HasChunk(added_)) AddChunk();
    return;
  }
  result_.Received(bytes);
  while (taken_ < result_.total() && result_.HasChunk(taken_)) TakeResult();
}

void ChainSum::AddChunk() {
  const int64_t end = sums_.EndOfChunk(added_);
  ForEachPart(whole_, &SumPiece::place, added_ / kFloat, end / kFloat,
              [&](const SumPiece& tensor, int64_t from, int64_t length) {
                auto* const sum =
                    reinterpret_cast<float*>(sums_.At((tensor.place + from) * kFloat));
                OrderedSum({sum, tensor.full + from}, length, sum, false);
              });
  if (is_last()) TakeOwn(added_, end);
  added_ = end;
  FreeSent();
}

void ChainSum::TakeOwn(int64_t begin, int64_t end) {
  ForEachPart(mine_, &SumPiece::place, begin / kFloat, end / kFloat,
              [&](const SumPiece& piece, int64_t from, int64_t length) {
                const auto* const sum =
                    reinterpret_cast<const float*>(sums_.At((piece.place + from) * kFloat));
                OrderedSum({sum}, length, piece.mine + from, accumulate_ == Accumulate::kAdd);
              });
}

void ChainSum::TakeResult() {
  const int64_t end = result_.EndOfChunk(taken_);
  ForEachPart(mine_, &SumPiece::begin, taken_ / kFloat, end / kFloat,
              [&](const SumPiece& piece, int64_t from, int64_t length) {
                const auto* const sum =
                    reinterpret_cast<const float*>(result_.At((piece.begin + from) * kFloat));
                OrderedSum({sum}, length, piece.mine + from, accumulate_ == Accumulate::kAdd);
              });
  taken_ = end;
  result_.FreeUpTo(end);
}

bool ChainSum::DoneWith(int rank) const {
  if (!is_first() && rank == rank_ - 1 && !sums_.complete()) return false;
  if (is_last()) {
    const Owner& owner = owners_[static_cast<size_t>(rank)];
    return owner.sent == owner.bytes;
  }
  if (rank == rank_ + 1 && sent_ < bytes_) return false;
  return rank != last_ || result_.complete();
}

}  // namespace tandem
