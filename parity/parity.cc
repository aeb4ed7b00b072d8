#include "parity/parity.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "common/base/status.h"
#include "common/process/threads.h"
#include "common/text/tokenizer.h"
#include "parity/report.h"

namespace tandem {
namespace {

// Runs a side again with a listener; the result is the same as in the first run.
using Rerun = std::function<absl::StatusOr<SideRun>(OpListener*)>;

bool SameBits(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }

// Prompts of different lengths, shorter and longer than one KV block.
std::string PromptText(int64_t i) {
  std::string text;
  for (int64_t part = 0; part <= i % 4; ++part) {
    text += fmt::format("Question {}: a train leaves at {}:{:02} and goes {} km at {} km/h. ",
                        i + part, 5 + i % 17, (i * 7) % 60, 40 + (i * 13) % 300, 50 + i % 90);
  }
  return text + "When does it arrive?";
}

struct Workload {
  SideOptions side;
  std::vector<GenerationRequest> requests;
  std::vector<Sample> samples;  // set after decoding
  ParityReport report;
};

absl::Status CheckOptions(const ParityOptions& options) {
  if (options.tokens < 1 || options.response_tokens < 2 || options.samples_per_prompt < 1 ||
      options.max_num_seqs < 1 || options.max_num_batched_tokens < 1 || options.threads < 1) {
    return InvalidArgument(
        "tokens, samples, sequences, batched tokens and threads are at least 1, response tokens at "
        "least 2");
  }
  if (!(options.temperature > 0)) {
    return InvalidArgument("temperature {} is not above 0", options.temperature);
  }
  return absl::OkStatus();
}

// Prompts for at least options.tokens response tokens; also sets `side->vocab_limit`.
absl::StatusOr<std::vector<std::vector<int32_t>>> MakePrompts(const ParityOptions& options,
                                                              SideOptions* side) {
  side->vocab_limit = side->spec.vocab_size;
  if (!options.prompts.empty()) return options.prompts;
  TANDEM_ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::Load(options.model_dir));
  side->vocab_limit = std::min(tokenizer->vocab_size(), side->vocab_limit);
  const int64_t per_prompt = options.response_tokens * options.samples_per_prompt;
  std::vector<std::vector<int32_t>> prompts;
  for (int64_t i = 0; i * per_prompt < options.tokens; ++i) {
    TANDEM_ASSIGN_OR_RETURN(auto ids, tokenizer->Encode(PromptText(i), false));
    prompts.push_back(std::move(ids));
  }
  return prompts;
}

absl::Status MakeRequests(const ParityOptions& options, Workload* work) {
  SideOptions& side = work->side;
  TANDEM_ASSIGN_OR_RETURN(const auto prompts, MakePrompts(options, &side));
  for (const std::vector<int32_t>& prompt : prompts) {
    GenerationRequest request;
    const auto row = static_cast<uint64_t>(work->requests.size());
    request.request_id = fmt::format("prompt-{}", row);
    request.group = static_cast<int64_t>(row);
    request.prompt = prompt;
    for (int64_t n = 0; n < options.samples_per_prompt; ++n) {
      request.sample_ids.push_back(MakeSampleId(row, 0, static_cast<uint64_t>(n)));
    }
    request.params.max_tokens = options.response_tokens;
    request.params.ignore_eos = true;
    request.params.seed = options.seed;
    request.params.temperature = options.temperature;
    side.max_model_len = std::max(side.max_model_len, std::ssize(prompt) + options.response_tokens);
    work->requests.push_back(std::move(request));
  }
  work->report.prompts = std::ssize(work->requests);
  work->report.samples = work->report.prompts * options.samples_per_prompt;
  if (side.max_model_len > side.spec.max_position) {
    return InvalidArgument(
        "samples of {} tokens are longer than the {} positions of the model; ask for shorter "
        "responses",
        side.max_model_len, side.spec.max_position);
  }
  return absl::OkStatus();
}

absl::StatusOr<Workload> MakeWorkload(const ParityOptions& options) {
  TANDEM_RETURN_IF_ERROR(CheckOptions(options));
  Workload work;
  work.side.model_dir = options.model_dir;
  TANDEM_ASSIGN_OR_RETURN(work.side.spec, LoadModelSpec(options.model_dir));
  work.side.max_num_seqs = options.max_num_seqs;
  work.side.max_num_batched_tokens = options.max_num_batched_tokens;
  work.side.pool = std::make_shared<ThreadPool>(options.threads);
  const MakeOps make = [pool = work.side.pool] {
    return CreateCpuForwardOps(DType::kBFloat16, pool);
  };
  work.side.rollout_ops = options.rollout_ops ? options.rollout_ops : make;
  work.side.trainer_ops = options.trainer_ops ? options.trainer_ops : make;
  TANDEM_ASSIGN_OR_RETURN(const auto ops, make());
  work.report.numerics_class = ops->numerics_class();
  work.report.kernel_set = ops->kernel_set();
  TANDEM_RETURN_IF_ERROR(MakeRequests(options, &work));
  return work;
}

// Requires that every op of the forward ran, and the head's op on at least as many rows as tokens
// were compared.
void CheckCounts(const SideRun& side, ForwardOp head, int64_t tokens, ParityReport& report) {
  for (const ForwardOp op :
       {ForwardOp::kEmbed, ForwardOp::kRmsNorm, ForwardOp::kLinear, ForwardOp::kAdd,
        ForwardOp::kRopeAndStore, ForwardOp::kAttention, ForwardOp::kSiluMul, head}) {
    const int64_t wanted = op == head ? tokens : 1;
    if (side.counts.at(op).rows >= wanted) continue;
    report.missing_ops.push_back(fmt::format("{}: {} ran on {} rows, at least {} were expected",
                                             side.name, ForwardOpName(op), side.counts.at(op).rows,
                                             wanted));
  }
}

struct Comparison {
  SideComparison summary;
  const Sample* first_sample = nullptr;  // first sample with a difference
  int64_t first_response = 0;
};

Comparison Compare(const std::vector<Sample>& samples, const SideRun& a, const SideRun& b) {
  Comparison result{.summary = {.first = a.name, .second = b.name}};
  SideComparison& summary = result.summary;
  double sum = 0;
  for (const Sample& sample : samples) {
    const std::vector<float>& of_a = a.log_probs.at(sample.sample_id);
    const std::vector<float>& of_b = b.log_probs.at(sample.sample_id);
    for (size_t i = 0; i < of_a.size(); ++i) {
      ++summary.compared;
      if (SameBits(of_a[i], of_b[i])) {
        ++summary.identical;
        continue;
      }
      const double difference = std::abs(static_cast<double>(of_a[i]) - of_b[i]);
      // A NaN counts as the largest: nothing that follows replaces it.
      if (std::isnan(difference) || difference > summary.max_abs_difference) {
        summary.max_abs_difference = difference;
      }
      sum += difference;
      if (result.first_sample != nullptr) continue;
      result.first_sample = &sample;
      result.first_response = static_cast<int64_t>(i);
    }
  }
  summary.mean_abs_difference = sum / static_cast<double>(std::max<int64_t>(summary.compared, 1));
  return result;
}

std::string Bf16Text(const std::string& bytes, int64_t element) {
  Bf16 value = 0;
  std::memcpy(&value, bytes.data() + element * 2, 2);
  return fmt::format("0x{:04x} ({:.9g})", value, FromBf16(value));
}

std::string FloatText(float value) {
  return fmt::format("0x{:08x} ({:.9g})", std::bit_cast<uint32_t>(value), value);
}

// Finds the first element of the row at `place` that differs, and its values on both sides.
absl::Status FillElement(const SampleRows& rows,
                         const RowTrace::Place& place,
                         const Rerun& first,
                         const Rerun& second,
                         FirstDifference* divergence) {
  RowCapture a(rows, place), b(rows, place);
  TANDEM_RETURN_IF_ERROR(first(&a).status());
  TANDEM_RETURN_IF_ERROR(second(&b).status());
  divergence->elements = std::ssize(a.bytes()) / 2;
  for (int64_t i = 0; i < divergence->elements; ++i) {
    if (a.bytes().compare(static_cast<size_t>(2 * i), 2, b.bytes(), static_cast<size_t>(2 * i),
                          2) == 0) {
      continue;
    }
    divergence->element = i;
    divergence->first_value = Bf16Text(a.bytes(), i);
    divergence->second_value = Bf16Text(b.bytes(), i);
    return absl::OkStatus();
  }
  divergence->note = "the rows differed once and were equal when they were computed again";
  return absl::OkStatus();
}

struct Pair {
  const SideRun& first;
  const SideRun& second;
  Rerun rerun_first, rerun_second;
};

std::string Contradiction(const std::string& side, const RowTrace& trace) {
  if (!trace.contradiction()) return "";
  const RowTrace::Place& place = *trace.contradiction();
  return fmt::format("{} itself computed {} of layer {} at position {} twice, with two results. ",
                     side, place.label.name, place.label.layer, place.position);
}

// Runs both sides again and compares their ops on the first sample that differs.
absl::StatusOr<FirstDifference> FindFirstDifference(const Workload& work,
                                                    const Pair& pair,
                                                    const Comparison& comparison) {
  const Sample& sample = *comparison.first_sample;
  FirstDifference found{.first = pair.first.name,
                        .second = pair.second.name,
                        .sample_id = sample.sample_id,
                        .prompt_tokens = sample.prompt_tokens};
  SampleRows rows{.sample_id = sample.sample_id, .prompt_tokens = sample.prompt_tokens};
  for (const Sample& other : work.samples) {
    if (other.group == sample.group) rows.group.insert(other.sample_id);
  }
  RowTrace a(rows), b(rows);
  TANDEM_ASSIGN_OR_RETURN(const SideRun again_a, pair.rerun_first(&a));
  TANDEM_ASSIGN_OR_RETURN(const SideRun again_b, pair.rerun_second(&b));
  found.note = Contradiction(found.first, a) + Contradiction(found.second, b);
  if (const auto place = a.FirstDifference(b)) {
    found.op = place->label.name;
    found.layer = place->label.layer;
    found.position = place->position;
    TANDEM_RETURN_IF_ERROR(FillElement(rows, *place, pair.rerun_first, pair.rerun_second, &found));
    return found;
  }
  const auto response = static_cast<size_t>(comparison.first_response);
  const float log_prob_a = again_a.log_probs.at(sample.sample_id)[response];
  const float log_prob_b = again_b.log_probs.at(sample.sample_id)[response];
  found.op = "log-prob";
  found.position = sample.prompt_tokens + comparison.first_response - 1;
  found.first_value = FloatText(log_prob_a);
  found.second_value = FloatText(log_prob_b);
  if (SameBits(log_prob_a, log_prob_b)) {
    found.note += "the log-probs differed once and were equal when they were computed again";
  }
  return found;
}

}  // namespace

bool ParityReport::ok() const {
  return missing_ops.empty() && !divergence &&
         std::all_of(comparisons.begin(), comparisons.end(),
                     [](const SideComparison& c) { return c.identical == c.compared; });
}

absl::StatusOr<ParityReport> RunParity(const ParityOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(Workload work, MakeWorkload(options));
  ParityReport& report = work.report;
  const SideOptions& side = work.side;
  const Rerun decode = [&](OpListener* listener) {
    std::vector<Sample> again;
    return RunDecode(side, work.requests, listener, &again);
  };
  const Rerun prefill = [&](OpListener* listener) {
    return RunPrefill(side, work.samples, options.seed, listener);
  };
  const Rerun train = [&](OpListener* listener) {
    return RunTrainer(side, work.samples, listener);
  };
  TANDEM_ASSIGN_OR_RETURN(const SideRun decoded,
                          RunDecode(side, work.requests, nullptr, &work.samples));
  TANDEM_ASSIGN_OR_RETURN(const SideRun trained, train(nullptr));
  TANDEM_ASSIGN_OR_RETURN(const SideRun prefilled, prefill(nullptr));
  for (const Pair& pair :
       {Pair{decoded, trained, decode, train}, Pair{decoded, prefilled, decode, prefill}}) {
    const Comparison comparison = Compare(work.samples, pair.first, pair.second);
    report.comparisons.push_back(comparison.summary);
    if (comparison.first_sample == nullptr || report.divergence) continue;
    TANDEM_ASSIGN_OR_RETURN(report.divergence, FindFirstDifference(work, pair, comparison));
  }
  const int64_t tokens = report.comparisons.front().compared;
  CheckCounts(decoded, ForwardOp::kSample, tokens, report);
  CheckCounts(prefilled, ForwardOp::kTokenLogProbs, tokens, report);
  CheckCounts(trained, ForwardOp::kTokenLogProbs, tokens, report);
  for (const SideRun* run : {&decoded, &prefilled, &trained}) {
    report.sides.push_back({.name = run->name, .counts = run->counts, .seconds = run->seconds});
  }
  return report;
}

}  // namespace tandem
