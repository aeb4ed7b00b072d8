#include "trainer_worker/master_rows.h"

#include <algorithm>

#include "common/base/status_macros.h"
#include "trainer_worker/agreement.h"
#include "trainer_worker/host_staging.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<MasterRows>> MasterRows::Create(PolicyRows* policy,
                                                               Communicator* communicator,
                                                               Ledger* ledger,
                                                               const MasterRowsOptions& options) {
  std::unique_ptr<MasterRows> rows(new MasterRows(policy, communicator, options));
  auto scratch = TakeHostMemory(policy->device(), "gather", options.scratch_bytes, ledger);
  TANDEM_RETURN_IF_ERROR(
      Agree(*communicator, scratch.status(), "taking memory to gather rows").status());
  rows->scratch_ = *std::move(scratch);
  return rows;
}

absl::StatusOr<const void*> MasterRows::Rows(const TensorRows& rows) {
  const ShardPlan& plan = policy_->plan();
  const size_t tensor = plan.IndexOf(*rows.place);
  const int64_t cols = rows.place->cols();
  const auto element = static_cast<int64_t>(DTypeBytes(options_.dtype));
  if (rows.rows * cols * element > scratch_->bytes()) {
    return InvalidArgument("{} rows of {} were asked for, which scratch of {} bytes does not hold",
                           rows.rows, rows.place->name, scratch_->bytes());
  }
  // Every rank's part of the range; this rank rounds its own into its place.
  std::vector<int64_t> bytes;
  std::byte* mine = scratch_->data();
  int64_t before = 0;
  for (int rank = 0; rank < plan.world_size(); ++rank) {
    const ShardPlan::Piece& piece = plan.piece(tensor, rank);
    const int64_t first = std::max(rows.row, piece.row);
    const int64_t count = std::min(rows.row + rows.rows, piece.row + piece.rows) - first;
    bytes.push_back(std::max<int64_t>(0, count) * cols * element);
    if (rank == plan.rank() && count > 0) {
      mine = scratch_->data() + before;
      TANDEM_RETURN_IF_ERROR(
          policy_->CopyRows(tensor, first - piece.row, count, options_.dtype, mine));
    }
    before += bytes.back();
  }
  const bool receives = options_.receiver < 0 || options_.receiver == plan.rank();
  std::byte* const all = receives ? scratch_->data() : nullptr;
  TANDEM_RETURN_IF_ERROR(communicator_->host().AllGatherV(mine, bytes, all));
  return all;
}

absl::StatusOr<std::vector<int64_t>> MasterRows::ShareNumber(int64_t mine) {
  std::vector<int64_t> all(static_cast<size_t>(communicator_->world_size()));
  TANDEM_RETURN_IF_ERROR(communicator_->host().AllGather(&mine, sizeof(mine), all.data()));
  return all;
}

}  // namespace tandem
