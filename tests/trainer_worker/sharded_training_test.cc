// Training on several ranks against one, and settings that must not change any bit.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/text.h"
#include "tests/trainer_worker/trainer_ranks.h"

namespace tandem {
namespace {

using namespace tandem::testing;

// Sizes that neither 2 nor 3 divides, and norms with fewer rows than some chunks need.
TinyModelOptions OddModelOfType(const std::string& type) {
  TinyModelOptions options;
  options.model_type = type;
  options.vocab_size = 289;
  options.hidden_size = 50;
  options.num_heads = 5;
  options.num_kv_heads = 1;
  options.head_dim = 10;
  options.intermediate_size = 77;
  options.tie_word_embeddings = type == "llama";
  return options;
}

std::string WriteModel(const TempDir& dir, const TinyModelOptions& options) {
  const std::string path = (dir.path() / "model").string();
  REQUIRE(WriteTinyModel(path, options).ok());
  return path;
}

double LargestDifference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(a[i]) - b[i]));
  }
  return largest;
}

double Largest(const std::vector<float>& values) {
  return LargestDifference(values, std::vector<float>(values.size(), 0.0f));
}

void RequireNearRankGradients(TrainerRanks& one, TrainerRanks& many) {
  for (const std::string& name : one.TensorNames()) {
    INFO(name);
    const std::vector<float> want = one.Gradient(name);
    REQUIRE(Largest(want) > 0);
    REQUIRE(LargestDifference(want, many.Gradient(name)) <= 1e-5 * Largest(want));
  }
}

void RequireSameMasters(TrainerRanks& a, TrainerRanks& b) {
  for (const std::string& name : a.TensorNames()) {
    INFO(name);
    const bool same = a.Master(name) == b.Master(name);
    REQUIRE(same);
  }
}

TEST_CASE("Two and three ranks give one rank's gradients on the same batch", "[trainer][ranks]") {
  for (const std::string type : {"llama", "qwen2", "qwen3"}) {
    INFO(type);
    const TempDir dir;
    const TrainerRanksOptions options{.model_dir = WriteModel(dir, OddModelOfType(type))};
    const std::vector<Sample> samples = RandomSamples(7, 1);
    TrainerRanks one(1, options);
    TrainOn(one, samples);
    for (const int world : {2, 3}) {
      TrainerRanks many(world, options);
      TrainOn(many, samples);
      RequireNearRankGradients(one, many);
      many.RunOk([](Rank& rank, int) { return rank.session->Step().status(); });
    }
  }
}

TEST_CASE("The gradient norm of two ranks is one rank's within 1e-6", "[trainer][ranks]") {
  const TempDir dir;
  const TrainerRanksOptions options{.model_dir = WriteModel(dir, OddModelOfType("llama"))};
  const std::vector<Sample> samples = RandomSamples(6, 2);
  TrainerRanks one(1, options), two(2, options);
  TrainOn(one, samples);
  TrainOn(two, samples);
  const OptimizerReport want = StepOn(one), got = StepOn(two);
  REQUIRE(got.grad_norm == Approx(want.grad_norm).epsilon(1e-6).margin(0));
  REQUIRE_FALSE(got.skipped);
}

TEST_CASE("Fewer samples than ranks: ranks without samples join every collective",
          "[trainer][ranks]") {
  const TempDir dir;
  const TrainerRanksOptions options{.model_dir = WriteModel(dir, OddModelOfType("llama"))};
  const std::vector<Sample> samples = RandomSamples(1, 3);
  TrainerRanks one(1, options), three(3, options);
  TrainOn(one, samples);
  TrainOn(three, samples);
  RequireSameGradients(one, three);
  REQUIRE(StepOn(three).grad_norm == Approx(StepOn(one).grad_norm).epsilon(1e-6).margin(0));
}

TEST_CASE("Unequal numbers of micro-batches join every collective", "[trainer][ranks]") {
  const TempDir dir;
  TrainerRanksOptions options{.model_dir = WriteModel(dir, OddModelOfType("llama"))};
  options.max_micro_batch_tokens = 60;
  const std::vector<Sample> samples = RandomSamples(5, 4);
  TrainerRanks one(1, options), two(2, options);
  TrainOn(one, samples);
  two.RunOk([&](Rank& rank, int index) {
    // Rank 0 has four samples, rank 1 only the last.
    const std::vector<Sample> mine(index == 0 ? samples.begin() : samples.end() - 1,
                                   index == 0 ? samples.end() - 1 : samples.end());
    return rank.session->Train(RequestFor(samples), mine).status();
  });
  RequireNearRankGradients(one, two);
}

TEST_CASE("Recomputing layers changes no bit", "[trainer][recompute]") {
  const TempDir dir;
  TrainerRanksOptions options{.model_dir = WriteModel(dir, OddModelOfType("qwen3"))};
  const std::vector<Sample> samples = RandomSamples(5, 5);
  for (const int world : {1, 2}) {
    options.recompute = Recompute::kNever;
    TrainerRanks kept(world, options);
    options.recompute = Recompute::kAlways;
    TrainerRanks recomputed(world, options);
    TrainOn(kept, samples);
    TrainOn(recomputed, samples);
    RequireSameGradients(kept, recomputed);
  }
}

// Sums over the rows of a batch are blocked, so that a split shows in the last bits of gradients,
// no more than the number of ranks does.
TEST_CASE("The split into micro-batches changes gradients by no more than 1e-5 of the largest",
          "[trainer][packing]") {
  const TempDir dir;
  TrainerRanksOptions options{.model_dir = WriteModel(dir, OddModelOfType("llama"))};
  const std::vector<Sample> samples = RandomSamples(6, 6);
  TrainerRanks whole(1, options);
  options.max_micro_batch_tokens = 60;
  TrainerRanks split(1, options);
  TrainOn(whole, samples);
  TrainOn(split, samples);
  RequireNearRankGradients(whole, split);
}

// Groups of samples with common prompts of 3 to 80 tokens: within a KV block, on and over its edge.
std::vector<Sample> Groups(uint64_t seed) {
  std::vector<Sample> samples;
  for (const int64_t prompt : {int64_t{3}, int64_t{64}, int64_t{80}, int64_t{17}}) {
    std::vector<Sample> group = RandomSamples(prompt == 17 ? 1 : 4, seed + samples.size());
    const Sample& first = group.front();
    std::vector<int32_t> tokens;
    while (static_cast<int64_t>(tokens.size()) < prompt) {
      tokens.insert(tokens.end(), first.tokens.begin(), first.tokens.end());
    }
    tokens.resize(static_cast<size_t>(prompt));
    for (Sample& sample : group) {
      std::vector<int32_t> response(sample.tokens.begin() + sample.prompt_tokens,
                                    sample.tokens.end());
      sample.prompt_tokens = prompt;
      sample.tokens = tokens;
      sample.tokens.insert(sample.tokens.end(), response.begin(), response.end());
      const auto length = static_cast<int64_t>(response.size());
      sample.segments = {{0, prompt, false, 0}, {prompt, length, true, 0}};
      sample.sample_id = MakeSampleId(samples.size(), 0, 0);
      samples.push_back(sample);
    }
  }
  return samples;
}

MiniBatchReport ReportOfTraining(TrainerRanks& group,
                                 const MiniBatchRequest& request,
                                 const std::vector<Sample>& samples) {
  const auto report = group[0].session->Train(request, samples);
  REQUIRE(report.ok());
  return *report;
}

// Sums over the responses of a prompt are rounded once instead of once each: in bf16 that is the
// rounding of the gradients of activations, 2^-9 of each, which rows and layers partly average.
TEST_CASE("Sharing prompts keeps log-prob bits and changes gradients by rounding alone",
          "[trainer][packing]") {
  for (const std::string type : {"llama", "qwen2", "qwen3"}) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      INFO(type << (dtype == DType::kFloat32 ? " float32" : " bfloat16"));
      const TempDir dir;
      TinyModelOptions model = OddModelOfType(type);
      model.float32 = dtype == DType::kFloat32;
      TrainerRanksOptions options{.model_dir = WriteModel(dir, model), .dtype = dtype};
      options.max_micro_batch_tokens = 2000;
      TrainerRanks shared(1, options), again(2, options);
      options.share_prompts = false;
      TrainerRanks apart(1, options);
      std::vector<Sample> samples = Groups(31);
      const auto scores = apart[0].session->Score(samples);
      REQUIRE(scores.ok());
      for (Sample& sample : samples) sample.log_probs = scores->at(sample.sample_id);
      MiniBatchRequest request = RequestFor(samples);
      request.compare_log_probs = true;
      const MiniBatchReport want = ReportOfTraining(apart, request, samples);
      const MiniBatchReport got = ReportOfTraining(shared, request, samples);
      REQUIRE(got.tokens == want.tokens - 3 * (3 + 64 + 80));
      REQUIRE(got.comparison.compared == TrainedTokens(samples));
      REQUIRE(got.comparison.identical == got.comparison.compared);
      TrainOn(again, samples);
      const double bound = dtype == DType::kFloat32 ? 1e-5 : 2e-2;
      for (const std::string& name : shared.TensorNames()) {
        INFO(name);
        const std::vector<float> gradient = apart.Gradient(name);
        const double largest = Largest(gradient);
        REQUIRE(LargestDifference(gradient, shared.Gradient(name)) <= bound * largest);
        REQUIRE(LargestDifference(gradient, again.Gradient(name)) <= bound * largest);
      }
    }
  }
}

TEST_CASE("Shared prompts with recomputed layers and split groups keep every bit of the log-probs",
          "[trainer][packing]") {
  const TempDir dir;
  TrainerRanksOptions options{.model_dir = WriteModel(dir, OddModelOfType("llama"))};
  TrainerRanks whole(1, options);
  options.recompute = Recompute::kAlways;
  TrainerRanks recomputed(1, options);
  options.max_micro_batch_tokens = 128;
  TrainerRanks split(1, options);
  std::vector<Sample> samples = Groups(41);
  const auto scores = whole[0].session->Score(samples);
  REQUIRE(scores.ok());
  REQUIRE(*scores == *split[0].session->Score(samples));
  TrainOn(whole, samples);
  TrainOn(recomputed, samples);
  RequireSameGradients(whole, recomputed);
}

TEST_CASE("The order of arrival changes no bit", "[trainer][packing]") {
  const TempDir dir;
  const TrainerRanksOptions options{.model_dir = WriteModel(dir, OddModelOfType("llama"))};
  std::vector<Sample> samples = RandomSamples(6, 7);
  TrainerRanks a(1, options), b(1, options);
  TrainOn(a, samples);
  std::reverse(samples.begin(), samples.end());
  TrainOn(b, samples);
  RequireSameGradients(a, b);
}

TEST_CASE("A learning rate of 0 keeps every weight", "[trainer][optimizer]") {
  const TempDir dir;
  TrainerRanksOptions options{.model_dir = WriteModel(dir, OddModelOfType("llama"))};
  options.lr = 0;
  TrainerRanks trained(2, options), fresh(2, options);
  const std::vector<Sample> samples = RandomSamples(4, 8);
  TrainOn(trained, samples);
  const OptimizerReport report = StepOn(trained);
  REQUIRE(report.changed == 0);
  RequireSameMasters(trained, fresh);
}

TEST_CASE("A gradient that is not finite skips the step and counts nothing",
          "[trainer][optimizer]") {
  const TempDir dir;
  const TrainerRanksOptions options{.model_dir = WriteModel(dir, OddModelOfType("llama"))};
  TrainerRanks trained(2, options), fresh(2, options);
  std::vector<Sample> samples = RandomSamples(4, 9);
  samples[1].advantages[0] = std::numeric_limits<float>::infinity();
  TrainOn(trained, samples);
  const OptimizerReport report = StepOn(trained);
  REQUIRE(report.skipped);
  REQUIRE(trained[0].session->optimizer().updates() == 0);
  RequireSameMasters(trained, fresh);
}

TEST_CASE("One infinite or undefined gradient skips the step, and the next one is made",
          "[trainer][optimizer]") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const TempDir dir;
  const TrainerRanksOptions options{.model_dir = WriteModel(dir, OddModelOfType("llama"))};
  const std::vector<Sample> samples = RandomSamples(4, 9);
  for (const float broken : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    TrainerRanks trained(2, options), fresh(2, options);
    TrainOn(trained, samples);
    trained[1].session->shard().gradients()[3] = broken;
    const OptimizerReport report = StepOn(trained);
    REQUIRE(report.skipped);
    // As verl reports it.
    REQUIRE((std::isnan(broken) ? std::isnan(report.grad_norm) : report.grad_norm == kInfinity));
    REQUIRE(trained[0].session->optimizer().updates() == 0);
    RequireSameMasters(trained, fresh);
    TrainOn(trained, samples);
    const OptimizerReport next = StepOn(trained);
    REQUIRE_FALSE(next.skipped);
    REQUIRE(std::isfinite(next.grad_norm));
    REQUIRE(trained[0].session->optimizer().updates() == 1);
  }
}

TEST_CASE("Scoring gives the bits of the training forward, alone or in a batch",
          "[trainer][numerics]") {
  const TempDir dir;
  TrainerRanksOptions options{.model_dir = WriteModel(dir, OddModelOfType("qwen2"))};
  std::vector<Sample> samples = RandomSamples(6, 10);
  TrainerRanks one(1, options), two(2, options);
  for (Sample& sample : samples) {
    const auto scores = one[0].session->Score({sample});
    REQUIRE(scores.ok());
    sample.log_probs = scores->at(sample.sample_id);
  }
  MiniBatchRequest request = RequestFor(samples);
  request.compare_log_probs = true;
  std::vector<LogProbComparison> comparisons(2);
  two.RunOk([&](Rank& rank, int index) {
    const auto report = rank.session->Train(request, Share(samples, index, 2));
    if (report.ok()) comparisons[static_cast<size_t>(index)] = report->comparison;
    return report.status();
  });
  for (const LogProbComparison& comparison : comparisons) {
    REQUIRE(comparison.compared > 0);
    REQUIRE(comparison.identical == comparison.compared);
    REQUIRE(comparison.mismatches.empty());
  }
}

TEST_CASE("A log-prob that differs is named with sample, position and version",
          "[trainer][numerics]") {
  const TempDir dir;
  const TrainerRanksOptions options{.model_dir = WriteModel(dir, OddModelOfType("llama"))};
  std::vector<Sample> samples = RandomSamples(3, 11);
  TrainerRanks one(1, options);
  const auto scores = one[0].session->Score(samples);
  REQUIRE(scores.ok());
  for (Sample& sample : samples) sample.log_probs = scores->at(sample.sample_id);
  samples[1].log_probs[1] += 0.25f;
  samples[1].versions[1] = 7;
  MiniBatchRequest request = RequestFor(samples);
  request.compare_log_probs = true;
  const auto report = one[0].session->Train(request, samples);
  REQUIRE(report.ok());
  const LogProbComparison& comparison = report->comparison;
  REQUIRE(comparison.identical == comparison.compared - 1);
  REQUIRE(comparison.max_abs_difference == Approx(0.25));
  REQUIRE(comparison.mismatches.size() == 1);
  REQUIRE(comparison.mismatches[0].sample_id == samples[1].sample_id);
  REQUIRE(comparison.mismatches[0].position == samples[1].prompt_tokens + 1);
  REQUIRE(comparison.mismatches[0].weight_version == 7);
  REQUIRE(comparison.mismatches[0].rollout == samples[1].log_probs[1]);
}

TEST_CASE("A sample that does not fit fails on its rank and aborts the others",
          "[trainer][ranks]") {
  const TempDir dir;
  TrainerRanksOptions options{.model_dir = WriteModel(dir, OddModelOfType("llama"))};
  options.max_micro_batch_tokens = 20;
  std::vector<Sample> samples = RandomSamples(2, 12);
  samples[0].tokens.resize(static_cast<size_t>(samples[0].prompt_tokens + 2));
  samples[0].tokens.resize(10);
  samples[0].prompt_tokens = 8;
  samples[0].segments = {{8, 2, true, 0}};
  samples[0].log_probs.resize(2);
  samples[0].versions.resize(2);
  samples[0].advantages.resize(2);
  samples[1].tokens.resize(40, 5);
  samples[1].prompt_tokens = 38;
  samples[1].segments = {{38, 2, true, 0}};
  samples[1].log_probs.resize(2);
  samples[1].versions.resize(2);
  samples[1].advantages.resize(2);
  TrainerRanks two(2, options);
  two.Run([&](Rank& rank, int index) {
    return rank.session->Train(RequestFor(samples), Share(samples, index, 2)).status();
  });
  REQUIRE(two[1].status.code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(two[0].status.code() == absl::StatusCode::kAborted);
  REQUIRE(std::string(two[0].status.message()).find("trainer 1 failed") != std::string::npos);
}

TEST_CASE("On a device of its own, gradients that wait for their update stay, and count after it",
          "[trainer][memory]") {
  const TempDir dir;
  TrainerRanksOptions options{.model_dir = WriteModel(dir, OddModelOfType("llama"))};
  options.kept_bytes = 1;  // next to nothing may stay
  options.has_own_device = true;
  const std::vector<Sample> samples = RandomSamples(4, 14);
  for (const int world : {1, 2}) {
    TrainerRanks ranks(world, options);
    std::vector<absl::Status> trained(2), waiting(2), stepped(2), released(2);
    ranks.RunOk([&](Rank& rank, int index) -> absl::Status {
      TrainingSession& session = *rank.session;
      const auto at = static_cast<size_t>(index);
      TANDEM_RETURN_IF_ERROR(
          session.Train(RequestFor(samples), Share(samples, index, world)).status());
      trained[at] = session.CheckReleased();
      // One step off, a rollout that was lost is sent the weights again now.
      TANDEM_RETURN_IF_ERROR(session.ReleaseForRollout());
      waiting[at] = session.CheckReleased();
      TANDEM_RETURN_IF_ERROR(session.Step().status());
      stepped[at] = session.CheckReleased();
      TANDEM_RETURN_IF_ERROR(session.ReleaseForRollout());
      released[at] = session.CheckReleased();
      return absl::OkStatus();
    });
    for (size_t at = 0; at < static_cast<size_t>(world); ++at) {
      INFO(world << " ranks, " << at << ": " << waiting[at].ToString());
      REQUIRE(absl::IsInternal(trained[at]));
      REQUIRE(Says(trained[at], "bytes of activations"));
      REQUIRE_FALSE(Says(trained[at], "bytes of gradients"));
      REQUIRE(waiting[at].ok());
      REQUIRE(absl::IsInternal(stepped[at]));
      REQUIRE(Says(stepped[at], "bytes of gradients"));
      REQUIRE(released[at].ok());
    }
  }
}

TEST_CASE("The reference policy keeps the weights it was frozen from", "[trainer][reference]") {
  const TempDir dir;
  const TrainerRanksOptions options{.model_dir = WriteModel(dir, OddModelOfType("llama"))};
  const std::vector<Sample> samples = RandomSamples(4, 13);
  TrainerRanks two(2, options);
  std::vector<LogProbsBySample> before(2), after(2), current(2);
  two.RunOk([&](Rank& rank, int index) -> absl::Status {
    const std::vector<Sample> mine = Share(samples, index, 2);
    const auto at = static_cast<size_t>(index);
    TANDEM_RETURN_IF_ERROR(rank.session->FreezeReference());
    TANDEM_ASSIGN_OR_RETURN(before[at], rank.session->Score(mine));
    TANDEM_RETURN_IF_ERROR(rank.session->Train(RequestFor(samples), mine).status());
    TANDEM_RETURN_IF_ERROR(rank.session->Step().status());
    TANDEM_ASSIGN_OR_RETURN(after[at], rank.session->Score(mine, LogProbPolicy::kReference));
    TANDEM_ASSIGN_OR_RETURN(current[at], rank.session->Score(mine));
    return absl::OkStatus();
  });
  REQUIRE(before == after);
  REQUIRE(before != current);
}

}  // namespace
}  // namespace tandem
