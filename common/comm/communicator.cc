#include "common/comm/communicator.h"

#include <cstring>

#include "common/base/status.h"

namespace tandem {

absl::StatusOr<std::vector<int64_t>> Agree(Communicator& communicator,
                                           const absl::Status& mine,
                                           const std::string& what,
                                           int64_t number) {
  struct Entry {
    int64_t code;
    int64_t number;
  };
  const Entry entry{static_cast<int64_t>(mine.code()), number};
  std::vector<Entry> all(static_cast<size_t>(communicator.world_size()));
  const absl::Status gathered = communicator.host().AllGather(&entry, sizeof(entry), all.data());
  TANDEM_RETURN_IF_ERROR(mine);
  TANDEM_RETURN_IF_ERROR(gathered);
  std::vector<int64_t> numbers;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].code != 0) {
      return WithOrigin(
          MakeStatus(absl::StatusCode::kAborted,
                     "trainer {} failed in {} ({}); its own message says why", rank, what,
                     absl::StatusCodeToString(static_cast<absl::StatusCode>(all[rank].code))),
          FailureOrigin::kAnotherRank);
    }
    numbers.push_back(all[rank].number);
  }
  return numbers;
}

absl::Status SoloCommunicator::status() {
  const MutexLock lock(status_mutex_);
  return status_;
}

absl::Status SoloCommunicator::AllGatherV(const void* mine,
                                          const std::vector<int64_t>& bytes_per_rank,
                                          void* all) {
  TANDEM_RETURN_IF_ERROR(status());
  if (all != nullptr && bytes_per_rank[0] > 0 && mine != all) memcpy(all, mine, bytes_per_rank[0]);
  return absl::OkStatus();
}

absl::Status SoloCommunicator::ReduceScatterSums(const std::vector<ScatteredSum>& sums,
                                                 Accumulate accumulate) {
  TANDEM_RETURN_IF_ERROR(status());
  for (const ScatteredSum& sum : sums) {
    const int64_t count = sum.counts_per_rank[0];
    if (accumulate == Accumulate::kAdd) {
      for (int64_t i = 0; i < count; ++i) sum.mine[i] += sum.full[i];
    } else if (count > 0) {
      memcpy(sum.mine, sum.full, count * sizeof(float));
    }
  }
  return absl::OkStatus();
}

absl::Status SoloCommunicator::AllReduceSum(double*, int64_t) { return status(); }
absl::Status SoloCommunicator::AllReduceSum(float*, int64_t) { return status(); }
absl::Status SoloCommunicator::Broadcast(void*, int64_t, int) { return status(); }
absl::Status SoloCommunicator::Barrier() { return status(); }

void SoloCommunicator::Abort(const std::string& reason) {
  const MutexLock lock(status_mutex_);
  if (status_.ok()) status_ = MakeStatus(absl::StatusCode::kAborted, "{}", reason);
}

}  // namespace tandem
