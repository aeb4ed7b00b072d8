// The optimizer step and the learning rates against the numbers of the reference implementation.
#include <cmath>

#include <catch2/catch.hpp>

#include "common/ops/cpu/adamw.h"
#include "tests/support/golden.h"
#include "tests/support/golden_tensor.h"
#include "trainer_worker/shard/optimizer.h"

namespace tandem {
namespace {

using testing::CompareValues;
using testing::GoldenCase;
using testing::GoldenDir;
using testing::GoldenFamily;
using testing::Json;
using testing::ParseTensor;

struct Parameter {
  explicit Parameter(std::vector<float> initial)
      : master(std::move(initial)), exp_avg(master.size()), exp_avg_sq(master.size()) {}
  std::vector<float> master, exp_avg, exp_avg_sq;
};

void RequireParameters(const std::vector<float>& got, const Json& want) {
  REQUIRE(CompareValues(got, ParseTensor(want).values, 1e-5, 1e-7) == "");
}

void Update(Parameter& parameter,
            const std::vector<float>& gradient,
            const Json& options,
            int64_t step,
            float scale) {
  AdamWOptions adamw;
  adamw.beta1 = options.at("beta1").get<double>();
  adamw.beta2 = options.at("beta2").get<double>();
  adamw.eps = options.at("eps").get<double>();
  adamw.weight_decay = options.at("weight_decay").get<double>();
  ThreadPool pool(1);
  AdamWUpdate(pool,
              {.master = parameter.master.data(),
               .gradient = gradient.data(),
               .exp_avg = parameter.exp_avg.data(),
               .exp_avg_sq = parameter.exp_avg_sq.data(),
               .count = static_cast<int64_t>(gradient.size())},
              FactorsOf(adamw, options.at("lr").get<double>(), step, scale));
}

void CheckOptimizerStep(const GoldenFamily&, const GoldenCase& c) {
  Parameter a(ParseTensor(c.inputs.at("init").at("a")).Floats());
  Parameter b(ParseTensor(c.inputs.at("init").at("b")).Floats());
  int64_t steps = 0;
  const Json& wanted = c.outputs.at("steps");
  for (size_t i = 0; i < wanted.size(); ++i) {
    std::vector<float> ga = ParseTensor(c.inputs.at("grads").at(i).at("a")).Floats();
    const std::vector<float> gb = ParseTensor(c.inputs.at("grads").at(i).at("b")).Floats();
    ThreadPool pool(1);
    const double norm = std::sqrt(SumOfSquares(pool, ga.data(), static_cast<int64_t>(ga.size())) +
                                  SumOfSquares(pool, gb.data(), static_cast<int64_t>(gb.size())));
    REQUIRE(testing::IsClose(norm, testing::ParseNumber(wanted[i].at("grad_norm")), 1e-5, 1e-7));
    if (std::isfinite(norm)) {
      const float scale = ClipFactor(norm, c.options.at("clip_grad").get<double>());
      ++steps;
      Update(a, ga, c.options, steps, scale);
      Update(b, gb, c.options, steps, scale);
      for (float& g : ga) g *= scale;
      RequireParameters(ga, wanted[i].at("clipped_grad_a"));
    } else {
      REQUIRE(wanted[i].at("clipped_grad_a").is_null());
    }
    REQUIRE(wanted[i].at("adam_step").get<int64_t>() == steps);
    RequireParameters(a.master, wanted[i].at("a"));
    RequireParameters(b.master, wanted[i].at("b"));
    RequireParameters(a.exp_avg, wanted[i].at("exp_avg_a"));
    RequireParameters(a.exp_avg_sq, wanted[i].at("exp_avg_sq_a"));
  }
}

void CheckSchedule(const GoldenFamily&, const GoldenCase& c) {
  LrScheduleOptions options;
  options.type = c.fn;
  options.lr = c.options.at("lr").get<double>();
  options.warmup_steps = c.options.at("num_warmup_steps").get<int64_t>();
  options.total_steps = c.options.value("num_training_steps", int64_t{0});
  options.min_lr_ratio = c.options.value("min_lr_ratio", 0.0);
  options.init_lr_ratio = c.options.value("init_lr_ratio", 0.0);
  options.num_cycles = c.options.value("num_cycles", 0.5);
  options.stable_ratio = c.options.value("stable_ratio", 0.9);
  options.zero_indexed_step = c.options.value("zero_indexed_step", true);
  if (c.raises) {
    REQUIRE(absl::IsInvalidArgument(LearningRate(options, 0).status()));
    return;
  }
  const Json& wanted = c.outputs.at("lr_used_at_step");
  for (size_t step = 0; step < wanted.size(); ++step) {
    const auto rate = LearningRate(options, static_cast<int64_t>(step));
    REQUIRE(rate.ok());
    // Where the cosine reaches 0 the reference has a rounding residue of 1e-22.
    REQUIRE(testing::IsClose(*rate, testing::ParseNumber(wanted[step]), 1e-12, 1e-21));
  }
}

TEST_CASE("AdamW with clipping equals the golden numbers", "[golden][optimizer]") {
  testing::RunGoldenFamily(testing::ReadGoldenFamily(GoldenDir(), "optimizer"),
                           {{"optimizer_step", CheckOptimizerStep}});
}

TEST_CASE("Learning rates equal the golden numbers", "[golden][lr_schedule]") {
  testing::RunGoldenFamily(
      testing::ReadGoldenFamily(GoldenDir(), "schedules"),
      {{"constant", CheckSchedule}, {"cosine", CheckSchedule}, {"wsd", CheckSchedule}});
}

}  // namespace
}  // namespace tandem
