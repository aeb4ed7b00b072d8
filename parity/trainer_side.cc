#include <algorithm>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/comm/communicator.h"
#include "parity/sides.h"
#include "trainer_worker/trained_weights/checkpoint.h"
#include "trainer_worker/training_session.h"

namespace tandem {
namespace {

// Translates sequences: the trainer numbers them by the order of its samples.
class SampleIds final : public OpListener {
 public:
  SampleIds(const std::vector<Sample>& samples, OpListener* next)
      : samples_(samples), next_(next) {}
  void OnRow(const OpLabel& label, const RowKey& key, const void* data, int64_t bytes) override {
    next_->OnRow(label, {samples_[key.sequence].sample_id, key.position}, data, bytes);
  }

 private:
  const std::vector<Sample>& samples_;
  OpListener* const next_;
};

}  // namespace

absl::StatusOr<SideRun> RunTrainer(const SideOptions& options,
                                   const std::vector<Sample>& samples,
                                   OpListener* listener) {
  SideRun run{.name = "trainer forward"};
  TANDEM_ASSIGN_OR_RETURN(auto forward, options.trainer_ops());
  SampleIds named(samples, listener);
  if (listener != nullptr) {
    forward = std::make_unique<WatchedOps>(std::move(forward),
                                           static_cast<int>(options.spec.num_layers), &named);
  }
  SessionOptions session_options;
  session_options.model_dir = options.model_dir;
  session_options.vocab_limit = options.vocab_limit;
  session_options.max_sequence_tokens = options.max_model_len;
  session_options.max_micro_batch_tokens =
      std::max(options.max_model_len, options.max_num_batched_tokens);
  session_options.share_prompts = options.share_prompts;
  session_options.entropy = false;
  Ledger ledger;
  SoloCommunicator communicator;
  const auto shard_ops = CreateCpuShardOps(options.pool);
  TANDEM_ASSIGN_OR_RETURN(const auto session, TrainingSession::Create(session_options,
                                                                      {.device = HostDevice(),
                                                                       .forward = forward.get(),
                                                                       .shard = shard_ops.get()},
                                                                      &communicator, &ledger));
  TANDEM_RETURN_IF_ERROR(LoadModel(options.model_dir, session->spec(), session->shard()));
  TANDEM_RETURN_IF_ERROR(session->WeightsChanged());
  const Instant start = RealClock().Now();
  TANDEM_ASSIGN_OR_RETURN(const LogProbsBySample scores, session->Score(samples));
  for (const auto& [sample_id, log_probs] : scores) run.log_probs[sample_id] = log_probs;
  run.counts = forward->counts();
  run.seconds = absl::ToDoubleSeconds(RealClock().Now() - start);
  return run;
}

}  // namespace tandem
