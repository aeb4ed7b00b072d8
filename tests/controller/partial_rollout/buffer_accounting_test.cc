// R4: groups in = groups out + groups carried, over random rounds; and repeated rounds.
#include <map>
#include <set>

#include <catch2/catch.hpp>

#include "tests/controller/partial_rollout/buffer_run.h"

namespace tandem {
namespace {

// Whole numbers from a seed.
class Dice {
 public:
  explicit Dice(uint64_t seed) : seed_(seed) {}
  // 0 .. sides-1
  int64_t Roll(int64_t sides) {
    return RandomWords(seed_, 7, at_++)[0] % static_cast<uint64_t>(sides);
  }

 private:
  const uint64_t seed_;
  uint64_t at_ = 0;
};

struct Course {
  int64_t n = 1, budget = 1, cap = 0, groups = 1, batch = 1, max_versions = 2;
};

Course SomeCourse(Dice& dice) {
  return {.n = 1 + dice.Roll(4),
          .budget = 1 + dice.Roll(13),
          .cap = dice.Roll(4),
          .groups = 1 + dice.Roll(6),
          .batch = 1 + dice.Roll(5),
          .max_versions = 2 + dice.Roll(3)};
}

BufferOptions OptionsOfCourse(const Course& course) {
  return {.tokenizer_digest = "digest",
          .vocab_limit = kVocab,
          .samples_per_prompt = course.n,
          .sampling = {.max_tokens = course.budget},
          .compact_above_bytes = 100};
}

// As a train loop does it: rounds of one version until a batch is whole, which then trains.
struct Steps {
  Steps(const Course& c, uint64_t dice_seed)
      : course(c), run(OptionsOfCourse(c)), dice(dice_seed) {}

  void Draw() {
    const int64_t fresh =
        std::max<int64_t>(0, course.groups - run.buffer->Counts().unfinished_groups());
    REQUIRE(run.buffer->Add(SomePrompts(static_cast<uint64_t>(drawn), fresh)).ok());
    drawn += fresh;
  }
  RoundSpec Order(int64_t step, int64_t round) const {
    return {.step = step,
            .round = round,
            .version = step,
            .groups = course.groups,
            .cap = course.cap,
            .max_versions = course.max_versions};
  }
  // A third of the samples never gets a place, the others up to 5 tokens; where the clock
  // interrupts.
  void Step(int64_t step, bool clock) {
    for (int64_t round = 0; run.buffer->complete() < course.batch; ++round) {
      REQUIRE(round < 1000);
      Draw();
      const auto most = [&](uint64_t) { return dice.Roll(3) == 0 ? -1 : dice.Roll(6); };
      // Round 20 is long enough: nothing is to depend on luck.
      run.RunRound(Order(step, round),
                   clock && round < 20 ? most : std::function<int64_t(uint64_t)>());
      points[{step, round}] = run.round->GetInterruptionPoints();
      REQUIRE(out + std::ssize(run.buffer->state().groups) == drawn);
    }
    for (Sample& sample : run.Taken(course.batch)) taken.push_back(std::move(sample));
    out += course.batch;
    REQUIRE(out + std::ssize(run.buffer->state().groups) == drawn);
  }

  const Course course;
  BufferRun run;
  Dice dice;
  int64_t drawn = 0, out = 0;
  std::vector<Sample> taken;
  std::map<std::pair<int64_t, int64_t>, InterruptionPoints> points;
};

void RequireEqualSamples(const std::vector<Sample>& a, const std::vector<Sample>& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    REQUIRE(a[i].sample_id == b[i].sample_id);
    REQUIRE(a[i].group == b[i].group);
    REQUIRE(a[i].tokens == b[i].tokens);
    REQUIRE(a[i].log_probs == b[i].log_probs);
    REQUIRE(a[i].versions == b[i].versions);
    REQUIRE(a[i].finish_reason == b[i].finish_reason);
  }
}

}  // namespace

TEST_CASE("R4: groups in = groups out + groups carried, and every sample is trained once, whole",
          "[rollout_buffer]") {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    INFO("seed " << seed);
    Dice dice(seed);
    Steps steps(SomeCourse(dice), seed + 1000);
    for (int64_t step = 1; step <= 6; ++step) steps.Step(step, /*clock=*/seed % 2 == 0);
    std::set<uint64_t> seen;
    for (const Sample& sample : steps.taken) {
      RequireWhole(steps.run, sample);
      REQUIRE(seen.insert(sample.sample_id).second);
      REQUIRE(std::ssize(sample.segments) - 1 <= steps.course.max_versions);
    }
    REQUIRE(std::ssize(seen) == steps.out * steps.course.n);
  }
}

TEST_CASE("under a token cap a run that was saved and loaded goes on with the same samples",
          "[rollout_buffer]") {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    INFO("seed " << seed);
    Dice dice(seed);
    Course course = SomeCourse(dice);
    course.cap += 1;
    Steps through(course, 1), broken(course, 1);
    for (int64_t step = 1; step <= 5; ++step) {
      through.Step(step, false);
      broken.Step(step, false);
      const testing::TempDir checkpoint;
      REQUIRE(broken.run.buffer->Save(checkpoint.path(), kStep).ok());
      broken.run.buffer = broken.run.OpenBuffer();
      REQUIRE(broken.run.buffer->Load(checkpoint.path(), nullptr, kStep).ok());
    }
    RequireEqualSamples(through.taken, broken.taken);
  }
}

TEST_CASE("rounds that are made again by their interruption points come to the same tokens",
          "[rollout_buffer]") {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    INFO("seed " << seed);
    Dice dice(seed);
    Steps first(SomeCourse(dice), seed);
    for (int64_t step = 1; step <= 4; ++step) first.Step(step, true);
    // No clock here, and another cap: the interruption points say it all.
    Course other = first.course;
    other.cap = 2;
    Steps again(other, 0);
    for (int64_t step = 1; step <= 4; ++step) {
      for (int64_t round = 0; again.run.buffer->complete() < other.batch; ++round) {
        again.Draw();
        RoundSpec spec = again.Order(step, round);
        spec.interruption_points = first.points.at({step, round});
        const auto requests = again.run.Begin(spec);
        REQUIRE(requests.ok());
        for (const GroupRequest& request : *requests) {
          REQUIRE_FALSE(request.interruptible);
        }
        again.run.RunRound(spec);
        REQUIRE(again.run.round->GetInterruptionPoints() == first.points.at({step, round}));
      }
      for (Sample& sample : again.run.Taken(other.batch)) again.taken.push_back(std::move(sample));
    }
    RequireEqualSamples(first.taken, again.taken);
  }
}

TEST_CASE("interruption points that are not of the round are told by name, and nothing begins",
          "[rollout_buffer]") {
  BufferRun run;
  run.lengths = [](uint64_t) { return 9; };
  REQUIRE(run.buffer->Add(SomePrompts(0, 2)).ok());
  run.RunRound({.step = 1, .version = 1, .cap = 4});
  const uint64_t id = MakeSampleId(0, 0, 1);
  const auto refused = [&](InterruptionPoints points, int64_t groups, const std::string& why) {
    const RoundSpec spec{.step = 2,
                         .round = 3,
                         .version = 2,
                         .groups = groups,
                         .cap = 4,
                         .interruption_points = std::move(points)};
    const absl::Status status = run.Begin(spec).status();
    REQUIRE(absl::IsFailedPrecondition(status));
    REQUIRE(Says(status, "step 2, round 3: sample 0x"));
    REQUIRE(Says(status, why));
    // The round before is still the newest.
    REQUIRE(run.round->GetInterruptionPoints().size() == 6);
  };
  refused({{id, 3}}, 0, "has 4 tokens, and cannot have been interrupted at 3");
  refused({{id, 10}}, 0, "cannot have been interrupted at 10");
  refused({{id, 5}, {MakeSampleId(9, 0, 0), 1}}, 0, "is not in this round");
  refused({{MakeSampleId(1, 0, 0), 5}}, 1, "is not in this round");
  const auto fits = [&](const RoundSpec& spec) { return run.Begin(spec).ok(); };
  REQUIRE(fits({.version = 2, .interruption_points = InterruptionPoints{{id, 4}, {id + 1, 9}}}));
  // A final sample was left where it was when its replica was lost and nobody went on with it.
  REQUIRE(
      fits({.version = 2, .max_versions = 2, .interruption_points = InterruptionPoints{{id, 4}}}));
}

}  // namespace tandem
