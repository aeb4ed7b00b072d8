#include "rollout_worker/generation/generator.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "common/base/status.h"

namespace tandem {
namespace {

absl::Status CheckLengths(const Continuation& continuation, bool log_probs) {
  const size_t tokens = continuation.tokens.size();
  const size_t wanted = log_probs ? tokens : 0;
  if (continuation.versions.size() != tokens) {
    return InvalidArgument("the continuation has {} tokens but {} versions: send one per token",
                           tokens, continuation.versions.size());
  }
  if (continuation.log_probs.size() == wanted) return absl::OkStatus();
  if (!log_probs) {
    return InvalidArgument(
        "the continuation has {} tokens but {} log-probs, and this request returns none "
        "(rollout.calculate_log_probs=false): send none, or ask for them",
        tokens, continuation.log_probs.size());
  }
  return InvalidArgument("the continuation has {} tokens but {} log-probs: send one per token",
                         tokens, continuation.log_probs.size());
}

absl::Status CheckTokens(const Continuation& continuation, int64_t vocab_limit) {
  for (size_t i = 0; i < continuation.tokens.size(); ++i) {
    const int32_t id = continuation.tokens[i];
    if (id >= 0 && id < vocab_limit) continue;
    return InvalidArgument(
        "token {} of the continuation has id {}, but the tokenizer's ids are 0 to {}: these are "
        "ids of another tokenizer; restart the sample",
        i, id, vocab_limit - 1);
  }
  return absl::OkStatus();
}

absl::Status CheckVersions(const Continuation& continuation, int64_t served) {
  int64_t before = 0;
  for (size_t i = 0; i < continuation.versions.size(); ++i) {
    const int64_t version = continuation.versions[i];
    if (version < before) {
      return InvalidArgument(
          "token {} of the continuation has weight version {}, after version {}: versions must not "
          "decrease; send them in order",
          i, version, before);
    }
    before = version;
    if (served < 0 || version <= served) continue;
    return InvalidArgument(
        "token {} of the continuation has weight version {}, but this rollout serves version {}: "
        "sync it first, or restart the sample",
        i, version, served);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckContinuation(const Continuation& continuation, const ContinuationRules& rules) {
  TANDEM_RETURN_IF_ERROR(CheckLengths(continuation, rules.log_probs));
  TANDEM_RETURN_IF_ERROR(CheckTokens(continuation, rules.vocab_limit));
  TANDEM_RETURN_IF_ERROR(CheckVersions(continuation, rules.version));
  if (static_cast<int64_t>(continuation.tokens.size()) >= rules.max_tokens) {
    return InvalidArgument(
        "the continuation has {} of max_tokens={} already: nothing is left to generate, the sample "
        "is finished by length",
        continuation.tokens.size(), rules.max_tokens);
  }
  if (continuation.max_new_tokens < 0) {
    return InvalidArgument("max_new_tokens is {}, it must be at least 1, or 0 for no limit",
                           continuation.max_new_tokens);
  }
  return absl::OkStatus();
}

namespace {

// Far above the number of samples that a controller queues at once; bounds the memory that a
// misbehaving client can make the rollout hold.
constexpr int64_t kMaxQueuedSamples = 1 << 17;

absl::Status CheckParams(const SamplingParams& params) {
  const bool greedy = params.temperature == 0.0f;
  if (!greedy && !(static_cast<double>(params.temperature) >= kMinTemperature &&
                   std::isfinite(params.temperature))) {
    return InvalidArgument("temperature is {}, it must be 0 (greedy) or at least {}",
                           params.temperature, kMinTemperature);
  }
  if (!(params.top_p > 0.0f && params.top_p <= 1.0f)) {
    return InvalidArgument("top_p is {}, it must be above 0 and at most 1", params.top_p);
  }
  if (params.top_k < 1 && params.top_k != -1) {
    return InvalidArgument("top_k is {}, it must be at least 1, or -1 for off", params.top_k);
  }
  if (params.max_tokens < 1) {
    return InvalidArgument("max_tokens is {}, it must be at least 1", params.max_tokens);
  }
  return absl::OkStatus();
}

}  // namespace

// A sample's state in addition to its Sequence.
struct Generator::Response {
  StopCondition stop;
  std::optional<StreamDecoder> decoder;  // set if stop texts or streaming need the text
};

struct Generator::Request {
  std::unique_ptr<SequenceGroup> group;
  std::shared_ptr<GenerationSink> sink;
  std::vector<Response> responses;  // by sample index
  bool stream_tokens = false;
  bool log_probs = true;
  int64_t unfinished = 0;  // samples
};

Generator::Generator(const GeneratorOptions& options, ModelRunner* runner, KvCache* kv)
    : options_(options),
      runner_(runner),
      kv_(kv),
      scheduler_(options.scheduler, kv->num_blocks()) {}

Generator::~Generator() = default;

absl::Status Generator::Check(const GenerationRequest& request) const {
  TANDEM_RETURN_IF_ERROR(CheckParams(request.params));
  if (request.prompt.empty()) return InvalidArgument("the prompt is empty");
  for (size_t i = 0; i < request.prompt.size(); ++i) {
    if (request.prompt[i] >= 0 && request.prompt[i] < options_.vocab_limit) continue;
    return InvalidArgument("prompt token {} is id {}, but the tokenizer's ids are 0 to {}", i,
                           request.prompt[i], options_.vocab_limit - 1);
  }
  const std::set<uint64_t> distinct(request.sample_ids.begin(), request.sample_ids.end());
  if (distinct.empty()) return InvalidArgument("no sample ids: nothing to generate");
  if (distinct.size() != request.sample_ids.size()) {
    return InvalidArgument("a sample id appears twice; equal ids would give equal samples");
  }
  if (!request.params.stop.empty() && options_.tokenizer == nullptr) {
    return InvalidArgument("stop texts need a tokenizer, and this rollout has loaded none");
  }
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  // max_tokens is unchecked client input: adding to it could overflow.
  if (prompt > options_.max_model_len ||
      request.params.max_tokens > options_.max_model_len - prompt) {
    return MakeStatus(absl::StatusCode::kResourceExhausted,
                      "a prompt of {} tokens and max_tokens={} exceed rollout.max_model_len={}",
                      prompt, request.params.max_tokens, options_.max_model_len);
  }
  if (queued_samples_ + static_cast<int64_t>(distinct.size()) > kMaxQueuedSamples) {
    return MakeStatus(absl::StatusCode::kResourceExhausted,
                      "{} samples are queued already; send more when some have finished",
                      queued_samples_);
  }
  return CheckContinued(request);
}

absl::Status Generator::CheckContinued(const GenerationRequest& request) const {
  if (request.continued.empty()) return absl::OkStatus();
  if (request.continued.size() != request.sample_ids.size()) {
    return InvalidArgument("{} samples were sent with {} continuations: send one for each, or none",
                           request.sample_ids.size(), request.continued.size());
  }
  const ContinuationRules rules = {.vocab_limit = options_.vocab_limit,
                                   .max_tokens = request.params.max_tokens,
                                   .version = request.version,
                                   .log_probs = LogProbsFor(request)};
  for (size_t i = 0; i < request.continued.size(); ++i) {
    TANDEM_RETURN_IF_ERROR(Annotate(CheckContinuation(request.continued[i], rules),
                                    fmt::format("sample {}", request.sample_ids[i])));
  }
  return absl::OkStatus();
}

absl::StatusOr<Generator::Response> Generator::MakeResponse(const GenerationRequest& request,
                                                            size_t index) const {
  const auto prompt_tokens = static_cast<int64_t>(request.prompt.size());
  Response response{
      StopCondition(request.params, options_.eos_token_ids, prompt_tokens, options_.max_model_len),
      std::nullopt};
  const bool text = response.stop.needs_text() || request.stream_tokens;
  if (text && options_.tokenizer != nullptr) response.decoder.emplace(*options_.tokenizer, true);
  if (request.continued.empty()) return response;
  const Continuation& continuation = request.continued[index];
  for (size_t i = 0; i < continuation.tokens.size(); ++i) {
    const int32_t token = continuation.tokens[i];
    const std::string piece = response.decoder ? response.decoder->Push(token) : "";
    if (response.stop.OnToken(token, piece) == FinishReason::kNone) continue;
    return InvalidArgument(
        "sample {}: the response already ended at token {} of the continuation, id {}; leave this "
        "sample out",
        request.sample_ids[index], i, token);
  }
  response.stop.CutAfter(continuation.max_new_tokens);
  return response;
}

absl::Status Generator::Submit(GenerationRequest request, std::shared_ptr<GenerationSink> sink) {
  const std::string name = fmt::format("request {}", request.request_id);
  TANDEM_RETURN_IF_ERROR(Annotate(Check(request), name));
  auto entry = std::make_unique<Request>();
  for (size_t i = 0; i < request.sample_ids.size(); ++i) {
    absl::StatusOr<Response> response = MakeResponse(request, i);
    TANDEM_RETURN_IF_ERROR(Annotate(response.status(), name));
    entry->responses.push_back(*std::move(response));
  }
  entry->group =
      MakeSequenceGroup(request.prompt, request.sample_ids, request.params, request.continued);
  entry->group->arrival = next_arrival_++;
  entry->group->request_id = request.request_id;
  entry->group->group = request.group;
  entry->sink = std::move(sink);
  entry->stream_tokens = request.stream_tokens;
  entry->log_probs = LogProbsFor(request);
  entry->unfinished = static_cast<int64_t>(request.sample_ids.size());
  queued_samples_ += entry->unfinished;
  scheduler_.Add(entry->group.get());
  requests_.emplace(entry->group->arrival, std::move(entry));
  return absl::OkStatus();
}

absl::Status Generator::Step(const std::byte* weights, int64_t version) {
  DropCancelled();
  const StepPlan& plan = scheduler_.Schedule();
  // The plan may be empty: the only running sequence released its blocks to an older one that
  // waits.
  if (plan.spans.empty()) return absl::OkStatus();
  NotePeaks(version);
  runner_->Start(plan, weights, *kv_);
  scheduler_.Advance(plan);  // runs while the device computes, as it needs no sampled token
  TANDEM_RETURN_IF_ERROR(runner_->Finish());
  for (const DrawnToken& token : runner_->drawn()) Commit(token, version);
  return absl::OkStatus();
}

void Generator::NotePeaks(int64_t version) {
  if (peaks_.peak_version != version) peaks_ = {.peak_version = version};
  peaks_.peak_waiting = std::max(peaks_.peak_waiting, scheduler_.waiting());
  peaks_.peak_kv_blocks_used =
      std::max(peaks_.peak_kv_blocks_used, scheduler_.blocks().used_blocks());
}

void Generator::Commit(const DrawnToken& drawn, int64_t version) {
  Sequence& sequence = *drawn.sequence;
  const auto at = requests_.find(sequence.group->arrival);
  Request& request = *at->second;
  Response& response = request.responses[static_cast<size_t>(sequence.index)];
  sequence.tokens.push_back(drawn.drawn.token);
  std::optional<float> log_prob;
  if (request.log_probs) {
    log_prob = drawn.drawn.log_prob;
    sequence.log_probs.push_back(*log_prob);
  }
  sequence.versions.push_back(version);
  ++generated_tokens_;
  std::string text = response.decoder ? response.decoder->Push(drawn.drawn.token) : "";
  sequence.finish_reason = response.stop.OnToken(drawn.drawn.token, text);
  const bool finished = sequence.finish_reason != FinishReason::kNone;
  if (request.stream_tokens) {
    // If a round ends in the middle of a multi-byte character, the next round sends the complete
    // character.
    const bool over = finished && sequence.finish_reason != FinishReason::kCut;
    if (over && response.decoder) text += response.decoder->Finish();
    request.sink->OnTokens({sequence.index, drawn.drawn.token, log_prob, version, std::move(text)});
  }
  if (!finished) return;
  Deliver(request, sequence);
  if (request.unfinished == 0) End(at, absl::OkStatus());
}

void Generator::Deliver(Request& request, Sequence& sequence) {
  scheduler_.Finish(&sequence);
  --request.unfinished;
  --queued_samples_;
  request.sink->OnFinished(MakeSample(sequence));
}

std::map<int64_t, std::unique_ptr<Generator::Request>>::iterator Generator::End(
    std::map<int64_t, std::unique_ptr<Request>>::iterator request, const absl::Status& status) {
  scheduler_.Remove(request->second->group.get());
  queued_samples_ -= request->second->unfinished;
  request->second->sink->OnEnd(status);
  return requests_.erase(request);
}

void Generator::DropCancelled() {
  for (auto it = requests_.begin(); it != requests_.end();) {
    it = it->second->sink->cancelled() ? End(it, absl::CancelledError("the caller went away"))
                                       : std::next(it);
  }
}

int64_t Generator::Abort(const std::vector<std::string>& request_ids) {
  const std::set<std::string> ids(request_ids.begin(), request_ids.end());
  int64_t aborted = 0;
  for (auto it = requests_.begin(); it != requests_.end();) {
    Request& request = *it->second;
    if (!ids.empty() && ids.count(request.group->request_id) == 0) {
      ++it;
      continue;
    }
    for (const auto& sequence : request.group->sequences) {
      if (sequence->state == SequenceState::kFinished) continue;
      sequence->finish_reason = FinishReason::kAborted;
      Deliver(request, *sequence);
    }
    it = End(it, absl::OkStatus());
    ++aborted;
  }
  return aborted;
}

void Generator::SignalAlive() {
  for (const auto& [arrival, request] : requests_) request->sink->OnAlive();
}

void Generator::Fail(const absl::Status& status) {
  for (auto it = requests_.begin(); it != requests_.end();) it = End(it, status);
}

GeneratorLoad Generator::load() const {
  return {.running = scheduler_.running(),
          .waiting = scheduler_.waiting(),
          .kv_blocks = scheduler_.blocks().num_blocks(),
          .kv_blocks_used = scheduler_.blocks().used_blocks(),
          .preemptions = scheduler_.preemptions(),
          .generated_tokens = generated_tokens_,
          .prefill_tokens = scheduler_.prefill_tokens(),
          .prefix_hit_tokens = scheduler_.prefix_hit_tokens(),
          .peak_version = peaks_.peak_version,
          .peak_waiting = peaks_.peak_waiting,
          .peak_kv_blocks_used = peaks_.peak_kv_blocks_used};
}

}  // namespace tandem
