// Dropout in front of adapters: who drops, which elements, and what must not change them.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>

#include "common/formats/peft/peft_adapter.h"
#include "common/formats/peft/peft_config.h"
#include "tests/trainer_worker/trained_weights/lora_group.h"
#include "tests/trainer_worker/trainer_rig.h"

namespace tandem {
namespace {

using namespace tandem::testing;

struct DropoutFixture {
  explicit DropoutFixture(TinyModelOptions model = OddModel()) {
    none.model_dir = (dir.path() / "model").string();
    REQUIRE(WriteTinyModel(none.model_dir, model).ok());
    none.lr = 1e-2;
    none.lora = {.rank = 3, .alpha = 7, .target_modules = {"all-linear"}, .merge = false};
    drops = none;
    drops.lora.dropout = 0.25;
  }
  TempDir dir;
  TrainerRanksOptions none, drops;
  std::vector<Sample> samples = RandomSamples(6, 3);
};

// Log-probs as the rollout, which drops nothing, gives them.
void TakeScores(TrainerRanks& group, std::vector<Sample>& samples) {
  const LogProbsBySample scores = ScoresOf(group, samples, false);
  for (Sample& sample : samples) sample.log_probs = scores.at(sample.sample_id);
}

void RequireNear(const std::vector<std::vector<float>>& want,
                 const std::vector<std::vector<float>>& got,
                 double bound) {
  REQUIRE(want.size() == got.size());
  for (size_t tensor = 0; tensor < want.size(); ++tensor) {
    double largest = 0, difference = 0;
    for (size_t i = 0; i < want[tensor].size(); ++i) {
      largest = std::max(largest, std::abs(double{want[tensor][i]}));
      difference = std::max(difference, std::abs(double{want[tensor][i]} - got[tensor][i]));
    }
    INFO("tensor " << tensor << ": " << difference << " of " << largest);
    REQUIRE(largest > 0);
    REQUIRE(difference <= bound * largest);
  }
}

// A pass over the samples: its reports, the first rank's metrics, and gradients.
struct Pass {
  std::vector<MiniBatchReport> reports;
  std::map<std::string, double> metrics;
  std::vector<std::vector<float>> gradients;
};

Pass PassOf(TrainerRanks& group,
            const std::vector<Sample>& samples,
            const MiniBatchRequest& request) {
  Pass pass;
  pass.reports.resize(static_cast<size_t>(group.size()));
  group.RunOk([&](Rank& rank, int index) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(pass.reports[static_cast<size_t>(index)],
                            rank.session->Train(request, Share(samples, index, group.size())));
    return absl::OkStatus();
  });
  pass.metrics = pass.reports[0].metrics;
  pass.gradients = AdapterGradientsOf(group);
  return pass;
}

Pass PassWith(const TrainerRanksOptions& options,
              int world,
              const std::vector<Sample>& samples,
              const MiniBatchRequest& request) {
  TrainerRanks group(world, options);
  SetB(group, 5);
  return PassOf(group, samples, request);
}

// The least and the greatest ratio are of single tokens: any other mask anywhere shows.
void RequireSameRatios(const Pass& a, const Pass& b) {
  for (const char* name : {"actor/ratio_min", "actor/ratio_max"}) {
    INFO(name);
    REQUIRE(a.metrics.at(name) == b.metrics.at(name));
  }
}

}  // namespace

TEST_CASE("what scores drops nothing, and what trains does", "[trainer][lora]") {
  DropoutFixture f;
  for (const DType dtype : {DType::kBFloat16, DType::kFloat32}) {
    f.none.dtype = f.drops.dtype = dtype;
    TrainerRanks none(1, f.none), drops(2, f.drops);
    SetB(none, 5);
    SetB(drops, 5);
    TakeScores(none, f.samples);
    const LogProbsBySample want = ScoresOf(none, f.samples, false);
    const LogProbsBySample base = ScoresOf(none, f.samples, true);
    const Pass trained = PassOf(drops, f.samples, RequestFor(f.samples));
    REQUIRE(ScoresOf(drops, f.samples, false) == want);
    REQUIRE(ScoresOf(drops, f.samples, true) == base);
    REQUIRE(trained.metrics.at("actor/ratio_max") > 1.001);
    const Pass still = PassOf(none, f.samples, RequestFor(f.samples));
    REQUIRE(still.metrics.at("actor/ratio_max") == 1.0);
    REQUIRE(trained.gradients != still.gradients);
  }
}

TEST_CASE(
    "dropout has the same bits however layers are kept and samples are cut into micro-batches",
    "[trainer][lora]") {
  DropoutFixture f;
  TrainerRanks scores(1, f.none);
  SetB(scores, 5);
  TakeScores(scores, f.samples);
  f.drops.share_prompts = false;
  const MiniBatchRequest request = RequestFor(f.samples);
  const Pass want = PassWith(f.drops, 1, f.samples, request);
  TrainerRanksOptions options = f.drops;
  options.recompute = Recompute::kAlways;
  options.reshard = Reshard::kAlways;
  REQUIRE(PassWith(options, 1, f.samples, request).gradients == want.gradients);
  for (const int64_t tokens : {60, 100}) {
    options.max_micro_batch_tokens = tokens;
    const Pass cut = PassWith(options, 1, f.samples, request);
    REQUIRE(cut.reports[0].micro_batches > want.reports[0].micro_batches);
    REQUIRE(cut.gradients == want.gradients);
    RequireSameRatios(cut, want);
  }
  std::vector<Sample> reversed = f.samples;
  std::reverse(reversed.begin(), reversed.end());
  REQUIRE(PassWith(f.drops, 1, reversed, request).gradients == want.gradients);
}

TEST_CASE("dropout drops the same on any number of ranks, with prompts shared or not",
          "[trainer][lora]") {
  DropoutFixture f;
  std::vector<Sample> samples = GroupedSamples();
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    f.none.dtype = f.drops.dtype = dtype;
    TrainerRanks scores(1, f.none);
    SetB(scores, 5);
    TakeScores(scores, samples);
    const MiniBatchRequest request = RequestFor(samples);
    const Pass want = PassWith(f.drops, 1, samples, request);
    // What sharing, which another number of ranks changes, does to gradients:
    // docs/reference/numerics.md.
    const double bound = dtype == DType::kFloat32 ? 1e-4 : 4e-2;
    TrainerRanksOptions options = f.drops;
    for (const bool share : {true, false}) {
      options.share_prompts = share;
      for (const int world : {1, 2}) {
        const Pass pass = PassWith(options, world, samples, request);
        REQUIRE((pass.reports[0].tokens == want.reports[0].tokens) == (share && world == 1));
        RequireSameRatios(pass, want);
        RequireNear(want.gradients, pass.gradients, bound);
      }
    }
  }
}

TEST_CASE("every mini-batch has its own dropout, and so has every seed", "[trainer][lora]") {
  DropoutFixture f;
  TrainerRanks group(1, f.drops);
  SetB(group, 5);
  TakeScores(group, f.samples);
  MiniBatchRequest request = RequestFor(f.samples);
  const Pass first = PassOf(group, f.samples, request);
  REQUIRE(PassOf(group, f.samples, request).gradients == first.gradients);
  request.version = 1;
  const Pass next = PassOf(group, f.samples, request);
  REQUIRE(next.gradients != first.gradients);
  request.version = 0;
  request.seed = 2;
  const Pass other = PassOf(group, f.samples, request);
  REQUIRE(other.gradients != first.gradients);
  REQUIRE(other.gradients != next.gradients);
}

TEST_CASE("gradients with dropout are those of the loss that it makes", "[trainer][lora]") {
  TinyModelOptions model = OddModel();
  model.float32 = true;
  DropoutFixture f(model);
  f.drops.dtype = DType::kFloat32;
  TrainerRanks group(1, f.drops);
  SetB(group, 5);
  std::vector<Sample> samples = RandomSamples(3, 21);
  TakeScores(group, samples);
  MiniBatchRequest request = RequestFor(samples);
  request.loss.entropy_coeff = 0.2;
  // The ratios of dropped tokens are all inside.
  request.loss.clip_ratio_low = 0.9;
  request.loss.clip_ratio_high = 20;
  request.loss.clip_ratio_c = 100;
  TrainingSession& session = *group[0].session;
  const auto loss = [&] {
    REQUIRE(session.shard().MastersWritten(0, session.shard().elements()).ok());
    REQUIRE(session.WeightsChanged().ok());
    const auto report = session.Train(request, samples);
    REQUIRE(report.ok());
    return report->metrics.at("actor/loss");
  };
  loss();
  const ShardPlan& plan = session.shard().plan();
  std::vector<std::pair<int64_t, float>> steepest;  // of each tensor
  for (size_t tensor = 0; tensor < plan.tensors().size(); ++tensor) {
    const ShardPlan::Piece& piece = plan.mine(tensor);
    const float* const begin = session.shard().gradients() + piece.offset;
    const auto* const at = std::max_element(
        begin, begin + piece.elements, [](float a, float b) { return std::abs(a) < std::abs(b); });
    steepest.emplace_back(piece.offset + (at - begin), *at);
  }
  for (size_t tensor = 0; tensor < steepest.size(); ++tensor) {
    const auto& [index, want] = steepest[tensor];
    float& weight = session.shard().master()[index];
    const float before = weight, step = 2e-3f;
    weight = before + step;
    const double up = loss();
    weight = before - step;
    const double down = loss();
    weight = before;
    INFO(plan.tensors()[tensor]->name);
    REQUIRE((up - down) / (2.0 * double{step}) == Approx(want).epsilon(0.03).margin(2e-4));
  }
}

TEST_CASE("with dropout what is compared with the rollout is a pass without", "[trainer][lora]") {
  DropoutFixture f;
  TrainerRanks group(2, f.drops);
  SetB(group, 5);
  TakeScores(group, f.samples);
  for (Sample& sample : f.samples) sample.old_log_probs = sample.log_probs;
  MiniBatchRequest request = RequestFor(f.samples);
  request.first_update = true;
  for (const bool recomputed : {false, true}) {
    request.recomputed_old_log_probs = recomputed;
    for (const bool compare : {false, true}) {
      request.compare_log_probs = compare;
      const Pass pass = PassOf(group, f.samples, request);
      int64_t compared = 0, identical = 0;
      for (const MiniBatchReport& report : pass.reports) {
        compared += report.comparison.compared;
        identical += report.comparison.identical;
      }
      REQUIRE(compared == (compare ? TrainedTokens(f.samples) : 0));
      REQUIRE(identical == compared);
      // The policy that is trained is another one.
      REQUIRE(pass.metrics.at("actor/ratio_min") < 0.999);
      REQUIRE(pass.metrics.at("actor/ratio_max") > 1.001);
    }
  }
  // One bit off is seen as without dropout: where the rollout's are compared, and where they are
  // the old ones.
  std::vector<Sample> wrong = f.samples;
  wrong[1].log_probs[0] = std::nextafter(wrong[1].log_probs[0], 0.0f);
  for (const bool recomputed : {false, true}) {
    request.recomputed_old_log_probs = recomputed;
    request.compare_log_probs = true;
    const LogProbComparison seen = PassOf(group, wrong, request).reports[1].comparison;
    REQUIRE(seen.identical == seen.compared - 1);
    REQUIRE(seen.mismatches.at(0).sample_id == wrong[1].sample_id);
    REQUIRE(seen.mismatches.at(0).trainer == f.samples[1].log_probs[0]);
  }
  request.recomputed_old_log_probs = request.compare_log_probs = false;
  group.Run([&](Rank& rank, int index) {
    return rank.session->Train(request, Share(wrong, index, 2)).status();
  });
  INFO(group[1].status.ToString());
  REQUIRE(absl::IsDataLoss(group[1].status));
  REQUIRE(group[1].status.message().find("1 of ") != std::string::npos);
  // A scoring pass that has compared them makes another pass needless.
  request.log_probs_compared = true;
  PassOf(group, wrong, request);
  request.log_probs_compared = false;
  // Later mini-batches are compared with nothing.
  request.first_update = false;
  PassOf(group, wrong, request);
}

TEST_CASE("trainers whose adapters drop resume with the same bits, and say so in PEFT's files",
          "[trainer][lora]") {
  TrainerOptions options;
  options.session.lora = {
      .rank = 4, .alpha = 8, .target_modules = {"all-linear"}, .merge = false, .dropout = 0.25};
  const auto after_two = [](TrainerRig& rig) {
    rig.GiveSamples(RandomSamples(5, 3));
    rig.Reset(1);
    rig.TrainStep(0);
    rig.TrainStep(1);
    rig.Sync(2);
    return rig[0].rollout->receiver.Digests().value();
  };
  for (const int world : {1, 2}) {
    TrainerRig rig(world, options);
    const std::vector<Digest> want = after_two(rig);
    const std::string folder = rig.Folder("step_1");
    rig.Reset(2);
    rig.TrainStep(0);
    rig.RunOk([&](TrainerRig::Rank& rank, int) {
      return rank.trainer->SaveState({.directory = folder, .version = 1}).status();
    });
    rig.Reset(3, folder, 1);
    rig.TrainStep(1);
    rig.Sync(2);
    REQUIRE(rig[0].rollout->receiver.Digests().value() == want);

    const std::string path = folder + "/" + kAdapterFolder + "/" + kAdapterConfigFile;
    std::ifstream file(path);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const auto config = ParsePeftConfig(text, path);
    INFO(config.status().ToString());
    REQUIRE(config.ok());
    REQUIRE(config->dropout == 0.25);

    TrainerOptions other = options;
    other.session.lora.dropout = 0.5;
    TrainerRig halved(world, other);
    REQUIRE(after_two(halved) != want);
  }
}

}  // namespace tandem
