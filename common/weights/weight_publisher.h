// The trainer's side of the weight transaction: gather into slots, digest, commit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/device/ledger.h"
#include "common/weights/digest.h"
#include "common/weights/layout.h"
#include "common/weights/update_client.h"

namespace tandem {

// Rows [row, row + rows) of a tensor.
struct TensorRows {
  const TensorPlace* place = nullptr;
  int64_t row = 0;
  int64_t rows = 0;
  int64_t row_bytes = 0;
};

// Where full tensors come from: a trainer's shards (collective) or a checkpoint.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  // Full dense row-major rows of the tensor in the layout's dtype, valid until the next call.
  // Called in the layout's order, once per tensor and pass.
  virtual absl::StatusOr<const void*> Gather(const TensorPlace& place) = 0;
  // These rows alone: where they lie, which is `dest` (room for them) if they had to be fetched.
  // The ranges of a tensor come in order, without gaps, and are valid until the next call. This one
  // gathers the tensor with its first rows.
  virtual absl::StatusOr<const void*> GatherRows(const TensorRows& rows, std::byte* dest);

 private:
  const std::byte* gathered_ = nullptr;
};

struct PublishOptions {
  int64_t slot_bytes = 4 << 20;  // weight_sync.bucket_mb
  int slots = 2;                 // weight_sync.slots
  Ledger* ledger = nullptr;
};

struct PublishReport {
  int64_t version = 0;
  int64_t bytes = 0;
  int64_t buckets = 0;
  int64_t tensors = 0;
  int64_t changed_tensors = 0;  // against the last version this publisher digested; all at first
  double changed_bytes_share = 0.0;  // bytes of changed tensors ÷ bytes
  double seconds = 0.0;
  double gather_seconds = 0.0;
  double fill_seconds = 0.0;  // digesting, and copying what was not gathered into its slot
  double wait_seconds = 0.0;  // for the rollout: begin, full slots, commit
  std::string digest;         // of all tensor digests, hex
};

// Not thread-safe: the trainer's engine thread calls it.
class WeightPublisher {
 public:
  WeightPublisher(const WeightLayout* layout, PublishOptions options)
      : layout_(layout), options_(options) {}

  // Publishes `version` from `source` to `client`; with a null client it only gathers and digests,
  // as a rank that publishes nothing must. `source` is asked for every row even after the client
  // has failed, because gathering is collective; only its own failure ends the pass early.
  // A failed update is aborted on the rollout; the status is the client's or the source's.
  absl::StatusOr<PublishReport> Publish(int64_t version,
                                        TensorSource& source,
                                        UpdateClient* client);
  // Of the last Publish, in the layout's order; empty before.
  const std::vector<Digest>& digests() const { return digests_; }

 private:
  const WeightLayout* const layout_;
  const PublishOptions options_;
  int64_t generation_ = 0;
  std::vector<Digest> digests_;
};

}  // namespace tandem
