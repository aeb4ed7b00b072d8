#include "controller/report/transfers/transfer_text.h"

#include <catch2/catch.hpp>

#include "controller/report/format.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::Has;

constexpr int64_t kMib = 1 << 20;

TransferPlan PlanOfRoutes(int routes, bool between_hosts) {
  TransferPlan plan{.first_sync_bytes = 256 * kMib};
  for (int rank = 0; rank < routes; ++rank) {
    plan.routes.push_back({.trainer = rank,
                           .rollout = rank,
                           .over = between_hosts ? Carrier::kTcpTls : Carrier::kSharedMemory,
                           .between_hosts = between_hosts,
                           .bytes = 256 * kMib});
  }
  return plan;
}

TEST_CASE("Routes say bytes and carrier, and times only with what they rest on", "[report]") {
  TransferPlan plan = PlanOfRoutes(2, false);
  const std::string bare = TransferText(plan);
  INFO(bare);
  REQUIRE(Has(bare, "256 MiB to each of 2 rollouts after a step, over shm\n"));
  REQUIRE(Has(bare, "trainer 1 to rollout 1"));
  REQUIRE_FALSE(Has(bare, "at least:"));
  REQUIRE(Has(bare, "how long shm takes is not known"));
  REQUIRE_FALSE(Has(bare, "cluster.network_gbit_per_second"));
  plan.copied_bytes_per_second = 8e9;
  for (PlannedRoute& route : plan.routes) route.seconds = 0.034;
  const std::string timed = TransferText(plan);
  INFO(timed);
  REQUIRE(Has(timed, "a sync takes at least " + FormatSeconds(0.034)));
  REQUIRE_FALSE(Has(timed, "not known"));
  REQUIRE(Has(timed, "at 8.0 GB/s, which one thread was just measured to copy here"));
}

TEST_CASE("Without the network's rate the text says how to give it", "[report]") {
  TransferPlan plan = PlanOfRoutes(1, true);
  plan.rollouts_elsewhere = true;
  INFO(TransferText(plan));
  REQUIRE(Has(TransferText(plan), "256 MiB to the rollout after a step, over tcp-tls"));
  REQUIRE(Has(TransferText(plan), "cluster.network_gbit_per_second=G"));
  REQUIRE(Has(TransferText(plan), "rollouts on hosts of their own"));
  plan.network_gbit_per_second = 10;
  REQUIRE(Has(TransferText(plan), "by cluster.network_gbit_per_second=10 alone"));
  REQUIRE_FALSE(Has(TransferText(plan), "=G"));
}

TEST_CASE("Many routes are counted by what they are over", "[report]") {
  REQUIRE(Has(TransferText(PlanOfRoutes(16, true)), "trainer 15 to rollout 15"));
  const std::string many = TransferText(PlanOfRoutes(17, true));
  INFO(many);
  REQUIRE(Has(many, "17 routes, each"));
  REQUIRE_FALSE(Has(many, "trainer 1 to"));
}

TEST_CASE("Trainers of several hosts have a table of their own", "[report]") {
  TransferPlan plan = PlanOfRoutes(2, false);
  REQUIRE_FALSE(Has(TransferText(plan), "host of trainers"));
  plan.rounds = 3;
  plan.first_sync_bytes = 300 * kMib;
  plan.trainers = {.sync_gather_bytes = 128 * kMib,
                   .micro_batches = 6,
                   .gradient_bytes = 1536 * kMib,
                   .gather_bytes = 640 * kMib};
  plan.network_gbit_per_second = 10;
  const std::string text = TransferText(plan);
  INFO(text);
  REQUIRE(Has(text, ", in 3 rounds; 300 MiB the first time"));
  REQUIRE(Has(text, "gradients of an optimizer step of 6 micro-batches"));
  REQUIRE(Has(text, FormatBytes(1536 * kMib)));
  REQUIRE(Has(text, FormatSeconds(plan.NetworkSeconds(1536 * kMib))));
}

}  // namespace
}  // namespace tandem
