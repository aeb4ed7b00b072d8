#include <algorithm>
#include <cstring>
#include <limits>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "parity/sides.h"
#include "rollout_worker/weights/weight_storage.h"

namespace tandem {
namespace {

class Collector final : public GenerationSink {
 public:
  explicit Collector(std::vector<Sample>* samples) : samples_(samples) {}
  void OnTokens(const TokenDelta&) override {}
  void OnFinished(const Sample& sample) override { samples_->push_back(sample); }
  void OnEnd(const absl::Status& status) override { end = status; }
  bool cancelled() const override { return false; }

  absl::Status end = absl::UnknownError("the generator did not end the request");

 private:
  std::vector<Sample>* const samples_;
};

// The parts of a rollout worker that generate, without its service.
struct Rollout {
  Ledger ledger;
  std::unique_ptr<ModelRunner> runner;
  std::unique_ptr<WeightStorage> weights;
  std::unique_ptr<KvCache> kv;
  std::unique_ptr<Generator> generator;
};

absl::StatusOr<std::unique_ptr<ForwardOps>> Watched(const SideOptions& options,
                                                    OpListener* listener) {
  TANDEM_ASSIGN_OR_RETURN(auto ops, options.rollout_ops());
  if (listener == nullptr) return ops;
  std::unique_ptr<ForwardOps> watched = std::make_unique<WatchedOps>(
      std::move(ops), static_cast<int>(options.spec.num_layers), listener);
  return watched;
}

absl::Status MakeRollout(const SideOptions& options, OpListener* listener, Rollout* rollout) {
  TANDEM_ASSIGN_OR_RETURN(auto ops, Watched(options, listener));
  TANDEM_ASSIGN_OR_RETURN(
      rollout->runner,
      ModelRunner::Create(HostDevice(), options.spec, std::move(ops), options.vocab_limit,
                          options.max_model_len, options.max_num_batched_tokens, &rollout->ledger));
  TANDEM_ASSIGN_OR_RETURN(
      rollout->weights,
      WeightStorage::Create(HostDevice(), &rollout->runner->layout(), &rollout->ledger));
  const int64_t blocks = KvBlocksFor(options.max_model_len);
  TANDEM_ASSIGN_OR_RETURN(rollout->kv,
                          KvCache::Create(HostDevice(), options.spec, options.dtype,
                                          options.max_num_seqs * blocks, &rollout->ledger));
  TANDEM_RETURN_IF_ERROR(rollout->weights->Map());
  TANDEM_RETURN_IF_ERROR(rollout->kv->Map());
  TANDEM_RETURN_IF_ERROR(rollout->runner->MapActivations());
  const auto storage =
      CreateCpuStorageOps(&rollout->runner->layout(), rollout->weights->data(), options.pool);
  TANDEM_RETURN_IF_ERROR(
      rollout->weights->LoadCheckpoint(options.model_dir, options.spec, *storage));
  GeneratorOptions generator;
  generator.scheduler = {options.max_num_seqs, options.max_num_batched_tokens,
                         options.share_prompts};
  generator.max_model_len = options.max_model_len;
  generator.vocab_limit = options.vocab_limit;
  rollout->generator =
      std::make_unique<Generator>(generator, rollout->runner.get(), rollout->kv.get());
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Sample>> Generate(Rollout& rollout,
                                             const std::vector<GenerationRequest>& requests) {
  std::vector<Sample> samples;
  std::vector<std::shared_ptr<Collector>> sinks;
  for (const GenerationRequest& request : requests) {
    sinks.push_back(std::make_shared<Collector>(&samples));
    TANDEM_RETURN_IF_ERROR(rollout.generator->Submit(request, sinks.back()));
  }
  while (rollout.generator->has_work()) {
    TANDEM_RETURN_IF_ERROR(rollout.generator->Step(rollout.weights->data(), /*version=*/0));
  }
  for (const auto& sink : sinks) TANDEM_RETURN_IF_ERROR(sink->end);
  std::sort(samples.begin(), samples.end(),
            [](const Sample& a, const Sample& b) { return a.sample_id < b.sample_id; });
  return samples;
}

// Keeps the last layer's residual rows that predict response tokens, contiguously, by sample.
class ResidualKeeper final : public OpListener {
 public:
  ResidualKeeper(const SideOptions& options, const std::vector<Sample>& samples, OpListener* next)
      : last_layer_(static_cast<int>(options.spec.num_layers) - 1), next_(next) {
    for (const Sample& sample : samples) prompt_tokens_[sample.sample_id] = sample.prompt_tokens;
  }
  void OnRow(const OpLabel& label, const RowKey& key, const void* data, int64_t bytes) override {
    if (next_ != nullptr) next_->OnRow(label, key, data, bytes);
    if (label.layer != last_layer_ || label.name != "add mlp") return;
    const int64_t row = key.position + 1 - prompt_tokens_.at(key.sequence);
    if (row < 0) return;
    std::vector<std::byte>& rows = rows_[key.sequence];
    rows.resize(std::max(rows.size(), static_cast<size_t>((row + 1) * bytes)));
    std::memcpy(rows.data() + row * bytes, data, static_cast<size_t>(bytes));
  }
  std::vector<std::byte>& rows(uint64_t sample_id) { return rows_[sample_id]; }

 private:
  const int last_layer_;
  OpListener* const next_;
  std::map<uint64_t, int64_t> prompt_tokens_;
  std::map<uint64_t, std::vector<std::byte>> rows_;
};

// Applies the final norm and the head to the rows of a sample.
std::vector<float> ScoreRows(Rollout& rollout,
                             const SideOptions& options,
                             const Sample& sample,
                             std::vector<std::byte>& rows) {
  ForwardOps& ops = rollout.runner->ops();
  const GlobalWeights globals =
      ViewGlobals(options.spec, rollout.runner->layout(), rollout.weights->data());
  const auto count = static_cast<size_t>(sample.response_tokens());
  const Matrix matrix{rows.data(), sample.response_tokens(), options.spec.hidden_size,
                      options.spec.hidden_size};
  const std::vector<float> temperatures(count, sample.temperature);
  std::vector<float> log_probs(count);
  ops.RmsNorm(matrix, globals.final_norm, options.spec.rms_norm_eps, matrix);
  ops.TokenLogProbs(matrix, globals.head, options.vocab_limit,
                    sample.tokens.data() + sample.prompt_tokens, temperatures.data(),
                    log_probs.data(), nullptr);
  return log_probs;
}

// A request that prefills the sample without its last token and samples that token again.
GenerationRequest PrefillRequest(const Sample& sample, uint64_t seed) {
  GenerationRequest request;
  request.request_id = fmt::format("prefill-{}", sample.sample_id);
  request.group = sample.group;
  request.prompt.assign(sample.tokens.begin(), sample.tokens.end() - 1);
  request.sample_ids = {sample.sample_id};
  request.params.max_tokens = 1;
  request.params.ignore_eos = true;
  request.params.seed = seed;
  request.params.temperature = sample.temperature;
  return request;
}

// The last token was sampled again: its log-prob, or NaN if another token was sampled.
float DrawnLogProb(const Sample& drawn, const Sample& sample) {
  return drawn.tokens == sample.tokens ? drawn.log_probs.back()
                                       : std::numeric_limits<float>::quiet_NaN();
}

}  // namespace

absl::StatusOr<SideRun> RunDecode(const SideOptions& options,
                                  const std::vector<GenerationRequest>& requests,
                                  OpListener* listener,
                                  std::vector<Sample>* samples) {
  SideRun run{.name = "rollout decode"};
  Rollout rollout;
  TANDEM_RETURN_IF_ERROR(MakeRollout(options, listener, &rollout));
  const Instant start = RealClock().Now();
  TANDEM_ASSIGN_OR_RETURN(*samples, Generate(rollout, requests));
  for (const Sample& sample : *samples) run.log_probs[sample.sample_id] = sample.log_probs;
  run.counts = rollout.runner->ops().counts();
  run.seconds = absl::ToDoubleSeconds(RealClock().Now() - start);
  return run;
}

absl::StatusOr<SideRun> RunPrefill(const SideOptions& options,
                                   const std::vector<Sample>& samples,
                                   uint64_t seed,
                                   OpListener* listener) {
  SideRun run{.name = "rollout prefill"};
  ResidualKeeper keeper(options, samples, listener);
  Rollout rollout;
  TANDEM_RETURN_IF_ERROR(MakeRollout(options, &keeper, &rollout));
  const Instant start = RealClock().Now();
  std::vector<GenerationRequest> requests;
  for (const Sample& sample : samples) requests.push_back(PrefillRequest(sample, seed));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Sample> drawn, Generate(rollout, requests));
  for (size_t i = 0; i < samples.size(); ++i) {
    std::vector<float>& log_probs = run.log_probs[samples[i].sample_id];
    log_probs = ScoreRows(rollout, options, samples[i], keeper.rows(samples[i].sample_id));
    log_probs.back() = DrawnLogProb(drawn[i], samples[i]);
  }
  run.counts = rollout.runner->ops().counts();
  run.seconds = absl::ToDoubleSeconds(RealClock().Now() - start);
  return run;
}

}  // namespace tandem
