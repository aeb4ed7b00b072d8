// Seconds of forward, backward and AdamW of a trainer on a real model directory, without gRPC, and
// the process's peak memory: tandem-train-bench MODEL_DIR --sequences 64 --tokens 64
// With --ranks 2 as many processes share the model, each with its own sequences; rank 0 prints.
#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/status.h"
#include "common/device/device_memory.h"
#include "common/process/cores.h"
#include "trainer_worker/losses/policy_loss.h"
#include "trainer_worker/trainer.h"

namespace tandem {
namespace {

struct Options {
  std::string model_dir;
  int threads = 2;
  int64_t sequences = 64;
  int64_t tokens = 64;
  int64_t prompt = 1;
  bool share_prompts = false;
  int runs = 4;
  std::string recompute = "both";
  int ranks = 1;
  bool reshard = false;   // several ranks: drop layers after forward
  bool prefetch = false;  // and gather the next while one computes
  int rank = 0;           // of this process
  std::string rendezvous;
};

class FixedSamples final : public SampleStream {
 public:
  explicit FixedSamples(std::vector<Sample> samples) : samples_(std::move(samples)) {}
  absl::StatusOr<std::vector<Sample>> Pull(int64_t, int64_t) override { return samples_; }
  absl::StatusOr<std::vector<Sample>> PullProbe(int64_t) override { return samples_; }
  absl::Status PutLogProbs(int64_t, const std::string&, const LogProbsBySample&) override {
    return absl::OkStatus();
  }

 private:
  std::vector<Sample> samples_;
};

// Different tokens everywhere; with a prompt of one token all but that one are trained, as in a
// language model's loss.
std::vector<Sample> MakeSamples(const Options& options) {
  std::vector<Sample> samples;
  for (int64_t s = 0; s < options.sequences; ++s) {
    Sample sample;
    sample.sample_id = MakeSampleId(static_cast<uint64_t>(s), 0, 0);
    sample.group = options.share_prompts ? s / 8 : s;
    sample.prompt_tokens = options.prompt;
    for (int64_t i = 0; i < options.tokens; ++i) {
      const int64_t stream = i < options.prompt ? sample.group : s;
      sample.tokens.push_back(static_cast<int32_t>((i * 7919 + stream * 613) % 40000 + 100));
    }
    const auto trained = static_cast<size_t>(sample.response_tokens());
    sample.log_probs.assign(trained, -10.0f);
    sample.versions.assign(trained, 0);
    sample.advantages.assign(trained, s % 2 == 0 ? 1.0f : -1.0f);
    sample.segments = {{0, options.prompt, false, 0},
                       {options.prompt, sample.response_tokens(), true, 0}};
    samples.push_back(std::move(sample));
  }
  return samples;
}

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int64_t PeakMib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss / 1024;
}

absl::Status RunOne(const Options& options, const std::vector<int>& cores, Recompute recompute) {
  FixedSamples samples(MakeSamples(options));
  TrainerOptions trainer_options;
  SessionOptions& session = trainer_options.session;
  session.model_dir = options.model_dir;
  session.vocab_limit = INT64_MAX;
  session.max_sequence_tokens = options.tokens;
  session.max_micro_batch_tokens = options.sequences * options.tokens;
  session.share_prompts = options.share_prompts;
  session.recompute = recompute;
  session.reshard = options.reshard ? Reshard::kAlways : Reshard::kNever;
  session.prefetch = options.prefetch;
  session.device_bytes = session.kept_bytes = CpuDeviceMemoryBytes(1);
  session.entropy = false;
  session.optimizer.schedule.lr = 1e-6;
  session.optimizer.schedule.total_steps = options.runs;
  trainer_options.rank = options.rank;
  trainer_options.threads = options.threads;
  trainer_options.cores = cores;
  TANDEM_ASSIGN_OR_RETURN(const auto trainer,
                          Trainer::Create(trainer_options, &samples,
                                          [](const RolloutTarget&) -> absl::StatusOr<RolloutLink> {
                                            return FailedPrecondition("there is no rollout here");
                                          }));
  const ResetCommand reset{.generation = recompute == Recompute::kAlways ? 1 : 2,
                           .world_size = options.ranks,
                           .rendezvous = options.rendezvous};
  TANDEM_RETURN_IF_ERROR(trainer->Reset(reset).status());
  const int64_t sequences = options.ranks * options.sequences;
  const auto trained = static_cast<double>(sequences * (options.tokens - options.prompt));
  for (int run = 0; run < options.runs; ++run) {
    ForwardBackwardCommand command{
        .step = run, .version = run, .global_tokens = trained, .global_samples = sequences};
    const auto start = std::chrono::steady_clock::now();
    TANDEM_ASSIGN_OR_RETURN(const ForwardBackwardResult result, trainer->ForwardBackward(command));
    const double both = SecondsSince(start);
    TANDEM_RETURN_IF_ERROR(trainer->OptimizerStep(run + 1).status());
    const double total = SecondsSince(start);
    if (options.rank != 0) continue;
    fmt::print(
        "{}: forward_s {:.3f} backward_s {:.3f} optimizer_s {:.3f} total_s {:.3f} rows {} "
        "peak_rss_mib {}\n",
        recompute == Recompute::kAlways ? "recompute" : "keep", result.batch.forward_seconds,
        both - result.batch.forward_seconds, total - both, total, result.batch.tokens, PeakMib());
  }
  return absl::OkStatus();
}

absl::Status RunAll(const Options& options) {
  UseOneTorchThread();
  const std::vector<int> cores = ComputeCores(options.rank, options.ranks, options.threads);
  if (!cores.empty()) PinThisThread(cores.front());
  if (options.rank == 0) {
    fmt::print("{} threads {}, {} sequences of {} tokens, {} of them prompt{}\n", options.threads,
               PinningText(cores), options.sequences, options.tokens, options.prompt,
               options.share_prompts ? ", shared by groups of 8" : "");
  }
  if (options.rank == 0 && options.ranks > 1) {
    fmt::print("each of {} ranks; layers are {}, the next is {}\n", options.ranks,
               options.reshard ? "dropped after forward" : "kept for backward",
               options.prefetch ? "gathered ahead" : "gathered when its turn comes");
  }
  // Recompute first: the process's peak only grows.
  if (options.recompute != "keep") {
    TANDEM_RETURN_IF_ERROR(RunOne(options, cores, Recompute::kAlways));
  }
  if (options.recompute == "recompute") return absl::OkStatus();
  return RunOne(options, cores, Recompute::kNever);
}

int Report(const absl::Status& status) {
  if (!status.ok()) fmt::print(stderr, "error: {}\n", std::string(status.message()));
  return status.ok() ? 0 : 1;
}

// Runs every rank in a separate process, forked before any thread starts.
int RunRanks(Options options) {
  options.rendezvous = fmt::format("/tmp/tandem-train-bench-{}.sock", getpid());
  std::vector<pid_t> others;
  for (int rank = 1; rank < options.ranks; ++rank) {
    options.rank = rank;
    const pid_t child = fork();
    if (child == 0) _exit(Report(RunAll(options)));
    others.push_back(child);
  }
  options.rank = 0;
  int code = Report(RunAll(options));
  for (const pid_t child : others) {
    int status = 1;
    waitpid(child, &status, 0);
    code = status == 0 ? code : 1;
  }
  return code;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  tandem::Options options;
  CLI::App app("Measures a trainer's step.");
  app.add_option("model_dir", options.model_dir, "Hugging Face model directory")->required();
  app.add_option("--threads", options.threads)->capture_default_str();
  app.add_option("--sequences", options.sequences)->capture_default_str();
  app.add_option("--tokens", options.tokens, "of each sequence")->capture_default_str();
  app.add_option("--prompt", options.prompt, "of them not trained")->capture_default_str();
  app.add_flag("--share-prompts", options.share_prompts, "groups of 8 have one prompt");
  app.add_option("--runs", options.runs, "steps")->capture_default_str();
  app.add_option("--recompute", options.recompute, "keep, recompute or both")
      ->check(CLI::IsMember({"keep", "recompute", "both"}))
      ->capture_default_str();
  app.add_option("--ranks", options.ranks, "processes with a shard each")->capture_default_str();
  app.add_flag("--reshard", options.reshard, "several ranks gather layers again in backward");
  app.add_flag("--prefetch", options.prefetch, "and the next layer while one computes");
  CLI11_PARSE(app, argc, argv);
  return tandem::RunRanks(options);
}
