#include "common/comm/shared_memory_communicator.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include <absl/time/clock.h>

#include "common/base/status_macros.h"
#include "common/comm/group_rendezvous.h"
#include "common/comm/ordered_sum.h"
#include "common/comm/shared_segment.h"
#include "common/comm/solo_communicator.h"

namespace tandem {
namespace {

// How long a rank polls before it sleeps: about the time that a peer with the same work is late.
constexpr int kSpins = 2000;
constexpr absl::Duration kSlice = absl::Milliseconds(100);

enum class Collective : uint64_t {
  kAllGather = 1,
  kReduceScatter,
  kAllReduce,
  kBroadcast,
  kBarrier
};

const char* NameOf(Collective collective) {
  switch (collective) {
    case Collective::kAllGather:
      return "AllGather";
    case Collective::kReduceScatter:
      return "ReduceScatterSum";
    case Collective::kAllReduce:
      return "AllReduceSum";
    case Collective::kBroadcast:
      return "Broadcast";
    case Collective::kBarrier:
      return "Barrier";
  }
  return "collective";
}

// Tells calls apart: which collective, and its sizes.
uint64_t CallSignature(Collective collective, const std::vector<int64_t>& sizes) {
  uint64_t hash = static_cast<uint64_t>(collective) * 0x9E3779B97F4A7C15u;
  for (const int64_t size : sizes) {
    hash = (hash ^ static_cast<uint64_t>(size)) * 0xD6E8FEB86659FD93u;
    hash ^= hash >> 32;
  }
  return hash;
}

// A collective is a sequence of steps. In a step every rank fills its staging buffer, publishes,
// and reads the others' once they have published. Two buffers suffice: a rank that has published
// step k + 1 has read step k, and nobody fills a buffer again before all have published the step
// after.
class SharedMemoryCommunicator : public Communicator {
 public:
  SharedMemoryCommunicator(const SharedMemoryGroupOptions& options,
                           std::unique_ptr<SharedSegment> segment,
                           std::vector<UniqueFd> connections)
      : options_(options), segment_(std::move(segment)), connections_(std::move(connections)) {}

  int rank() const override { return options_.rank; }
  int world_size() const override { return options_.world_size; }
  absl::Status AllGatherV(const void* mine,
                          const std::vector<int64_t>& bytes_per_rank,
                          void* all) override;
  absl::Status ReduceScatterSum(const float* full,
                                const std::vector<int64_t>& counts_per_rank,
                                float* mine,
                                Accumulate accumulate) override;
  absl::Status AllReduceSum(double* values, int64_t count) override {
    return AllReduce(values, count);
  }
  absl::Status AllReduceSum(float* values, int64_t count) override {
    return AllReduce(values, count);
  }
  absl::Status Broadcast(void* data, int64_t bytes, int root) override;
  absl::Status Barrier() override;
  void Abort(const std::string& reason) override {
    segment_->Abort(absl::Status(absl::StatusCode::kAborted, reason));
  }

 private:
  template <typename T>
  absl::Status AllReduce(T* values, int64_t count);
  absl::Status Start(Collective collective, const std::vector<int64_t>& sizes);
  std::byte* MyStaging() const { return segment_->staging(options_.rank, step_); }
  const std::byte* Staging(int rank) const { return segment_->staging(rank, step_); }
  // Publishes this rank's step, waits for the others' and checks that they make the same call; the
  // staging buffers may be read until EndStep.
  absl::Status Exchange();
  void EndStep() { ++step_; }
  absl::Status WaitFor(int rank, uint32_t steps);
  bool HasCome(int rank, uint32_t steps) const {
    const uint32_t published = segment_->line(rank).steps.load(std::memory_order_acquire);
    return static_cast<int32_t>(published - steps) >= 0;
  }
  absl::Status FindGone(uint32_t steps) const;
  absl::Status TooLate(uint32_t steps) const;
  absl::Status Fail(const absl::Status& status);

  const SharedMemoryGroupOptions options_;
  const std::unique_ptr<SharedSegment> segment_;
  const std::vector<UniqueFd> connections_;
  uint32_t step_ = 0;  // the one that is being filled
  int64_t calls_ = 0;
  Collective collective_ = Collective::kBarrier;
  uint64_t signature_ = 0;
  absl::Time deadline_;
};

absl::Status SharedMemoryCommunicator::Start(Collective collective,
                                             const std::vector<int64_t>& sizes) {
  TANDEM_RETURN_IF_ERROR(segment_->status());
  collective_ = collective;
  signature_ = CallSignature(collective, sizes);
  deadline_ = absl::Now() + options_.deadline;
  ++calls_;
  return absl::OkStatus();
}

absl::Status SharedMemoryCommunicator::Exchange() {
  SharedSegment::RankLine& mine = segment_->line(options_.rank);
  mine.call[step_ % 2] = signature_;
  mine.steps.store(step_ + 1, std::memory_order_release);
  WakeAll(&mine.steps);
  for (int rank = 0; rank < options_.world_size; ++rank) {
    if (rank == options_.rank) continue;
    TANDEM_RETURN_IF_ERROR(WaitFor(rank, step_ + 1));
    if (segment_->line(rank).call[step_ % 2] != signature_) {
      return Fail(
          Internal("call {} is {} on rank {}, but rank {} makes another one or with other "
                   "sizes",
                   calls_, NameOf(collective_), options_.rank, rank));
    }
  }
  return absl::OkStatus();
}

absl::Status SharedMemoryCommunicator::WaitFor(int rank, uint32_t steps) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (HasCome(rank, steps)) return absl::OkStatus();
    __builtin_ia32_pause();
  }
  std::atomic<uint32_t>& word = segment_->line(rank).steps;
  while (true) {
    const uint32_t seen = word.load(std::memory_order_acquire);
    if (static_cast<int32_t>(seen - steps) >= 0) return absl::OkStatus();
    TANDEM_RETURN_IF_ERROR(segment_->status());
    // Looked at before the connections: a rank that has come and gone has done its part.
    const absl::Status gone = FindGone(steps);
    if (!gone.ok()) return Fail(gone);
    const absl::Duration left = deadline_ - absl::Now();
    if (left <= absl::ZeroDuration()) return Fail(TooLate(steps));
    WaitWhileEqual(&word, seen, std::min(left, kSlice));
  }
}

// Unavailable if a rank that this one waits for has closed its connection.
absl::Status SharedMemoryCommunicator::FindGone(uint32_t steps) const {
  for (size_t i = 0; i < connections_.size(); ++i) {
    const int rank = options_.rank == 0 ? static_cast<int>(i) : 0;
    if (!connections_[i].valid() || !PeerClosed(connections_[i].get())) continue;
    if (HasCome(rank, steps)) continue;
    return MakeStatus(absl::StatusCode::kUnavailable,
                      "rank {} is gone: rank {} was waiting for it in {} (call {}, generation {})",
                      rank, options_.rank, NameOf(collective_), calls_, options_.generation);
  }
  return absl::OkStatus();
}

absl::Status SharedMemoryCommunicator::TooLate(uint32_t steps) const {
  std::string absent;
  for (int rank = 0; rank < options_.world_size; ++rank) {
    if (rank == options_.rank || HasCome(rank, steps)) continue;
    absent += (absent.empty() ? "" : ", ") + std::to_string(rank);
  }
  return MakeStatus(absl::StatusCode::kDeadlineExceeded,
                    "rank {} of {} did not come: rank {} waited {} for it in {} (call {}, "
                    "generation {})",
                    absent, options_.world_size, options_.rank,
                    absl::FormatDuration(options_.deadline), NameOf(collective_), calls_,
                    options_.generation);
}

// Poisons the group; the first reason wins.
absl::Status SharedMemoryCommunicator::Fail(const absl::Status& status) {
  segment_->Abort(status);
  return segment_->status();
}

absl::Status SharedMemoryCommunicator::AllGatherV(const void* mine,
                                                  const std::vector<int64_t>& bytes_per_rank,
                                                  void* all) {
  TANDEM_RETURN_IF_ERROR(Start(Collective::kAllGather, bytes_per_rank));
  std::vector<std::byte*> places;
  auto* place = static_cast<std::byte*>(all);
  for (const int64_t bytes : bytes_per_rank) {
    places.push_back(place);
    place += bytes;
  }
  const int64_t my_bytes = bytes_per_rank[options_.rank];
  const int64_t most = *std::max_element(bytes_per_rank.begin(), bytes_per_rank.end());
  const int64_t chunk = segment_->staging_bytes();
  for (int64_t begin = 0; begin == 0 || begin < most; begin += chunk) {
    const auto length = [&](int64_t total) { return std::clamp<int64_t>(total - begin, 0, chunk); };
    if (length(my_bytes) > 0) {
      memcpy(MyStaging(), static_cast<const std::byte*>(mine) + begin, length(my_bytes));
    }
    TANDEM_RETURN_IF_ERROR(Exchange());
    for (int rank = 0; rank < options_.world_size; ++rank) {
      const int64_t bytes = length(bytes_per_rank[rank]);
      if (rank != options_.rank && bytes > 0) memcpy(places[rank] + begin, Staging(rank), bytes);
    }
    EndStep();
  }
  if (my_bytes > 0 && mine != places[options_.rank]) {
    memcpy(places[options_.rank], mine, my_bytes);
  }
  return absl::OkStatus();
}

absl::Status SharedMemoryCommunicator::ReduceScatterSum(const float* full,
                                                        const std::vector<int64_t>& counts_per_rank,
                                                        float* mine,
                                                        Accumulate accumulate) {
  TANDEM_RETURN_IF_ERROR(Start(Collective::kReduceScatter, counts_per_rank));
  const int world = options_.world_size;
  std::vector<const float*> pieces;  // of `full`, by receiving rank
  for (const int64_t count : counts_per_rank) {
    pieces.push_back(full);
    full += count;
  }
  const int64_t most = *std::max_element(counts_per_rank.begin(), counts_per_rank.end());
  // A staging buffer has a part for each receiving rank, of whole cache lines.
  const int64_t part = segment_->staging_bytes() / world / 64 * 64 / sizeof(float);
  for (int64_t begin = 0; begin == 0 || begin < most; begin += part) {
    const auto length = [&](int rank) {
      return std::clamp<int64_t>(counts_per_rank[rank] - begin, 0, part);
    };
    float* const staging = reinterpret_cast<float*>(MyStaging());
    for (int rank = 0; rank < world; ++rank) {
      if (rank == options_.rank || length(rank) == 0) continue;
      memcpy(staging + rank * part, pieces[rank] + begin, length(rank) * sizeof(float));
    }
    TANDEM_RETURN_IF_ERROR(Exchange());
    std::vector<const float*> sources;
    for (int rank = 0; rank < world; ++rank) {
      sources.push_back(rank == options_.rank
                            ? pieces[rank] + begin
                            : reinterpret_cast<const float*>(Staging(rank)) + options_.rank * part);
    }
    if (length(options_.rank) > 0) {
      OrderedSum(sources, length(options_.rank), mine + begin, accumulate == Accumulate::kAdd);
    }
    EndStep();
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status SharedMemoryCommunicator::AllReduce(T* values, int64_t count) {
  TANDEM_RETURN_IF_ERROR(Start(Collective::kAllReduce, {count, static_cast<int64_t>(sizeof(T))}));
  const int64_t part = segment_->staging_bytes() / static_cast<int64_t>(sizeof(T));
  for (int64_t begin = 0; begin == 0 || begin < count; begin += part) {
    const int64_t length = std::min(part, count - begin);
    if (length > 0) memcpy(MyStaging(), values + begin, length * sizeof(T));
    TANDEM_RETURN_IF_ERROR(Exchange());
    std::vector<const T*> sources;
    for (int rank = 0; rank < options_.world_size; ++rank) {
      sources.push_back(reinterpret_cast<const T*>(Staging(rank)));
    }
    if (length > 0) OrderedSum(sources, length, values + begin, false);
    EndStep();
  }
  return absl::OkStatus();
}

absl::Status SharedMemoryCommunicator::Broadcast(void* data, int64_t bytes, int root) {
  TANDEM_RETURN_IF_ERROR(Start(Collective::kBroadcast, {bytes, root}));
  auto* const at = static_cast<std::byte*>(data);
  const int64_t chunk = segment_->staging_bytes();
  for (int64_t begin = 0; begin == 0 || begin < bytes; begin += chunk) {
    const int64_t length = std::min(chunk, bytes - begin);
    if (options_.rank == root && length > 0) memcpy(MyStaging(), at + begin, length);
    TANDEM_RETURN_IF_ERROR(Exchange());
    if (options_.rank != root && length > 0) memcpy(at + begin, Staging(root), length);
    EndStep();
  }
  return absl::OkStatus();
}

absl::Status SharedMemoryCommunicator::Barrier() {
  TANDEM_RETURN_IF_ERROR(Start(Collective::kBarrier, {}));
  TANDEM_RETURN_IF_ERROR(Exchange());
  EndStep();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> JoinSharedMemoryGroup(
    const SharedMemoryGroupOptions& options) {
  if (options.world_size < 1 || options.rank < 0 || options.rank >= options.world_size) {
    return InvalidArgument("rank {} of {} ranks does not exist", options.rank, options.world_size);
  }
  if (options.staging_bytes < 64 * options.world_size) {
    return InvalidArgument("staging of {} bytes is too small for {} ranks: at least 64 bytes each",
                           options.staging_bytes, options.world_size);
  }
  if (options.world_size == 1) return std::make_unique<SoloCommunicator>();
  TANDEM_ASSIGN_OR_RETURN(GroupLink link, MeetGroup(options));
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<SharedSegment> segment,
                          SharedSegment::Map(std::move(link.segment), options.rank,
                                             options.world_size, link.staging_bytes));
  return std::make_unique<SharedMemoryCommunicator>(options, std::move(segment),
                                                    std::move(link.connections));
}

}  // namespace tandem
