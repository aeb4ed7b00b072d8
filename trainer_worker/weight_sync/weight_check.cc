#include "trainer_worker/weight_sync/weight_check.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <set>
#include <unordered_map>
#include <utility>

#include "common/base/progress.h"
#include "common/base/status.h"
#include "common/model_spec/row_ranges.h"

namespace tandem {
namespace {

double ElementAt(const std::byte* data, DType dtype, int64_t index) {
  if (dtype == DType::kFloat32) {
    float value;
    memcpy(&value, data + index * 4, 4);
    return value;
  }
  Bf16 value;
  memcpy(&value, data + index * 2, 2);
  return FromBf16(value);
}

// Describes the first element that differs in a range of rows; empty if none does.
absl::StatusOr<std::string> DifferenceIn(const ManifestTensor& tensor,
                                         const TensorRows& rows,
                                         const std::byte* ours,
                                         WeightReader& reader) {
  TANDEM_ASSIGN_OR_RETURN(const std::string theirs, reader.Read(tensor.name, rows.row, rows.rows));
  if (static_cast<int64_t>(theirs.size()) != rows.rows * rows.row_bytes) {
    return Internal("{}: the rollout gave {} bytes for {} rows", tensor.name, theirs.size(),
                    rows.rows);
  }
  const auto* held = reinterpret_cast<const std::byte*>(theirs.data());
  const auto [a, b] = std::mismatch(ours, ours + theirs.size(), held);
  if (a == ours + theirs.size()) return std::string();
  const auto element = static_cast<int64_t>(DTypeBytes(tensor.dtype));
  const int64_t index = (a - ours) / element;
  const int64_t columns = rows.row_bytes / element;
  return fmt::format("{}[{}, {}]: the rollout holds {}, expected {}", tensor.name,
                     rows.row + index / columns, index % columns,
                     ElementAt(held, tensor.dtype, index), ElementAt(ours, tensor.dtype, index));
}

// Passes over a tensor: calls `body` with every range and the address of its rows.
absl::Status ForEachRange(
    const TensorPlace& place,
    const ManifestTensor& tensor,
    ExpectedWeights& source,
    const std::function<void(const TensorRows& rows, const std::byte* data)>& body) {
  const int64_t step = RowsPerRange(tensor.row_bytes());
  for (int64_t row = 0; row < tensor.rows(); row += step) {
    const TensorRows rows{&place, row, std::min(step, tensor.rows() - row), tensor.row_bytes()};
    TANDEM_ASSIGN_OR_RETURN(const void* data, source.Rows(rows));
    body(rows, static_cast<const std::byte*>(data));
    NoteProgress();
  }
  return absl::OkStatus();
}

class Comparison {
 public:
  Comparison(const Manifest& expected, WeightReader* reader)
      : expected_(expected), reader_(reader) {
    report_.expected = std::ssize(expected);
  }

  void Start() {
    if (reader_ != nullptr) status_ = ReadDigests();
  }

  // Whether digests are needed: there is a reader, and it has not failed.
  bool active() const { return reader_ != nullptr && status_.ok(); }

  void Compare(size_t t, const Digest& ours) {
    const ManifestTensor& tensor = expected_[t];
    const auto found = index_.find(tensor.name);
    if (found == index_.end()) {
      ++report_.missing;
      Note(tensor.name, "the rollout lacks it");
      return;
    }
    ++report_.checked;
    const ManifestTensor& held = held_.manifest[found->second];
    if (held.dtype != tensor.dtype || held.shape != tensor.shape) {
      ++report_.mismatched;
      Note(tensor.name,
           fmt::format("the rollout holds {} {}, expected {} {}", DTypeName(held.dtype),
                       ShapeText(held.shape), DTypeName(tensor.dtype), ShapeText(tensor.shape)));
    } else if (!(ours == held_.digests[found->second])) {
      ++report_.mismatched;
      Name(tensor.name);
      if (report_.first_difference.empty() && wanted_ < 0) wanted_ = static_cast<int64_t>(t);
    }
  }

  // The tensor in which to find the first differing element; -1: none.
  int64_t wanted() const { return status_.ok() ? wanted_ : -1; }

  void Explain(const TensorRows& rows, const std::byte* ours) {
    if (!status_.ok() || !report_.first_difference.empty()) return;
    auto difference = DifferenceIn(expected_[static_cast<size_t>(wanted_)], rows, ours, *reader_);
    status_ = difference.status();
    if (difference.ok()) report_.first_difference = *std::move(difference);
  }

  absl::StatusOr<WeightCheckReport> Report() {
    TANDEM_RETURN_IF_ERROR(status_);
    if (wanted_ >= 0 && report_.first_difference.empty()) {
      report_.first_difference =
          expected_[static_cast<size_t>(wanted_)].name + ": digests differ, elements do not";
    }
    return report_;
  }

 private:
  absl::Status ReadDigests() {
    TANDEM_ASSIGN_OR_RETURN(held_, reader_->Digests());
    report_.version = held_.version;
    if (held_.manifest.size() != held_.digests.size()) {
      return Internal("the rollout gave {} digests for {} tensors", held_.digests.size(),
                      held_.manifest.size());
    }
    std::unordered_map<std::string, size_t> wanted;
    for (size_t i = 0; i < expected_.size(); ++i) wanted[expected_[i].name] = i;
    for (size_t i = 0; i < held_.manifest.size(); ++i) {
      const std::string& name = held_.manifest[i].name;
      index_[name] = i;
      if (wanted.count(name) > 0) continue;
      ++report_.unexpected;
      Note(name, "only the rollout has it");
    }
    return absl::OkStatus();
  }
  void Name(const std::string& tensor) {
    if (report_.differing.size() < WeightCheckReport::kNamedTensors) {
      report_.differing.push_back(tensor);
    }
  }
  void Note(const std::string& tensor, const std::string& text) {
    Name(tensor);
    if (report_.first_difference.empty() && wanted_ < 0) {
      report_.first_difference = tensor + ": " + text;
    }
  }

  const Manifest& expected_;
  WeightReader* const reader_;
  absl::Status status_;
  HeldWeights held_;
  std::unordered_map<std::string, size_t> index_;
  WeightCheckReport report_;
  int64_t wanted_ = -1;
};

}  // namespace

absl::StatusOr<WeightCheckReport> CheckWeights(const WeightLayout& layout,
                                               ExpectedWeights& source,
                                               WeightReader* reader) {
  const Manifest expected = ManifestOf(layout);
  const std::vector<TensorPlace>& places = layout.places();
  Comparison comparison(expected, reader);
  comparison.Start();
  for (size_t t = 0; t < expected.size(); ++t) {
    DigestRun digest;
    TANDEM_RETURN_IF_ERROR(ForEachRange(places[t], expected[t], source,
                                        [&](const TensorRows& rows, const std::byte* data) {
                                          if (comparison.active())
                                            digest.Append(data, rows.rows * rows.row_bytes);
                                        }));
    if (comparison.active()) comparison.Compare(t, digest.Finish());
  }
  TANDEM_ASSIGN_OR_RETURN(const std::vector<int64_t> wanted,
                          source.ExchangeCounts(comparison.wanted()));
  // Gathers are collective, so every rank passes over every tensor that any rank inspects again.
  for (const int64_t t : std::set<int64_t>(wanted.begin(), wanted.end())) {
    if (t < 0) continue;
    TANDEM_RETURN_IF_ERROR(ForEachRange(places[static_cast<size_t>(t)],
                                        expected[static_cast<size_t>(t)], source,
                                        [&](const TensorRows& rows, const std::byte* data) {
                                          if (t == comparison.wanted()) {
                                            comparison.Explain(rows, data);
                                          }
                                        }));
  }
  return comparison.Report();
}

}  // namespace tandem
