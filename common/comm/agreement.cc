#include "common/comm/agreement.h"

#include "common/base/failure_origin.h"
#include "common/base/status_macros.h"

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

}  // namespace tandem
