#include "common/weights/weight_check.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <unordered_map>
#include <utility>

#include "common/base/status_macros.h"

namespace tandem {
namespace {

constexpr int64_t kReadBytes = 1 << 20;

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

// The first element of a tensor that differs, in words.
absl::StatusOr<std::string> FirstDifference(const ManifestTensor& tensor,
                                            const std::byte* ours,
                                            WeightReader& reader) {
  const int64_t row_bytes = tensor.row_bytes();
  const int64_t element = static_cast<int64_t>(DTypeBytes(tensor.dtype));
  const int64_t step = std::max<int64_t>(1, kReadBytes / row_bytes);
  for (int64_t row = 0; row < tensor.rows(); row += step) {
    const int64_t rows = std::min(step, tensor.rows() - row);
    TANDEM_ASSIGN_OR_RETURN(const std::string theirs, reader.Read(tensor.name, row, rows));
    if (static_cast<int64_t>(theirs.size()) != rows * row_bytes) {
      return Internal("{}: the rollout gave {} bytes for {} rows", tensor.name, theirs.size(),
                      rows);
    }
    const std::byte* mine = ours + row * row_bytes;
    const auto* held = reinterpret_cast<const std::byte*>(theirs.data());
    const auto [a, b] = std::mismatch(mine, mine + theirs.size(), held);
    if (a == mine + theirs.size()) continue;
    const int64_t index = (a - mine) / element;
    const int64_t columns = row_bytes / element;
    return fmt::format("{}[{}, {}]: the rollout holds {}, expected {}", tensor.name,
                       row + index / columns, index % columns, ElementAt(held, tensor.dtype, index),
                       ElementAt(mine, tensor.dtype, index));
  }
  return fmt::format("{}: digests differ, elements do not", tensor.name);
}

class Comparison {
 public:
  Comparison(const Manifest& expected, WeightReader& reader)
      : expected_(expected), reader_(reader) {}

  absl::Status Start() {
    TANDEM_ASSIGN_OR_RETURN(held_, reader_.Digests());
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
      Note(name + ": only the rollout has it");
    }
    return absl::OkStatus();
  }

  absl::Status Compare(const ManifestTensor& tensor, const std::byte* ours) {
    const auto found = index_.find(tensor.name);
    if (found == index_.end()) {
      ++report_.missing;
      Note(tensor.name + ": the rollout lacks it");
      return absl::OkStatus();
    }
    ++report_.checked;
    const ManifestTensor& held = held_.manifest[found->second];
    if (held.dtype != tensor.dtype || held.shape != tensor.shape) {
      ++report_.mismatched;
      Note(fmt::format("{}: the rollout holds {} {}, expected {} {}", tensor.name,
                       DTypeName(held.dtype), ShapeText(held.shape), DTypeName(tensor.dtype),
                       ShapeText(tensor.shape)));
    } else if (!(DigestOf(ours, tensor.bytes()) == held_.digests[found->second])) {
      ++report_.mismatched;
      if (!report_.first_difference.empty()) return absl::OkStatus();
      TANDEM_ASSIGN_OR_RETURN(report_.first_difference, FirstDifference(tensor, ours, reader_));
    }
    return absl::OkStatus();
  }

  const WeightCheckReport& report() const { return report_; }

 private:
  void Note(const std::string& text) {
    if (report_.first_difference.empty()) report_.first_difference = text;
  }
  const Manifest& expected_;
  WeightReader& reader_;
  HeldWeights held_;
  std::unordered_map<std::string, size_t> index_;
  WeightCheckReport report_;
};

}  // namespace

absl::StatusOr<WeightCheckReport> CheckWeights(const WeightLayout& layout,
                                               TensorSource& source,
                                               WeightReader* reader) {
  const Manifest expected = ManifestOf(layout);
  std::unique_ptr<Comparison> comparison;
  absl::Status status;
  if (reader != nullptr) {
    comparison = std::make_unique<Comparison>(expected, *reader);
    status = comparison->Start();
  }
  for (size_t t = 0; t < expected.size(); ++t) {
    TANDEM_ASSIGN_OR_RETURN(const void* rows, source.Gather(layout.places()[t]));
    if (comparison != nullptr && status.ok()) {
      status = comparison->Compare(expected[t], static_cast<const std::byte*>(rows));
    }
  }
  TANDEM_RETURN_IF_ERROR(status);
  return comparison == nullptr ? WeightCheckReport() : comparison->report();
}

}  // namespace tandem
