#include "common/comm/hosts/copy_flows.h"

#include <utility>

namespace tandem {

GatherPlan::GatherPlan(std::vector<std::vector<int>> ranks_by_host,
                       std::vector<bool> takes,
                       bool relays)
    : takes_(std::move(takes)),
      relays_(relays),
      host_(takes_.size()),
      index_(takes_.size()),
      takers_(ranks_by_host.size()) {
  for (size_t host = 0; host < ranks_by_host.size(); ++host) {
    for (size_t i = 0; i < ranks_by_host[host].size(); ++i) {
      const int rank = ranks_by_host[host][i];
      host_[static_cast<size_t>(rank)] = host;
      index_[static_cast<size_t>(rank)] = i;
      if (Takes(rank)) takers_[host].push_back(rank);
    }
  }
}

int GatherPlan::Sender(int piece, int to) const {
  const size_t host = host_[static_cast<size_t>(to)];
  if (!relays_ || host == host_[static_cast<size_t>(piece)]) return piece;
  const std::vector<int>& takers = takers_[host];
  const int relay = takers[index_[static_cast<size_t>(piece)] % takers.size()];
  return relay == to ? piece : relay;
}

std::vector<int> GatherPlan::Pieces(int from, int to) const {
  std::vector<int> pieces;
  if (from == to || !Takes(to)) return pieces;
  if (Sender(from, to) == from) pieces.push_back(from);
  for (int piece = 0; piece < world_size(); ++piece) {
    if (piece != from && piece != to && Sender(piece, to) == from) pieces.push_back(piece);
  }
  return pieces;
}

GatherFlow::GatherFlow(const GatherPlan& plan, int rank, std::vector<std::span<std::byte>> places)
    : places_(std::move(places)), here_(places_.size()), out_(places_.size()), in_(places_.size()) {
  here_[static_cast<size_t>(rank)] = BytesOf(rank);
  for (int other = 0; other < plan.world_size(); ++other) {
    out_[static_cast<size_t>(other)].pieces = plan.Pieces(rank, other);
    in_[static_cast<size_t>(other)].pieces = plan.Pieces(other, rank);
    Skip(out_[static_cast<size_t>(other)]);
    Skip(in_[static_cast<size_t>(other)]);
  }
}

// Passes over what has moved, and over pieces without bytes.
void GatherFlow::Skip(Way& way) const {
  while (way.piece < way.pieces.size() && way.moved == BytesOf(way.pieces[way.piece])) {
    ++way.piece;
    way.moved = 0;
  }
}

void GatherFlow::Count(Way& way, int64_t bytes) const {
  way.moved += bytes;
  Skip(way);
}

std::span<const std::byte> GatherFlow::ToSend(int rank) {
  const Way& way = out_[static_cast<size_t>(rank)];
  if (way.piece == way.pieces.size()) return {};
  const auto piece = static_cast<size_t>(way.pieces[way.piece]);
  return places_[piece]
      .first(static_cast<size_t>(here_[piece]))
      .subspan(static_cast<size_t>(way.moved));
}

void GatherFlow::Sent(int rank, int64_t bytes) { Count(out_[static_cast<size_t>(rank)], bytes); }

std::span<std::byte> GatherFlow::Room(int rank) {
  const Way& way = in_[static_cast<size_t>(rank)];
  if (way.piece == way.pieces.size()) return {};
  return places_[static_cast<size_t>(way.pieces[way.piece])].subspan(
      static_cast<size_t>(way.moved));
}

void GatherFlow::Received(int rank, int64_t bytes) {
  Way& way = in_[static_cast<size_t>(rank)];
  here_[static_cast<size_t>(way.pieces[way.piece])] += bytes;
  Count(way, bytes);
}

bool GatherFlow::DoneWith(int rank) const {
  const Way &out = out_[static_cast<size_t>(rank)], &in = in_[static_cast<size_t>(rank)];
  return out.piece == out.pieces.size() && in.piece == in.pieces.size();
}

BroadcastFlow::BroadcastFlow(std::span<std::byte> data, int rank, int world_size, int root)
    : data_(data),
      from_(rank == root ? -1 : (rank + world_size - 1) % world_size),
      to_((rank + 1) % world_size == root ? -1 : (rank + 1) % world_size),
      here_(rank == root ? data.size() : 0) {}

std::span<const std::byte> BroadcastFlow::ToSend(int rank) {
  return rank == to_ ? data_.first(here_).subspan(sent_) : std::span<std::byte>();
}

void BroadcastFlow::Sent(int /*rank*/, int64_t bytes) { sent_ += static_cast<size_t>(bytes); }

std::span<std::byte> BroadcastFlow::Room(int rank) {
  return rank == from_ ? data_.subspan(here_) : std::span<std::byte>();
}

void BroadcastFlow::Received(int /*rank*/, int64_t bytes) { here_ += static_cast<size_t>(bytes); }

bool BroadcastFlow::DoneWith(int rank) const {
  return (rank != from_ || here_ == data_.size()) && (rank != to_ || sent_ == data_.size());
}

}  // namespace tandem
