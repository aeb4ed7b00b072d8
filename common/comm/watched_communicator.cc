#include "common/comm/watched_communicator.h"

#include <numeric>

namespace tandem {
namespace {

// From its construction to its destruction a collective runs.
class Noted {
 public:
  Noted(CollectiveLog& log, const char* name, int64_t bytes) : log_(log) {
    log_.Begin(name, bytes);
  }
  ~Noted() { log_.End(); }
  Noted(const Noted&) = delete;
  Noted& operator=(const Noted&) = delete;

 private:
  CollectiveLog& log_;
};

int64_t Sum(const std::vector<int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

}  // namespace

void CollectiveLog::Begin(const char* name, int64_t bytes) {
  const MutexLock lock(log_mutex_);
  name_ = name;
  bytes_ = bytes;
  ++count_;
  running_ = true;
  since_ = clock_.Now();
}

void CollectiveLog::End() {
  const MutexLock lock(log_mutex_);
  running_ = false;
  since_ = clock_.Now();
}

CollectiveNote CollectiveLog::Last() const {
  const MutexLock lock(log_mutex_);
  if (count_ == 0) return {};
  return {.name = name_,
          .bytes = bytes_,
          .running = running_,
          .seconds = absl::ToDoubleSeconds(clock_.Now() - since_),
          .count = count_};
}

absl::Status WatchedCommunicator::AllGatherV(const void* mine,
                                             const std::vector<int64_t>& bytes_per_rank,
                                             void* all) {
  const Noted noted(log_, "all-gather", Sum(bytes_per_rank));
  return group_->AllGatherV(mine, bytes_per_rank, all);
}

absl::Status WatchedCommunicator::ReduceScatterSums(const std::vector<ScatteredSum>& sums,
                                                    Accumulate accumulate) {
  int64_t values = 0;
  for (const ScatteredSum& sum : sums) {
    values += sum.counts_per_rank[static_cast<size_t>(rank())];
  }
  const Noted noted(log_, "reduce-scatter", values * static_cast<int64_t>(sizeof(float)));
  return group_->ReduceScatterSums(sums, accumulate);
}

absl::Status WatchedCommunicator::AllReduceSum(double* values, int64_t count) {
  const Noted noted(log_, "all-reduce", count * static_cast<int64_t>(sizeof(double)));
  return group_->AllReduceSum(values, count);
}

absl::Status WatchedCommunicator::AllReduceSum(float* values, int64_t count) {
  const Noted noted(log_, "all-reduce", count * static_cast<int64_t>(sizeof(float)));
  return group_->AllReduceSum(values, count);
}

absl::Status WatchedCommunicator::Broadcast(void* data, int64_t bytes, int root) {
  const Noted noted(log_, "broadcast", bytes);
  return group_->Broadcast(data, bytes, root);
}

absl::Status WatchedCommunicator::Barrier() {
  const Noted noted(log_, "barrier", 0);
  return group_->Barrier();
}

Communicator& WatchedCommunicator::host() {
  Communicator& host = group_->host();
  return &host == group_.get() ? *this : host;
}

}  // namespace tandem
