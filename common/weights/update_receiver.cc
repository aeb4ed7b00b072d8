#include "common/weights/update_receiver.h"

#include <algorithm>
#include <utility>

#include "common/base/status_macros.h"
#include "common/weights/row_coverage.h"

namespace tandem {
namespace {

constexpr int64_t kPieceBytes = 128 << 10;  // re-read at a time: stays in the second-level cache

}  // namespace

struct UpdateReceiver::Update {
  int64_t version = 0;
  int64_t generation = 0;
  Manifest manifest;
  std::vector<const TensorPlace*> places;
  std::vector<RowCoverage> coverage;
  bool applied = false;
};

void UpdateReceiver::UpdateDeleter::operator()(Update* update) const { delete update; }

Digest DigestStored(const WeightLayout& layout,
                    const std::byte* storage,
                    const TensorPlace& place) {
  const int64_t row_bytes = place.cols() * static_cast<int64_t>(DTypeBytes(layout.dtype()));
  const int64_t piece = DigestPieceRows(row_bytes, kPieceBytes);
  std::vector<std::byte> rows(std::min(piece, place.rows()) * row_bytes);
  const std::byte* group = storage + layout.group_offset(place.layer);
  DigestBuilder builder;
  for (int64_t row = 0; row < place.rows(); row += piece) {
    const int64_t count = std::min(piece, place.rows() - row);
    layout.ReadRows(group, place, row, count, rows.data());
    builder.Add(row * row_bytes, rows.data(), count * row_bytes);
  }
  return builder.Finish(place.rows() * row_bytes);
}

absl::Status UpdateReceiver::Begin(int64_t version, int64_t generation, const Manifest& manifest) {
  if (open_ != nullptr) {
    return FailedPrecondition("version {} cannot begin: the update to version {} is open", version,
                              open_->version);
  }
  if (version < 0) return InvalidArgument("weight version {} is negative", version);
  TANDEM_ASSIGN_OR_RETURN(std::vector<const TensorPlace*> places,
                          MatchManifest(*layout_, manifest));
  open_.reset(new Update());
  open_->version = version;
  open_->generation = generation;
  open_->manifest = manifest;
  open_->places = std::move(places);
  open_->coverage.resize(manifest.size());
  return absl::OkStatus();
}

absl::Status UpdateReceiver::CheckOpen(int64_t version, int64_t generation) const {
  if (open_ == nullptr || open_->version != version || open_->generation != generation) {
    return MakeStatus(
        absl::StatusCode::kAborted, "version {} of generation {} is not the open update ({})",
        version, generation,
        open_ == nullptr
            ? "none is"
            : fmt::format("{} of generation {} is", open_->version, open_->generation));
  }
  return absl::OkStatus();
}

absl::Status UpdateReceiver::CheckEntry(const BucketEntry& entry, int64_t slot_bytes) const {
  const auto tensors = static_cast<int64_t>(open_->manifest.size());
  if (entry.tensor < 0 || entry.tensor >= tensors) {
    return InvalidArgument("a bucket names tensor {} of {}", entry.tensor, tensors);
  }
  const ManifestTensor& tensor = open_->manifest[entry.tensor];
  if (entry.row < 0 || entry.rows < 1 || entry.rows > tensor.rows() - entry.row) {
    return InvalidArgument("a bucket has {} rows from row {} of {}, which has {}", entry.rows,
                           entry.row, tensor.name, tensor.rows());
  }
  if (entry.offset < 0 || entry.offset % kEntryAlignment != 0 || entry.offset > slot_bytes ||
      entry.rows * tensor.row_bytes() > slot_bytes - entry.offset) {
    return InvalidArgument(
        "{} rows of {} at offset {} do not lie in a slot of {} bytes, aligned to "
        "{}",
        entry.rows, tensor.name, entry.offset, slot_bytes, kEntryAlignment);
  }
  return absl::OkStatus();
}

absl::Status UpdateReceiver::Apply(int64_t version,
                                   int64_t generation,
                                   const std::byte* slot,
                                   int64_t slot_bytes,
                                   const std::vector<BucketEntry>& entries) {
  TANDEM_RETURN_IF_ERROR(CheckOpen(version, generation));
  for (const BucketEntry& entry : entries) {
    TANDEM_RETURN_IF_ERROR(CheckEntry(entry, slot_bytes));
  }
  for (const BucketEntry& entry : entries) {
    if (!open_->coverage[entry.tensor].Add(entry.row, entry.rows)) {
      return InvalidArgument("rows {} to {} of {} came twice", entry.row,
                             entry.row + entry.rows - 1, open_->manifest[entry.tensor].name);
    }
  }
  for (const BucketEntry& entry : entries) {
    const TensorPlace& place = *open_->places[entry.tensor];
    open_->applied = true;
    layout_->WriteRows(storage_ + layout_->group_offset(place.layer), place, entry.row, entry.rows,
                       slot + entry.offset);
  }
  return absl::OkStatus();
}

absl::Status UpdateReceiver::Commit(int64_t version,
                                    int64_t generation,
                                    const std::vector<Digest>& digests) {
  TANDEM_RETURN_IF_ERROR(CheckOpen(version, generation));
  absl::Status status;
  if (digests.size() != open_->manifest.size()) {
    status = InvalidArgument("{} digests for {} tensors", digests.size(), open_->manifest.size());
  }
  for (size_t t = 0; status.ok() && t < open_->manifest.size(); ++t) {
    const ManifestTensor& tensor = open_->manifest[t];
    if (open_->coverage[t].covered() != tensor.rows()) {
      status = InvalidArgument("{} is short: {} of {} rows came before the commit of version {}",
                               tensor.name, open_->coverage[t].covered(), tensor.rows(), version);
    }
  }
  if (status.ok()) {
    const std::vector<Digest> held = DigestPlaces(open_->places);
    for (size_t t = 0; status.ok() && t < held.size(); ++t) {
      if (held[t] == digests[t]) continue;
      status =
          MakeStatus(absl::StatusCode::kDataLoss,
                     "{} of version {} arrived damaged: digest {} here, {} at the trainer; the "
                     "rollout is empty until a whole update",
                     open_->manifest[t].name, version, held[t].Hex(), digests[t].Hex());
    }
  }
  if (!status.ok()) {
    Abort();
    return status;
  }
  version_ = version;
  open_.reset();
  return absl::OkStatus();
}

void UpdateReceiver::Abort() {
  if (open_ == nullptr) return;
  if (open_->applied) version_ = kNoVersion;
  open_.reset();
}

bool UpdateReceiver::applied() const { return open_ != nullptr && open_->applied; }
int64_t UpdateReceiver::version() const { return applied() ? kNoVersion : version_; }
int64_t UpdateReceiver::open_version() const {
  return open_ == nullptr ? kNoVersion : open_->version;
}
int64_t UpdateReceiver::open_generation() const {
  return open_ == nullptr ? -1 : open_->generation;
}

void UpdateReceiver::AdoptVersion(int64_t version) {
  open_.reset();
  version_ = version;
}

std::vector<Digest> UpdateReceiver::Digests() const {
  std::vector<const TensorPlace*> places;
  for (const TensorPlace& place : layout_->places()) places.push_back(&place);
  return DigestPlaces(places);
}

std::vector<Digest> UpdateReceiver::DigestPlaces(
    const std::vector<const TensorPlace*>& places) const {
  std::vector<Digest> digests(places.size());
  pool_->ParallelFor(std::ssize(places), [&](int64_t task, int /*thread*/) {
    const auto t = static_cast<size_t>(task);
    digests[t] = DigestStored(*layout_, storage_, *places[t]);
  });
  return digests;
}

}  // namespace tandem
