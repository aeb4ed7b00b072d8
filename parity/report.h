// Traces of one side's results for one sample, op by op, to find the first difference of two sides.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "parity/op_watch.h"

namespace tandem {

// The rows of one sample: its own, and those of its prompt, which may be computed for any sample of
// its group. The sequences of the keys are sample ids.
struct SampleRows {
  uint64_t sample_id = 0;
  int64_t prompt_tokens = 0;
  std::set<uint64_t> group;  // ids of the samples with the same prompt

  bool Has(const RowKey& key) const {
    return key.sequence == sample_id ||
           (key.position < prompt_tokens && group.count(key.sequence) > 0);
  }
};

// Digests of every op's result at every position of a sample. A row may be computed more than once
// (a preempted sequence is computed again; a prompt may be in several micro-batches), with equal
// results.
class RowTrace final : public OpListener {
 public:
  explicit RowTrace(SampleRows rows) : rows_(std::move(rows)) {}
  void OnRow(const OpLabel& label, const RowKey& key, const void* data, int64_t bytes) override;

  struct Place {
    OpLabel label;
    int64_t position = 0;
  };
  // The first difference by op, then position, among the rows that both sides have; nullopt: none.
  std::optional<Place> FirstDifference(const RowTrace& other) const;
  // The first place at which this side computed two different results.
  const std::optional<Place>& contradiction() const { return contradiction_; }
  int64_t size() const { return static_cast<int64_t>(digests_.size()); }

 private:
  const SampleRows rows_;
  std::map<int, OpLabel> labels_;
  std::map<std::pair<int, int64_t>, uint64_t> digests_;  // by op index and position
  std::optional<Place> contradiction_;
};

// The bytes of one row of one op.
class RowCapture final : public OpListener {
 public:
  RowCapture(SampleRows rows, RowTrace::Place place)
      : rows_(std::move(rows)), place_(std::move(place)) {}
  void OnRow(const OpLabel& label, const RowKey& key, const void* data, int64_t bytes) override;
  const std::string& bytes() const { return bytes_; }

 private:
  const SampleRows rows_;
  const RowTrace::Place place_;
  std::string bytes_;
};

}  // namespace tandem
