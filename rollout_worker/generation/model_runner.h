// Computes a step plan: runs its token ids through the decoder and draws one token per sampler.
// Between Start and Finish the device computes and the host is free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/device/device.h"
#include "common/device/ledger.h"
#include "common/model/decoder.h"
#include "common/ops/forward_ops.h"
#include "common/weights/digest.h"
#include "rollout_worker/generation/kv_cache.h"
#include "rollout_worker/generation/scheduler.h"

namespace tandem {

struct DrawnToken {
  Sequence* sequence = nullptr;
  SampledToken drawn;
};

// Not thread-safe: used by the engine thread. Owns the activations (tag activations), but no
// weights and no KV.
class ModelRunner {
 public:
  // Token ids at or above `vocab_limit` are never drawn. InvalidArgument: `vocab_limit` is below 1
  // or above the model's number of embedding rows.
  static absl::StatusOr<std::unique_ptr<ModelRunner>> Create(Device* device,
                                                             const ModelSpec& spec,
                                                             std::unique_ptr<ForwardOps> ops,
                                                             int64_t vocab_limit,
                                                             int64_t max_model_len,
                                                             int64_t max_num_batched_tokens,
                                                             Ledger* ledger);

  const WeightLayout& layout() const { return decoder_.layout(); }
  ForwardOps& ops() const { return *ops_; }
  const RopeTable& rope() const { return decoder_.rope(); }
  // Checks that the rope tables have not changed since Create. DataLoss names the first element
  // that differs.
  absl::Status VerifyTables() const;

  // Map or release the pages of the activations, which hold no data between steps.
  absl::Status MapActivations() { return activations_->Map(); }
  absl::Status ReleaseActivations() { return activations_->Release(); }
  int64_t activation_bytes() const { return activations_->mapped() ? activations_->bytes() : 0; }

  // Copies blocks, runs the forward pass over `weights` (a complete storage), and draws one token
  // for every sampler, in plan order. A token's uniform random number depends only on the request's
  // seed, the sample id and the token's absolute position. Enqueues all this work on the device's
  // stream without waiting, and does not use the plan after it returns. Finish must follow. A step
  // no larger than earlier ones allocates no memory.
  void Start(const StepPlan& plan, const std::byte* weights, KvCache& kv);
  // Waits for the device; this is the only wait of a step. Errors are the device's, which is
  // unusable afterwards.
  absl::Status Finish();
  // The tokens that the step drew, valid after Finish.
  const std::vector<DrawnToken>& drawn() const { return drawn_; }

 private:
  ModelRunner(Device* device,
              std::unique_ptr<ForwardOps> ops,
              Decoder decoder,
              int64_t vocab_limit,
              Ledger* ledger)
      : device_(device),
        ops_(std::move(ops)),
        decoder_(std::move(decoder)),
        vocab_limit_(vocab_limit),
        ledger_(ledger) {}
  // Counts the ops' scratch memory in the ledger, under the tag workspace.
  void CountScratch();
  Matrix Forward(const StepPlan& plan, const std::byte* weights, KvCache& kv);
  // Draws the tokens of drawn_ [first, first + rows.size()).
  void Draw(const std::byte* weights, Matrix residual, std::span<const int32_t> rows, size_t first);

  // Adds padding rows up to the number of rows that the ops require in a step.
  void FillUp(const KvCache& kv);

  Device* const device_;
  std::unique_ptr<ForwardOps> ops_;
  Decoder decoder_;
  const int64_t vocab_limit_;
  std::vector<Digest> table_digests_;  // of the cos and sin tables at creation
  Ledger* const ledger_;               // may be null
  int64_t scratch_bytes_ = 0;
  std::unique_ptr<MemoryRegion> activations_;
  int64_t max_rows_ = 0;  // the largest number of rows in a step

  // State of the current step, kept in members so that its memory is reused.
  TokenBatch batch_;
  std::vector<int32_t> ids_;
  std::vector<int32_t> sampled_rows_;
  std::vector<SampleRow> sample_rows_;
  std::vector<SampledToken> tokens_;
  std::vector<DrawnToken> drawn_;
};

}  // namespace tandem
