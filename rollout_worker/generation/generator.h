// Serves generation requests on the engine thread: schedules, runs the forward pass, samples and
// commits tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>

#include "common/text/tokenizer.h"
#include "common/types/sample.h"
#include "common/types/worker_load.h"
#include "rollout_worker/generation/kv_cache.h"
#include "rollout_worker/generation/model_runner.h"
#include "rollout_worker/generation/scheduler.h"
#include "rollout_worker/generation/sequence.h"

namespace tandem {

// The limits against which CheckContinuation checks the tokens of earlier rounds.
struct ContinuationRules {
  int64_t vocab_limit = 1;  // token ids must be below it, even if the model has more embedding rows
  int64_t max_tokens = 1;   // of the complete response, continued tokens included
  int64_t version = -1;     // of the served weights; -1: unknown, not checked
  bool log_probs = true;    // whether log-probs are recorded for the new tokens
};

// InvalidArgument names the problem and the remedy: arrays of unequal lengths; log-probs although
// none are recorded for the new tokens, or none although they are; an id outside the vocabulary;
// versions that decrease or exceed the served one; no token left to generate; a negative limit.
absl::Status CheckContinuation(const Continuation& continuation, const ContinuationRules& rules);

struct GenerationRequest {
  std::string request_id;
  int64_t group = 0;     // echoed in the samples
  int64_t version = -1;  // required weight version; -1: any
  std::vector<int32_t> prompt;
  std::vector<uint64_t> sample_ids;     // one per requested sample
  SamplingParams params;                // max_tokens includes the tokens of `continued`
  std::vector<Continuation> continued;  // empty, or one per sample id
  bool stream_tokens = false;           // call OnTokens for every token
  // Records log-probs even if GeneratorOptions::log_probs is false.
  bool log_probs = false;
};

// The token that one step added to a sample.
struct TokenDelta {
  int64_t index = 0;
  int32_t token = 0;
  std::optional<float> log_prob;
  int64_t version = 0;
  std::string text;  // complete characters only; text once sent is never changed
};

// Receives a request's results. Called by the engine thread, so implementations must not block.
class GenerationSink {
 public:
  virtual ~GenerationSink() = default;
  virtual void OnTokens(const TokenDelta& delta) = 0;
  // Called with each complete sample, in the order in which samples finish.
  virtual void OnFinished(const Sample& sample) = 0;
  // The engine has made a forward pass while the request ran or waited; about once a second.
  virtual void OnAlive() {}
  // The last call. Not OK: the request was refused, cancelled or failed, or the engine is stopping.
  virtual void OnEnd(const absl::Status& status) = 0;
  // Whether the client has disconnected; the request's samples are then dropped at the next step.
  // Any thread may set it.
  virtual bool cancelled() const = 0;
};

struct GeneratorOptions {
  SchedulerOptions scheduler;
  int64_t max_model_len = 1;  // prompt and response tokens
  int64_t vocab_limit = 1;    // requests with ids at or above it are refused
  std::vector<int32_t> eos_token_ids;
  // Records log-probs for every request; false: only for requests that ask for them.
  bool log_probs = true;
  std::shared_ptr<const Tokenizer> tokenizer;  // null: no stop texts and no streamed text
};

// Not thread-safe: used by the engine thread.
class Generator {
 public:
  // `runner` and `kv` must outlive the generator.
  Generator(const GeneratorOptions& options, ModelRunner* runner, KvCache* kv);
  ~Generator();

  // Queues a request; from here on the sink gets its results and one OnEnd. InvalidArgument: an
  // empty prompt, an id outside the vocabulary, no or repeated sample ids, sampling parameters out
  // of range, stop texts without a tokenizer, a wrong number of continuations, or a continuation
  // that CheckContinuation refuses or whose response is already complete. ResourceExhausted: prompt
  // + max_tokens exceed max_model_len, or too many samples are queued.
  absl::Status Submit(GenerationRequest request, std::shared_ptr<GenerationSink> sink);
  bool has_work() const { return scheduler_.has_work(); }
  // Runs one forward pass over `weights`, which are of `version`; does nothing without work. Errors
  // are the device's (ModelRunner::Finish); after one the running requests can only be failed.
  absl::Status Step(const std::byte* weights, int64_t version);
  // Ends the named requests, or all if no id is given, and delivers their unfinished samples as
  // kAborted. Returns how many requests were ended.
  int64_t Abort(const std::vector<std::string>& request_ids);
  // Calls OnAlive of every open sink.
  void SignalAlive();
  // Ends all requests: every open sink gets OnEnd(status).
  void Fail(const absl::Status& status);
  // Without calls that are queued elsewhere.
  GeneratorLoad load() const;

 private:
  struct Response;
  struct Request;
  absl::Status Check(const GenerationRequest& request) const;
  absl::Status CheckContinued(const GenerationRequest& request) const;
  // Builds the state after the continued tokens. InvalidArgument: they already complete the
  // response.
  absl::StatusOr<Response> MakeResponse(const GenerationRequest& request, size_t index) const;
  bool LogProbsFor(const GenerationRequest& request) const {
    return options_.log_probs || request.log_probs;
  }
  void DropCancelled();
  void NotePeaks(int64_t version);
  void Commit(const DrawnToken& drawn, int64_t version);
  void Deliver(Request& request, Sequence& sequence);
  // Ends a request and drops its unfinished samples. Returns an iterator to the next request.
  std::map<int64_t, std::unique_ptr<Request>>::iterator End(
      std::map<int64_t, std::unique_ptr<Request>>::iterator request, const absl::Status& status);

  const GeneratorOptions options_;
  ModelRunner* const runner_;
  KvCache* const kv_;
  Scheduler scheduler_;
  std::map<int64_t, std::unique_ptr<Request>> requests_;  // by arrival number
  int64_t next_arrival_ = 0;
  int64_t queued_samples_ = 0;
  int64_t generated_tokens_ = 0;
  GeneratorLoad peaks_;  // its peaks alone
};

}  // namespace tandem
