#include "tests/gpu/model_bench/decode_bench.h"

#include <algorithm>
#include <cstdio>

#include "common/base/status.h"
#include "tests/gpu/model_bench/bench_rollout.h"
#include "tests/gpu/model_bench/stopwatch.h"

namespace tandem::testing {
namespace {

constexpr int64_t kCopyBytes = int64_t{1} << 30;
constexpr int64_t kTinyCopyBytes = int64_t{1} << 20;
constexpr int64_t kGreedyTokens = 8;

struct DecodeTimes {
  double seconds = 0;  // of a step
  double bytes = 0;    // that it has to read
};

// Steps that take the prompts in; a share of each goes to sequences that decode already.
int64_t PromptSteps(const BenchModel& model, int64_t sequences) {
  return 8 + 2 * (sequences * model.prompt / model.step_tokens);
}

// Tokens that a sequence may have to generate before all is measured.
int64_t MostResponse(const BenchModel& model, int64_t sequences) {
  return PromptSteps(model, sequences) + model.warm_steps + model.timed_steps;
}

absl::Status StepUntilPrompted(DecodeRollout& rollout, Generator& generator, int64_t tokens) {
  while (generator.load().prefill_tokens < tokens) {
    if (!generator.has_work()) return Internal("a sequence ended before all prompts were computed");
    TANDEM_RETURN_IF_ERROR(rollout.Step(generator));
  }
  return absl::OkStatus();
}

absl::StatusOr<DecodeTimes> TimeDecode(const BenchModel& model,
                                       DecodeRollout& rollout,
                                       int64_t sequences) {
  const auto generator = rollout.MakeGenerator(sequences);
  TANDEM_ASSIGN_OR_RETURN(
      const auto sink, rollout.Submit(*generator, sequences, MostResponse(model, sequences), 1.0f));
  const int64_t prompts = sequences * model.prompt;
  TANDEM_RETURN_IF_ERROR(StepUntilPrompted(rollout, *generator, prompts));
  for (int64_t step = 0; step < model.warm_steps; ++step) {
    TANDEM_RETURN_IF_ERROR(rollout.Step(*generator));
  }
  const int64_t begin = generator->load().generated_tokens;
  DecodeTimes times;
  const Stopwatch watch;
  for (int64_t step = 0; step < model.timed_steps; ++step) {
    const int64_t positions = prompts + generator->load().generated_tokens;
    times.bytes += static_cast<double>(DecodeStepBytes(model.spec, positions));
    TANDEM_RETURN_IF_ERROR(rollout.Step(*generator));
  }
  const auto steps = static_cast<double>(model.timed_steps);
  times.seconds = watch.Seconds() / steps;
  times.bytes /= steps;
  if (generator->load().generated_tokens - begin != sequences * model.timed_steps) {
    return Internal("{}: not every step gave {} tokens", model.name, sequences);
  }
  generator->Abort({});
  for (const size_t index : {size_t{0}, sink->samples.size() - 1}) {
    TANDEM_RETURN_IF_ERROR(rollout.Check(sink->samples[index], false));
  }
  return times;
}

absl::Status CheckGreedy(DecodeRollout& rollout) {
  const auto generator = rollout.MakeGenerator(1);
  TANDEM_ASSIGN_OR_RETURN(const auto sink, rollout.Submit(*generator, 1, kGreedyTokens, 0.0f));
  while (generator->has_work()) TANDEM_RETURN_IF_ERROR(rollout.Step(*generator));
  TANDEM_RETURN_IF_ERROR(sink->end);
  return rollout.Check(sink->samples.at(0), true);
}

// Of the batches that fit, the largest; the others are not run.
DecodeRollout::Shape LargestShape(const BenchGpu& gpu, const BenchModel& model, Figures& figures) {
  DecodeRollout::Shape largest{.sequences = 0};
  for (const int64_t batch : model.batches) {
    const DecodeRollout::Shape shape{batch, model.prompt + MostResponse(model, batch)};
    const std::string name = fmt::format("decode_{}_{}", model.name, batch);
    const absl::Status fits = CheckFits(gpu, fmt::format("{} with batch {}", model.name, batch),
                                        DecodeRollout::Bytes(model, shape));
    if (fits.ok()) {
      largest = shape;
      continue;
    }
    for (const char* figure : {"tokens", "percent", "nominal_percent"}) {
      figures.NotRun(fmt::format("{}_{}", name, figure), std::string(fits.message()));
    }
  }
  return largest;
}

void AddFigures(const BenchGpu& gpu,
                const BenchModel& model,
                int64_t batch,
                double bandwidth,
                const DecodeTimes& times,
                Figures& figures) {
  const std::string name = fmt::format("decode_{}_{}", model.name, batch);
  figures.Add(name + "_tokens", static_cast<double>(batch) / times.seconds, "tokens/s");
  figures.Add(name + "_percent", 100 * times.bytes / bandwidth / times.seconds, "%");
  if (gpu.peaks.bytes_per_second == 0) {
    figures.NotRun(name + "_nominal_percent", gpu.peaks.source);
    return;
  }
  figures.Add(name + "_nominal_percent",
              100 * times.bytes / gpu.peaks.bytes_per_second / times.seconds, "%");
}

}  // namespace

absl::Status BenchDecode(const BenchGpu& gpu, const BenchModel& model, Figures& figures) {
  const DecodeRollout::Shape shape = LargestShape(gpu, model, figures);
  if (shape.sequences == 0) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(
      const double bandwidth,
      CopyBandwidth(gpu.device(), model.name == "tiny" ? kTinyCopyBytes : kCopyBytes));
  TANDEM_ASSIGN_OR_RETURN(const auto rollout, DecodeRollout::Create(gpu, model, shape));
  std::printf(
      "decode of %s: prompts of %lld tokens, %lld steps after %lld that warm up\n"
      "roofline: every weight that a token passes, once, and the keys and values of all positions, "
      "at %.0f GB/s (a copy's bytes, read and written)\n",
      model.name.c_str(), static_cast<long long>(model.prompt),
      static_cast<long long>(model.timed_steps), static_cast<long long>(model.warm_steps),
      bandwidth * 1e-9);
  for (const int64_t batch : model.batches) {
    if (batch > shape.sequences) continue;
    TANDEM_ASSIGN_OR_RETURN(const DecodeTimes times, TimeDecode(model, *rollout, batch));
    std::printf("batch %lld: %.3f ms a step, which has to read %.2f GB\n",
                static_cast<long long>(batch), times.seconds * 1e3, times.bytes * 1e-9);
    AddFigures(gpu, model, batch, bandwidth, times, figures);
  }
  TANDEM_RETURN_IF_ERROR(CheckGreedy(*rollout));
  std::printf(
      "samples of every batch have the log-probs of one forward over them, bit for bit, and "
      "greedy tokens are its\n");
  return absl::OkStatus();
}

absl::Status BenchPrefill(const BenchGpu& gpu, const BenchModel& model, Figures& figures) {
  const std::string name = fmt::format("prefill_{}", model.name);
  const auto rollout = DecodeRollout::Create(
      gpu, model, {.sequences = model.prefill_prompts, .sequence_tokens = model.prompt + 1});
  if (absl::IsUnavailable(rollout.status())) {
    figures.NotRun(name + "_tokens", std::string(rollout.status().message()));
    figures.NotRun(name + "_percent", std::string(rollout.status().message()));
    return absl::OkStatus();
  }
  TANDEM_RETURN_IF_ERROR(rollout.status());
  const int64_t tokens = model.prefill_prompts * model.prompt;
  const ForwardWork work{.rows = tokens,
                         .scored = model.prefill_prompts,
                         .pairs = model.prefill_prompts * CausalPairs(model.prompt)};
  std::printf(
      "prefill of %s: %lld prompts of %lld tokens, in chunks of %lld, after as many that "
      "warm up\nMFU: FLOPs of the products and of attention's pairs, of the nominal peak\n",
      model.name.c_str(), static_cast<long long>(model.prefill_prompts),
      static_cast<long long>(model.prompt), static_cast<long long>(model.step_tokens));
  double seconds = 0;
  for (int pass = 0; pass < 2; ++pass) {
    const auto generator = (*rollout)->MakeGenerator(model.prefill_prompts);
    TANDEM_ASSIGN_OR_RETURN(const auto sink,
                            (*rollout)->Submit(*generator, model.prefill_prompts, 1, 1.0f));
    const Stopwatch watch;
    while (generator->has_work()) TANDEM_RETURN_IF_ERROR((*rollout)->Step(*generator));
    seconds = watch.Seconds();
    TANDEM_RETURN_IF_ERROR(sink->end);
    TANDEM_RETURN_IF_ERROR((*rollout)->Check(sink->samples.at(0), false));
  }
  figures.Add(name + "_tokens", static_cast<double>(tokens) / seconds, "tokens/s");
  if (gpu.peaks.bf16_flops == 0) {
    figures.NotRun(name + "_percent", gpu.peaks.source);
  } else {
    figures.Add(name + "_percent",
                100 * ForwardFlops(model.spec, work) / seconds / gpu.peaks.bf16_flops, "%");
  }
  return absl::OkStatus();
}

}  // namespace tandem::testing
