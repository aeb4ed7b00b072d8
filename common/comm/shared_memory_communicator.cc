#include "common/comm/shared_memory_communicator.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "common/base/progress.h"
#include "common/base/status.h"
#include "common/comm/communicator.h"
#include "common/comm/rank_order_sum.h"
#include "common/comm/shared_memory_group.h"
#include "common/comm/sum_rounds.h"

namespace tandem {
namespace {

// Polls before a rank sleeps: about the usual delay of a peer with the same work.
constexpr int kSpins = 2000;
constexpr absl::Duration kSleepSlice = absl::Milliseconds(100);

// A collective is a sequence of steps. In a step every rank fills its staging buffer, publishes,
// and reads the others' once they have published. Two buffers suffice: a rank that has published
// step k + 1 has read step k, and no rank fills a buffer again before all have published the step
// after.
class SharedMemoryCommunicator final : public HostGroup {
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
  absl::Status ReduceScatterSums(const std::vector<ScatteredSum>& sums,
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

  absl::Status status() const override { return segment_->status(); }
  absl::Status Fail(const absl::Status& why) override {
    segment_->Abort(why);
    return segment_->status();
  }
  void ShowProgress(uint64_t progress) override {
    segment_->line(options_.rank).progress.store(progress, std::memory_order_release);
  }
  uint64_t ProgressOf(int rank) const override {
    return segment_->line(rank).progress.load(std::memory_order_acquire);
  }
  int FindGone(uint64_t wanted) const override {
    return FindClosed([&](int rank) { return ProgressOf(rank) >= wanted; });
  }

 private:
  template <typename T>
  absl::Status AllReduce(T* values, int64_t count);
  absl::Status Start(const char* collective, const std::vector<int64_t>& sizes);
  // Sums this rank's piece of a staged part; each rank has `room` elements of every staging buffer.
  void AddUp(const SumPart& part, const ScatteredSum& sum, int64_t room, Accumulate accumulate);
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
  // A rank that has closed its connection before it was `done`, or -1.
  template <typename Done>
  int FindClosed(const Done& done) const;
  absl::Status TooLate(uint32_t steps) const;

  const SharedMemoryGroupOptions options_;
  const std::unique_ptr<SharedSegment> segment_;
  const std::vector<UniqueFd> connections_;
  uint32_t step_ = 0;  // the one that is being filled
  int64_t calls_ = 0;
  const char* collective_ = "";
  uint64_t signature_ = 0;
  Instant deadline_;
};

absl::Status SharedMemoryCommunicator::Start(const char* collective,
                                             const std::vector<int64_t>& sizes) {
  TANDEM_RETURN_IF_ERROR(segment_->status());
  collective_ = collective;
  signature_ = CallSignature(collective, sizes);
  deadline_ = options_.clock->Now() + options_.deadline;
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
          Internal("call {} is {} on rank {}, but rank {} makes a different call or uses "
                   "other sizes",
                   calls_, collective_, options_.rank, rank));
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
  const OutsideWait wait;
  while (true) {
    // Read before the ranks are checked: a rank that has arrived by then is in time, however long
    // this thread is delayed afterwards.
    const absl::Duration left = deadline_ - options_.clock->Now();
    const uint32_t seen = word.load(std::memory_order_acquire);
    if (static_cast<int32_t>(seen - steps) >= 0) return absl::OkStatus();
    TANDEM_RETURN_IF_ERROR(segment_->status());
    // Arrival is checked before the connections: a rank that arrived and then exited has done its
    // part.
    const int gone = FindClosed([&](int other) { return HasCome(other, steps); });
    if (gone >= 0) {
      return Fail(
          MakeStatus(absl::StatusCode::kUnavailable,
                     "rank {} is gone: rank {} was waiting for it in {} (call {}, generation {})",
                     gone, options_.rank, collective_, calls_, options_.generation));
    }
    if (left <= absl::ZeroDuration()) return Fail(TooLate(steps));
    WaitWhileEqual(&word, seen, std::min(left, kSleepSlice));
  }
}

template <typename Done>
int SharedMemoryCommunicator::FindClosed(const Done& done) const {
  for (size_t i = 0; i < connections_.size(); ++i) {
    const int rank = options_.rank == 0 ? static_cast<int>(i) : 0;
    if (!connections_[i].valid() || !PeerClosed(connections_[i].get())) continue;
    if (!done(rank)) return rank;
  }
  return -1;
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
                    absl::FormatDuration(options_.deadline), collective_, calls_,
                    options_.generation);
}

absl::Status SharedMemoryCommunicator::AllGatherV(const void* mine,
                                                  const std::vector<int64_t>& bytes_per_rank,
                                                  void* all) {
  TANDEM_RETURN_IF_ERROR(Start("AllGather", bytes_per_rank));
  std::vector<std::byte*> places;
  auto* place = static_cast<std::byte*>(all);
  for (const int64_t bytes : bytes_per_rank) {
    places.push_back(place);
    if (all != nullptr) place += bytes;
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
    for (int rank = 0; all != nullptr && rank < options_.world_size; ++rank) {
      const int64_t bytes = length(bytes_per_rank[rank]);
      if (rank != options_.rank && bytes > 0) memcpy(places[rank] + begin, Staging(rank), bytes);
    }
    EndStep();
  }
  if (all != nullptr && my_bytes > 0 && mine != places[options_.rank]) {
    memcpy(places[options_.rank], mine, my_bytes);
  }
  return absl::OkStatus();
}

absl::Status SharedMemoryCommunicator::ReduceScatterSums(const std::vector<ScatteredSum>& sums,
                                                         Accumulate accumulate) {
  TANDEM_RETURN_IF_ERROR(Start("ReduceScatterSum", SizesOf(sums)));
  const int world = options_.world_size;
  // A staging buffer has a part for each receiving rank, of whole cache lines.
  const int64_t room = segment_->staging_bytes() / world / 64 * 64 / sizeof(float);
  for (const SumRound& round : RoundsOf(sums, room)) {
    float* const staging = reinterpret_cast<float*>(MyStaging());
    for (const SumPart& part : round) {
      const ScatteredSum& sum = sums[part.sum];
      for (int rank = 0; rank < world; ++rank) {
        const int64_t length = LengthOn(part, sum, rank);
        if (rank == options_.rank || length == 0) continue;
        memcpy(staging + rank * room + part.offset, sum.full + PieceOffset(sum, rank) + part.begin,
               length * sizeof(float));
      }
    }
    TANDEM_RETURN_IF_ERROR(Exchange());
    for (const SumPart& part : round) AddUp(part, sums[part.sum], room, accumulate);
    EndStep();
  }
  return absl::OkStatus();
}

void SharedMemoryCommunicator::AddUp(const SumPart& part,
                                     const ScatteredSum& sum,
                                     int64_t room,
                                     Accumulate accumulate) {
  const int64_t length = LengthOn(part, sum, options_.rank);
  if (length == 0) return;
  std::vector<const float*> sources;
  for (int rank = 0; rank < options_.world_size; ++rank) {
    const auto* const staged = reinterpret_cast<const float*>(Staging(rank));
    sources.push_back(rank == options_.rank ? sum.full + PieceOffset(sum, rank) + part.begin
                                            : staged + options_.rank * room + part.offset);
  }
  OrderedSum(sources, length, sum.mine + part.begin, accumulate == Accumulate::kAdd);
}

template <typename T>
absl::Status SharedMemoryCommunicator::AllReduce(T* values, int64_t count) {
  TANDEM_RETURN_IF_ERROR(Start("AllReduceSum", {count, static_cast<int64_t>(sizeof(T))}));
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
  TANDEM_RETURN_IF_ERROR(Start("Broadcast", {bytes, root}));
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
  TANDEM_RETURN_IF_ERROR(Start("Barrier", {}));
  TANDEM_RETURN_IF_ERROR(Exchange());
  EndStep();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<HostGroup>> JoinHostGroup(const SharedMemoryGroupOptions& options) {
  if (options.world_size < 2 || options.rank < 0 || options.rank >= options.world_size) {
    return InvalidArgument("rank {} of {} ranks does not exist", options.rank, options.world_size);
  }
  if (options.world_size > kMostRanksOfHost) {
    return InvalidArgument("a group of {} ranks is larger than one host can hold: at most {}",
                           options.world_size, kMostRanksOfHost);
  }
  if (options.staging_bytes < 64 * options.world_size) {
    return InvalidArgument("staging of {} bytes is too small for {} ranks: at least 64 bytes each",
                           options.staging_bytes, options.world_size);
  }
  TANDEM_ASSIGN_OR_RETURN(GroupLink link, MeetGroup(options));
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<SharedSegment> segment,
                          SharedSegment::Map(std::move(link.segment), options.rank,
                                             options.world_size, link.staging_bytes));
  return std::make_unique<SharedMemoryCommunicator>(options, std::move(segment),
                                                    std::move(link.connections));
}

absl::StatusOr<std::unique_ptr<Communicator>> JoinSharedMemoryGroup(
    const SharedMemoryGroupOptions& options) {
  if (options.world_size == 1 && options.rank == 0) return std::make_unique<SoloCommunicator>();
  return JoinHostGroup(options);
}

}  // namespace tandem
