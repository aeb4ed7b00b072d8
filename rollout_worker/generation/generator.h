// Serves generation requests on the engine thread: schedule, forward, sample, commit.
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
#include "rollout_worker/generation/kv_cache.h"
#include "rollout_worker/generation/model_runner.h"
#include "rollout_worker/generation/scheduler.h"
#include "rollout_worker/generation/sequence.h"

namespace tandem {

// Decides whether a sample may continue from the tokens of earlier rounds.
struct ContinuationRules {
  int64_t vocab_limit = 1;  // ids at or above are no tokens, even if the model has rows for them
  int64_t max_tokens = 1;   // of the complete response
  int64_t version = -1;     // of the served weights; -1: unknown, not compared
  bool log_probs = true;    // whether the new tokens get log-probs
};

// InvalidArgument names the problem and the remedy: arrays of unequal lengths, log-probs although
// the new tokens get none (or the other way round), an id that is no token, versions that decrease
// or exceed the served one, no token left to generate, a negative limit.
absl::Status CheckContinuation(const Continuation& continuation, const ContinuationRules& rules);

struct GenerationRequest {
  std::string request_id;
  int64_t group = 0;     // echoed in the samples
  int64_t version = -1;  // required weight version; -1: any
  std::vector<int32_t> prompt;
  std::vector<uint64_t> sample_ids;     // one per sample wanted
  SamplingParams params;                // max_tokens includes the tokens of `continued`
  std::vector<Continuation> continued;  // empty, or one per sample id
  bool stream_tokens = false;           // OnTokens is called
  bool log_probs = false;  // with every token, also if GeneratorOptions::log_probs is false
};

// The token that one step added to one sample.
struct TokenDelta {
  int64_t index = 0;
  int32_t token = 0;
  std::optional<float> log_prob;
  int64_t version = 0;
  std::string text;  // complete characters; never retracted
};

// Receives a request's results. Called by the engine thread, so it must not block.
class GenerationSink {
 public:
  virtual ~GenerationSink() = default;
  virtual void OnTokens(const TokenDelta& delta) = 0;
  // A sample with all its tokens, in the order in which samples finish.
  virtual void OnFinished(const Sample& sample) = 0;
  // The last call. Not OK: the request was refused, or the engine stops.
  virtual void OnEnd(const absl::Status& status) = 0;
  // The caller has gone: the samples are dropped at the next step. Any thread may set it.
  virtual bool cancelled() const = 0;
};

struct GeneratorOptions {
  SchedulerOptions scheduler;
  int64_t max_model_len = 1;  // tokens, prompt and response
  int64_t vocab_limit = 1;    // ids at or above are refused
  std::vector<int32_t> eos_token_ids;
  bool log_probs = true;  // with every token; false: only for requests that ask for them
  std::shared_ptr<const Tokenizer> tokenizer;  // null: no stop texts and no streamed text
};

struct GeneratorLoad {
  int64_t running = 0;  // sequences
  int64_t waiting = 0;
  int64_t kv_blocks = 0;
  int64_t kv_blocks_used = 0;
  int64_t preemptions = 0;
  int64_t generated_tokens = 0;
  int64_t prefill_tokens = 0;
};

// Not thread-safe: the engine thread's.
class Generator {
 public:
  // `runner` and `kv` must outlive it.
  Generator(const GeneratorOptions& options, ModelRunner* runner, KvCache* kv);
  ~Generator();

  // Queues a request; from here on the sink gets results and one OnEnd. InvalidArgument: empty
  // prompt, an id that is no token, no or doubled sample ids, sampling parameters out of range,
  // a continuation that CheckContinuation refuses or whose response is complete.
  // ResourceExhausted: prompt + max_tokens exceed max_model_len, or too many samples are queued.
  absl::Status Submit(GenerationRequest request, std::shared_ptr<GenerationSink> sink);
  bool has_work() const { return scheduler_.has_work(); }
  // One forward pass over `weights` of `version`. Does nothing without work. An error is the
  // device's (ModelRunner::Finish), after which the running requests can only be failed.
  absl::Status Step(const std::byte* weights, int64_t version);
  // Ends the named requests (all when empty): unfinished samples are delivered as kAborted.
  // Returns how many requests were ended.
  int64_t Abort(const std::vector<std::string>& request_ids);
  // Ends everything: every open sink gets OnEnd(status).
  void Fail(const absl::Status& status);
  GeneratorLoad load() const;

 private:
  struct Response;
  struct Request;
  absl::Status Check(const GenerationRequest& request) const;
  absl::Status CheckContinued(const GenerationRequest& request) const;
  // The state after the continued tokens. InvalidArgument: they complete the response already.
  absl::StatusOr<Response> MakeResponse(const GenerationRequest& request, size_t index) const;
  bool LogProbsFor(const GenerationRequest& request) const {
    return options_.log_probs || request.log_probs;
  }
  void DropCancelled();
  void Commit(const DrawnToken& drawn, int64_t version);
  void Deliver(Request& request, Sequence& sequence);
  // Unfinished samples are dropped; returns the next request.
  std::map<int64_t, std::unique_ptr<Request>>::iterator End(
      std::map<int64_t, std::unique_ptr<Request>>::iterator request, const absl::Status& status);

  const GeneratorOptions options_;
  ModelRunner* const runner_;
  KvCache* const kv_;
  Scheduler scheduler_;
  std::map<int64_t, std::unique_ptr<Request>> requests_;  // by arrival
  int64_t next_arrival_ = 0;
  int64_t queued_samples_ = 0;
  int64_t generated_tokens_ = 0;
};

}  // namespace tandem
