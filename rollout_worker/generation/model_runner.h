// Computes a step plan: token ids through the decoder, one token drawn per sampler. Between Start
// and Finish the host is free while the device works.
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

// Not thread-safe: the engine thread's. Holds activations (tag activations), no weights and no KV.
class ModelRunner {
 public:
  // Ids at or above `vocab_limit` are never drawn. InvalidArgument: `vocab_limit` is not one of the
  // model.
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
  // Whether the rope tables have not changed since Create. DataLoss names the first element that
  // differs.
  absl::Status VerifyTables() const;

  // Pages of the activations; they hold nothing between two steps.
  absl::Status MapWorkspace() { return workspace_->Map(); }
  absl::Status ReleaseWorkspace() { return workspace_->Release(); }
  int64_t workspace_bytes() const { return workspace_->mapped() ? workspace_->bytes() : 0; }

  // Copies blocks, runs the forward pass over `weights` (a full storage), and draws one token for
  // every sampler, in plan order. The uniform of a token depends on the request's seed, the sample
  // and the token's absolute position alone. Enqueues all of it on the device's stream without
  // waiting; the plan has been read on return. Call Finish next. Steps no larger than earlier ones
  // allocate nothing.
  void Start(const StepPlan& plan, const std::byte* weights, KvCache& kv);
  // Waits until the device has finished, which a step does only here. An error is the device's,
  // which cannot be used any more.
  absl::Status Finish();
  // After Finish: the tokens that the step drew.
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
  // The ops' scratch, tag workspace.
  void CountScratch();
  Matrix Forward(const StepPlan& plan, const std::byte* weights, KvCache& kv);
  // The tokens of drawn_ [first, first + rows.size()).
  void Draw(const std::byte* weights, Matrix residual, std::span<const int32_t> rows, size_t first);

  // Adds padding rows up to the row count that the ops require of a step.
  void FillUp(const KvCache& kv);

  Device* const device_;
  std::unique_ptr<ForwardOps> ops_;
  Decoder decoder_;
  const int64_t vocab_limit_;
  std::vector<Digest> table_digests_;  // at creation: cos, sin
  Ledger* const ledger_;               // may be null
  int64_t scratch_bytes_ = 0;
  std::unique_ptr<MemoryRegion> workspace_;
  int64_t max_rows_ = 0;  // of a step

  // Of the current step; members so that their memory is reused.
  TokenBatch batch_;
  std::vector<int32_t> ids_;
  std::vector<int32_t> sampled_rows_;
  std::vector<SampleRow> sample_rows_;
  std::vector<SampledToken> tokens_;
  std::vector<DrawnToken> drawn_;
};

}  // namespace tandem
