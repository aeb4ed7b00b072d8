#include <cmath>
#include <vector>

#include <catch2/catch.hpp>

#include "trainer_worker/shard/optimizer.h"

namespace tandem {
namespace {

double Rate(const LrScheduleOptions& options, int64_t step) {
  const auto rate = LearningRate(options, step);
  REQUIRE(rate.ok());
  return *rate;
}

}  // namespace

TEST_CASE("The warm-up has its own steps or else a part of all, as in verl", "[lr_schedule]") {
  REQUIRE(WarmupSteps(5, 0.5, 100) == 5);
  REQUIRE(WarmupSteps(-1, 0.5, 101) == 50);
  REQUIRE(WarmupSteps(0, 0.1, 100) == 10);
  REQUIRE(WarmupSteps(0, 0, 100) == 0);
  REQUIRE(WarmupSteps(-1, 0.5, -1) == 0);
}

TEST_CASE("wsd warms up, stays and comes down to its end", "[lr_schedule]") {
  const LrScheduleOptions wsd{.type = "wsd",
                              .lr = 1.0,
                              .warmup_steps = 4,
                              .total_steps = 14,
                              .min_lr_ratio = 0.2,
                              .stable_ratio = 0.6};
  REQUIRE(Rate(wsd, 0) == 0);
  REQUIRE(Rate(wsd, 2) == 0.5);
  for (int64_t step = 4; step <= 10; ++step) REQUIRE(Rate(wsd, step) == 1.0);
  REQUIRE(Rate(wsd, 11) < 1.0);
  REQUIRE(Rate(wsd, 12) == Approx(0.6));  // the middle of the decay
  REQUIRE(Rate(wsd, 13) > 0.2);
  REQUIRE(Rate(wsd, 14) == 0.2);
  REQUIRE(Rate(wsd, 1000) == 0.2);
}

TEST_CASE("The plateau of wsd has whole steps, rounded down", "[lr_schedule]") {
  LrScheduleOptions wsd{.type = "wsd", .lr = 1.0, .total_steps = 10, .stable_ratio = 0.39};
  REQUIRE(Rate(wsd, 3) == 1.0);  // the first of the decay has the full rate too
  REQUIRE(Rate(wsd, 4) < 1.0);
  wsd.stable_ratio = 1;
  REQUIRE(Rate(wsd, 9) == 1.0);
  REQUIRE(Rate(wsd, 10) == 0.0);
}

TEST_CASE("A cosine of several waves rises again", "[lr_schedule]") {
  const LrScheduleOptions waves{.type = "cosine", .lr = 1.0, .total_steps = 8, .num_cycles = 2};
  REQUIRE(Rate(waves, 2) == Approx(0).margin(1e-12));
  REQUIRE(Rate(waves, 4) == Approx(1));
}

// verl 0.9.1, get_cosine_schedule_with_warmup with a rate of 1.
TEST_CASE("A cosine at its limits has verl's rates, and verl's refusals", "[lr_schedule]") {
  struct Curve {
    int64_t warmup, total;
    double least;
    std::vector<double> verl;
  };
  for (const Curve& curve :
       {Curve{2, 6, 0, {0, 0.5, 1, 0.8535533905932737, 0.5, 0.14644660940672627, 0}},
        Curve{2, 6, 1, {0, 0.5, 1, 1, 1, 1, 1, 1}},
        Curve{8, 6, 0, {0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875}},
        Curve{6, 6, 0, {0, 1.0 / 6, 2.0 / 6, 0.5, 4.0 / 6, 5.0 / 6, 1, 0}},
        Curve{2, 0, 0, {0, 0.5, 1, 0, 1, 0}}}) {
    INFO(curve.warmup << " of " << curve.total);
    const LrScheduleOptions cosine{.type = "cosine",
                                   .lr = 1.0,
                                   .warmup_steps = curve.warmup,
                                   .total_steps = curve.total,
                                   .min_lr_ratio = curve.least};
    for (size_t step = 0; step < curve.verl.size(); ++step) {
      REQUIRE(Rate(cosine, static_cast<int64_t>(step)) == Approx(curve.verl[step]).margin(1e-12));
    }
  }
  for (const double ratio : {-0.1, 1.5, std::nan("")}) {
    LrScheduleOptions cosine{.type = "cosine", .lr = 1.0, .total_steps = 6};
    cosine.min_lr_ratio = ratio;
    REQUIRE(std::string(LearningRate(cosine, 0).status().message()).find("min_lr_ratio") !=
            std::string::npos);
    cosine.min_lr_ratio = 0;
    cosine.init_lr_ratio = ratio;
    REQUIRE(absl::IsInvalidArgument(LearningRate(cosine, 0).status()));
  }
}

TEST_CASE("An unknown schedule is refused and the known ones named", "[lr_schedule]") {
  const auto rate = LearningRate({.type = "linear"}, 0);
  REQUIRE(absl::IsInvalidArgument(rate.status()));
  REQUIRE(std::string(rate.status().message()).find("constant, cosine or wsd") !=
          std::string::npos);
}

}  // namespace tandem
