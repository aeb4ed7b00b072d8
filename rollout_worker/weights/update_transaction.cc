#include "rollout_worker/weights/update_transaction.h"

#include <map>
#include <utility>

#include "common/base/status.h"

namespace tandem {

struct UpdateTransaction::Update {
  UpdateId id;
  UpdateScope scope = UpdateScope::kWhole;
  Manifest manifest;
  std::vector<const TensorPlace*> places;
  std::vector<RowCoverage> coverage;
  bool applied = false;
};

void UpdateTransaction::UpdateDeleter::operator()(Update* update) const { delete update; }

absl::Status UpdateTransaction::Begin(UpdateId id, const Manifest& manifest, UpdateScope scope) {
  if (open_ != nullptr) {
    return FailedPrecondition("version {} cannot begin: the update to version {} is open",
                              id.version, open_->id.version);
  }
  if (id.version < 0) return InvalidArgument("weight version {} is negative", id.version);
  if (scope == UpdateScope::kAdapters && version_ == kNoVersion) {
    return FailedPrecondition(
        "version {} has adapters alone, and this rollout does not hold the base that they belong "
        "to: send it everything",
        id.version);
  }
  TANDEM_ASSIGN_OR_RETURN(std::vector<const TensorPlace*> places,
                          MatchManifest(*layout_, manifest, scope));
  open_.reset(new Update{.id = id, .scope = scope, .manifest = manifest});
  open_->places = std::move(places);
  open_->coverage.resize(manifest.size());
  return absl::OkStatus();
}

absl::Status UpdateTransaction::Scramble() {
  if (open_ == nullptr) return FailedPrecondition("no update is open whose weights to scramble");
  open_->applied = true;
  return storage_->Scramble(open_->places);
}

absl::Status UpdateTransaction::CheckOpen(UpdateId id) const {
  if (open_ != nullptr && open_->id == id) return absl::OkStatus();
  return MakeStatus(absl::StatusCode::kAborted,
                    "update {}, to version {}, is not the open one ({})", id.update_number,
                    id.version,
                    open_ == nullptr ? "none is"
                                     : fmt::format("update {}, to version {}, is",
                                                   open_->id.update_number, open_->id.version));
}

absl::Status UpdateTransaction::CheckEntry(const BucketEntry& entry, int64_t slot_bytes) const {
  const auto tensors = static_cast<int64_t>(open_->manifest.size());
  if (entry.tensor < 0 || entry.tensor >= tensors) {
    return InvalidArgument("a bucket names tensor {} of {}", entry.tensor, tensors);
  }
  const ManifestTensor& tensor = open_->manifest[entry.tensor];
  if (entry.row < 0 || entry.rows < 1 || entry.rows > tensor.rows() - entry.row) {
    return InvalidArgument("a bucket has {} rows from row {} of {}, which has {}", entry.rows,
                           entry.row, tensor.name, tensor.rows());
  }
  const auto element = static_cast<int64_t>(DTypeBytes(layout_->dtype()));
  if (entry.offset < 0 || entry.offset % element != 0 || entry.offset > slot_bytes ||
      entry.rows * tensor.row_bytes() > slot_bytes - entry.offset) {
    return InvalidArgument(
        "{} rows of {} at offset {} do not fit into a slot of {} bytes, aligned to {}", entry.rows,
        tensor.name, entry.offset, slot_bytes, element);
  }
  return absl::OkStatus();
}

absl::Status UpdateTransaction::Apply(UpdateId id,
                                      const FilledSlot& slot,
                                      const std::vector<BucketEntry>& entries) {
  TANDEM_RETURN_IF_ERROR(CheckOpen(id));
  for (const BucketEntry& entry : entries) {
    TANDEM_RETURN_IF_ERROR(CheckEntry(entry, slot.bytes));
  }
  // Rows are marked in copies, so that a bucket that is refused marks none.
  std::map<int32_t, RowCoverage> coverage;
  for (const BucketEntry& entry : entries) {
    const auto of_tensor = coverage.try_emplace(entry.tensor, open_->coverage[entry.tensor]).first;
    if (!of_tensor->second.Add(entry.row, entry.rows)) {
      return InvalidArgument("rows {} to {} of {} arrived twice", entry.row,
                             entry.row + entry.rows - 1, open_->manifest[entry.tensor].name);
    }
  }
  for (auto& [tensor, marked] : coverage) open_->coverage[tensor] = std::move(marked);
  std::vector<DenseRows> rows;
  for (const BucketEntry& entry : entries) {
    rows.push_back({open_->places[entry.tensor], entry.row, entry.rows, slot.data + entry.offset});
  }
  open_->applied = open_->applied || !rows.empty();
  return storage_->StoreRows(rows, slot.location);
}

size_t UpdateTransaction::kept_tensors() const {
  return open_->scope == UpdateScope::kAdapters ? layout_->base_tensors() : 0;
}

absl::Status UpdateTransaction::CheckBase(const std::vector<Digest>& digests) const {
  std::vector<const TensorPlace*> base;
  for (size_t t = 0; t < kept_tensors(); ++t) base.push_back(&layout_->places()[t]);
  // The base is re-read because the rollout may have slept since the base was accepted.
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Digest> held, storage_->DigestStored(base));
  for (size_t t = 0; t < base.size(); ++t) {
    const Digest& wanted = digests[open_->manifest.size() + t];
    if (!(accepted_[t] == wanted)) {
      return MakeStatus(
          absl::StatusCode::kDataLoss,
          "the adapters of version {} belong to another base: the digest of {} is {} here, {} at "
          "the trainer; the rollout is empty until it receives all weights",
          open_->id.version, base[t]->name, accepted_[t].Hex(), wanted.Hex());
    }
    if (held[t] == wanted) continue;
    return MakeStatus(absl::StatusCode::kDataLoss,
                      "{} of the base changed in this rollout's memory: digest {} at the commit of "
                      "version {}, {} when it was accepted; the rollout is empty until it "
                      "receives all weights",
                      base[t]->name, held[t].Hex(), open_->id.version, accepted_[t].Hex());
  }
  return absl::OkStatus();
}

absl::Status UpdateTransaction::CheckDigests(const std::vector<Digest>& digests) const {
  TANDEM_RETURN_IF_ERROR(CheckBase(digests));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Digest> held, storage_->DigestStored(open_->places));
  for (size_t t = 0; t < held.size(); ++t) {
    if (held[t] == digests[t]) continue;
    return MakeStatus(absl::StatusCode::kDataLoss,
                      "{} of version {} arrived damaged: digest {} here, {} at the trainer; the "
                      "rollout is empty until it receives all weights",
                      open_->manifest[t].name, open_->id.version, held[t].Hex(), digests[t].Hex());
  }
  return absl::OkStatus();
}

absl::Status UpdateTransaction::CheckRows() const {
  for (size_t t = 0; t < open_->manifest.size(); ++t) {
    const ManifestTensor& tensor = open_->manifest[t];
    const int64_t rows = tensor.bytes() == 0 ? 0 : tensor.rows();  // an empty tensor is not sent
    if (open_->coverage[t].covered() == rows) continue;
    return InvalidArgument("{} is incomplete: {} of {} rows came before the commit of version {}",
                           tensor.name, open_->coverage[t].covered(), rows, open_->id.version);
  }
  return absl::OkStatus();
}

absl::Status UpdateTransaction::Commit(UpdateId id, const std::vector<Digest>& digests) {
  TANDEM_RETURN_IF_ERROR(CheckOpen(id));
  const size_t expected = open_->manifest.size() + kept_tensors();
  absl::Status status;
  if (digests.size() != expected) {
    status = InvalidArgument("{} digests for {} tensors", digests.size(), expected);
  }
  if (status.ok()) status = CheckRows();
  if (status.ok()) status = CheckDigests(digests);
  if (!status.ok()) {
    Abort();
    return status;
  }
  version_ = id.version;
  accepted_.resize(layout_->places().size());
  for (size_t t = 0; t < open_->places.size(); ++t) {
    accepted_[static_cast<size_t>(open_->places[t] - layout_->places().data())] = digests[t];
  }
  open_.reset();
  return absl::OkStatus();
}

void UpdateTransaction::Abort() {
  if (open_ == nullptr) return;
  if (open_->applied) version_ = kNoVersion;
  open_.reset();
}

bool UpdateTransaction::applied() const { return open_ != nullptr && open_->applied; }
int64_t UpdateTransaction::version() const { return applied() ? kNoVersion : version_; }
UpdateId UpdateTransaction::open() const {
  return open_ == nullptr ? UpdateId{kNoVersion, -1} : open_->id;
}

absl::Status UpdateTransaction::AdoptVersion(int64_t version) {
  DropVersion();
  TANDEM_ASSIGN_OR_RETURN(accepted_, Digests());
  version_ = version;
  return absl::OkStatus();
}

void UpdateTransaction::DropVersion() {
  open_.reset();
  version_ = kNoVersion;
  accepted_.clear();
}

absl::Status UpdateTransaction::Verify() const {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Digest> held, Digests());
  for (size_t t = 0; t < held.size(); ++t) {
    if (held[t] == accepted_[t]) continue;
    return MakeStatus(absl::StatusCode::kDataLoss,
                      "{} of version {} changed in this rollout's memory: digest {} now, {} when "
                      "it was accepted",
                      layout_->places()[t].name, version_, held[t].Hex(), accepted_[t].Hex());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Digest>> UpdateTransaction::Digests() const {
  std::vector<const TensorPlace*> places;
  for (const TensorPlace& place : layout_->places()) places.push_back(&place);
  return storage_->DigestStored(places);
}

}  // namespace tandem
