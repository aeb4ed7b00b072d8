// Steps whose batch was generated during the step before (trainer.off_policy_steps).
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "controller/store/batch_file.h"
#include "tests/controller/run/partial_loop.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::Has;
using testing::PartialRun;
using testing::TrainedOn;

class OneStepOffRun : public PartialRun {
 public:
  explicit OneStepOffRun(int pairs) : PartialRun(pairs) { options.partial.one_step_off = true; }

  // The one weight version that sampled all tokens of `step`.
  int64_t SampledBy(int64_t step) const {
    std::set<int64_t> versions;
    for (const SampleRecord& record : store.samples.at(step)) {
      for (const Segment& segment : record.segments) versions.insert(segment.weight_version);
    }
    REQUIRE(versions.size() == 1);
    return *versions.begin();
  }
};

// The place of the first call that begins so.
size_t PlaceOf(const std::vector<std::string>& calls, const std::string& text) {
  INFO(text);
  const auto found = std::find_if(calls.begin(), calls.end(),
                                  [&](const std::string& call) { return call.starts_with(text); });
  REQUIRE(found != calls.end());
  return static_cast<size_t>(found - calls.begin());
}

}  // namespace

TEST_CASE("every batch but the first was sampled by the weights one step before",
          "[one_step_off]") {
  OneStepOffRun run(2);
  REQUIRE(run.Run().ok());
  REQUIRE(run.SampledBy(1) == 0);
  for (int64_t step = 2; step <= 5; ++step) {
    run.RequireBatch(step);
    REQUIRE(run.SampledBy(step) == step - 2);
    REQUIRE(run.Metric(step, "partial/rounds") == 0);
    REQUIRE(run.Metric(step, "partial/staleness_max") == 1);
  }
  // The last step has no next one, and every prompt was drawn for a step.
  REQUIRE(run.Metric(4, "partial/overlap_rounds") == 1);
  REQUIRE(run.Metric(5, "partial/overlap_rounds") == 0);
  REQUIRE(run.prompts.Position().row == 10);
  REQUIRE(run.rounds->buffer().Counts().groups == 0);
}

TEST_CASE("the next batch is whole, and compared, before the first update of a step",
          "[one_step_off]") {
  OneStepOffRun run(2);
  run.options.mini_batch_prompts = 1;  // two updates a step
  run.options.partial.updates_per_step = 2;
  REQUIRE(run.Run().ok());
  const std::vector<std::string> calls = run.journal.Take();
  for (int64_t step = 2; step <= 5; ++step) {
    INFO("step " << step);
    const size_t compared =
        PlaceOf(calls, fmt::format("trainer 0 ComputeLogProbs(step {}, compared)", step));
    REQUIRE(compared > PlaceOf(calls, fmt::format("trainer 0 ForwardBackward(step {},", step - 1)));
    REQUIRE(compared < PlaceOf(calls, fmt::format("trainer 0 OptimizerStep(v{})", 2 * step - 3)));
    REQUIRE(run.SampledBy(step) == 2 * (step - 2));
  }
}

TEST_CASE("every token of every batch is compared once", "[one_step_off]") {
  OneStepOffRun run(2);
  REQUIRE(run.Run().ok());
  int64_t tokens = 0, compared = 0;
  for (const auto& [step, records] : run.store.samples) {
    for (const SampleRecord& record : records) tokens += record.response_tokens;
  }
  for (const auto& [step, record] : run.store.steps) {
    if (step < 5) compared += run.Metric(step, "training/rollout_log_probs_compared");
  }
  REQUIRE(compared == tokens);
  // The last batch was compared in the step before.
  REQUIRE_FALSE(run.store.steps.at(5).metrics.contains("training/rollout_log_probs_compared"));
}

TEST_CASE("a log-prob that differs in the next batch ends the run before the update",
          "[one_step_off]") {
  OneStepOffRun run(1);
  run.on_forward_backward = [](const ForwardBackwardCall&, ForwardBackwardReply& reply) {
    reply.comparison.identical_tokens = reply.comparison.compared_tokens;
  };
  run.differing = 1;
  const absl::Status status = run.Run();
  INFO(status.ToString());
  REQUIRE(absl::IsDataLoss(status));
  REQUIRE(Has(std::string(status.message()), "step 2: "));
  REQUIRE(run.journal.Count("trainer 0 OptimizerStep") == 0);
  // What is saved is the batch that differs, not the one that was trained meanwhile.
  const std::string path = run.options.run_dir + "/failed_steps/step_2/step.batch";
  REQUIRE(Has(std::string(status.message()), path));
  const auto saved = BatchReader::Open(path);
  INFO(saved.status().ToString());
  REQUIRE(saved.ok());
  REQUIRE((*saved)->info().step == 2);
  REQUIRE((*saved)->info().sampling_version == 0);
  REQUIRE((*saved)->info().mini_batch == -1);
  REQUIRE((*saved)->info().mini_batches.size() == 1);
  const std::vector<SampleMeta> upcoming = run.upcoming->Metas();
  REQUIRE((*saved)->size() == upcoming.size());
  for (size_t i = 0; i < upcoming.size(); ++i) {
    REQUIRE((*saved)->Meta(i).sample_id == upcoming[i].sample_id);
    REQUIRE((*saved)->Meta(i).sample_id >> 24 >= 2);  // rows 0 and 1 are those of step 1
  }
}

TEST_CASE("losses change nothing of what one step off trains", "[one_step_off][recovery]") {
  OneStepOffRun undisturbed(2);
  undisturbed.options.save_freq = 2;
  REQUIRE(undisturbed.Run().ok());
  OneStepOffRun trainer(2);
  trainer.options.save_freq = 2;
  trainer.DieAt({WorkerRole::kTrainer, 1}, "ForwardBackward", 3);
  REQUIRE(trainer.Run().ok());
  REQUIRE(TrainedOn(trainer.store) == TrainedOn(undisturbed.store));
  // In the background of a step, beside another rollout and as the only one.
  for (const int rollouts : {2, 1}) {
    INFO(rollouts << " rollouts");
    OneStepOffRun rollout(rollouts);
    rollout.options.save_freq = 2;
    rollout.DieAt({WorkerRole::kRollout, 0}, "Generate", 3);
    REQUIRE(rollout.Run().ok());
    REQUIRE(TrainedOn(rollout.store) == TrainedOn(undisturbed.store));
  }
}

TEST_CASE("a checkpoint has the next batch, and the run goes on from it", "[one_step_off]") {
  OneStepOffRun whole(1);
  whole.options.save_freq = 1;
  REQUIRE(whole.Run().ok());
  OneStepOffRun stopped(1);
  stopped.options.save_freq = 1;
  stopped.journal.OnCall("trainer 0 ForwardBackward(step 4", [&] { stopped.control->StopNow(); });
  (void)stopped.Run();
  REQUIRE(stopped.loop->position().finished_steps == 3);
  REQUIRE(stopped.rounds->buffer().Counts().complete == 2);
  REQUIRE(stopped.rounds->buffer().state().ahead == SampledAhead{.step = 4, .version = 2});
  const std::string checkpoint = stopped.loop->newest_checkpoint();
  stopped.journal.OnCall("nobody", [] {});
  REQUIRE(stopped.Run(checkpoint).ok());
  REQUIRE(TrainedOn(stopped.store) == TrainedOn(whole.store));
}

TEST_CASE("a run goes on from a checkpoint with fewer updates a step than before",
          "[one_step_off]") {
  OneStepOffRun run(1);
  run.options.save_freq = 1;
  run.options.mini_batch_prompts = 1;  // two updates a step
  run.options.partial.updates_per_step = 2;
  run.journal.OnCall("trainer 0 ForwardBackward(step 4", [&] { run.control->StopNow(); });
  (void)run.Run();
  REQUIRE(run.loop->position().finished_steps == 3);
  run.journal.OnCall("nobody", [] {});
  run.options.mini_batch_prompts = 2;
  run.options.partial.updates_per_step = 1;
  const std::string checkpoint = run.loop->newest_checkpoint();
  const absl::Status status = run.Run(checkpoint);
  INFO(status.ToString());
  REQUIRE(status.ok());
  REQUIRE(run.SampledBy(4) == 4);  // the weights of step 3, two updates before those of step 4
  REQUIRE(run.SampledBy(5) == 6);
}

TEST_CASE("a batch that was sampled ahead is of its step, and of the weights before it, alone",
          "[one_step_off]") {
  const auto state = [](std::vector<VersionRun> versions) {
    BufferState waiting;
    waiting.groups[0].samples = {{.sample_id = 1, .versions = {{5, 3}}},
                                 {.sample_id = 2, .versions = std::move(versions)}};
    return waiting;
  };
  const auto of_step = [](BufferState waiting, int64_t step, int64_t version) {
    waiting.ahead = SampledAhead{.step = step, .version = version};
    return waiting;
  };
  REQUIRE(CheckSampledAhead({}, 7, 6).ok());
  REQUIRE(CheckSampledAhead(of_step(state({{5, 2}}), 7, 5), 7, 6).ok());
  // However many updates the step before has made.
  REQUIRE(CheckSampledAhead(of_step(state({{5, 2}}), 7, 5), 7, 9).ok());
  for (const int64_t wrong : {4, 6}) {
    const absl::Status refused = CheckSampledAhead(of_step(state({{wrong, 2}}), 7, 5), 7, 6);
    REQUIRE(absl::IsDataLoss(refused));
    REQUIRE(Has(std::string(refused.message()),
                fmt::format("sample 0x2 was generated ahead for step 7, of weight version 6, and "
                            "has tokens of weight version {} where all of its batch are of "
                            "version 5",
                            wrong)));
  }
  // All of them of one version, but not of the weights that the step before had.
  REQUIRE(absl::IsDataLoss(CheckSampledAhead(of_step(state({{5, 2}}), 7, 4), 7, 6)));
  REQUIRE(Has(std::string(CheckSampledAhead(of_step(state({{5, 2}}), 6, 5), 7, 6).message()),
              "step 7 begins with a batch that was sampled for step 6"));
  // A checkpoint that does not say whose they are: of one version, and of none to come.
  REQUIRE(CheckSampledAhead(state({{5, 2}}), 7, 6).ok());
  REQUIRE(absl::IsDataLoss(CheckSampledAhead(state({{4, 2}}), 7, 6)));
  REQUIRE(absl::IsDataLoss(CheckSampledAhead(state({{5, 2}}), 7, 4)));
}

TEST_CASE("groups that dynamic sampling asks for are of the step's own weights", "[one_step_off]") {
  OneStepOffRun run(1);
  // The samples of every third row are all worth the same.
  run.options.filter_groups = {.enable = true, .metric = "right"};
  run.reward.value = [](uint64_t id) {
    return (id >> 24) % 3 == 0 ? 1.0 : static_cast<double>(id & 1);
  };
  REQUIRE(run.Run().ok());
  int64_t fresh = 0;
  for (int64_t step = 2; step <= 5; ++step) {
    for (const SampleRecord& record : run.store.samples.at(step)) {
      for (const Segment& segment : record.segments) {
        REQUIRE(segment.weight_version >= step - 2);
        fresh += segment.weight_version == step - 1 ? 1 : 0;
      }
    }
  }
  REQUIRE(fresh > 0);
}

}  // namespace tandem
