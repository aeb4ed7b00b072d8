#include "parity/row_trace.h"

#include "common/weights/digest.h"

namespace tandem {

void RowTrace::OnRow(const OpLabel& label, const RowKey& key, const void* data, int64_t bytes) {
  if (!rows_.Has(key)) return;
  labels_.emplace(label.index, label);
  const uint64_t digest = DigestOf(data, bytes).low;
  const auto [entry, added] = digests_.emplace(std::pair{label.index, key.position}, digest);
  if (!added && entry->second != digest && !contradiction_) {
    contradiction_ = Place{label, key.position};
  }
}

std::optional<RowTrace::Place> RowTrace::FirstDifference(const RowTrace& other) const {
  for (const auto& [place, digest] : digests_) {
    const auto found = other.digests_.find(place);
    if (found == other.digests_.end() || found->second == digest) continue;
    return Place{labels_.at(place.first), place.second};
  }
  return std::nullopt;
}

void RowCapture::OnRow(const OpLabel& label, const RowKey& key, const void* data, int64_t bytes) {
  if (!bytes_.empty() || label.index != place_.label.index || key.position != place_.position ||
      !rows_.Has(key)) {
    return;
  }
  bytes_.assign(static_cast<const char*>(data), static_cast<size_t>(bytes));
}

}  // namespace tandem
