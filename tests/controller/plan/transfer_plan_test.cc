#include "controller/plan/transfer_plan.h"

#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "common/config/loaded_config.h"
#include "common/memory/memory_formulas.h"
#include "controller/plan/copy_rate.h"

namespace tandem {
namespace {

ModelSpec SmallModel() {
  const auto spec = ParseModelSpec(
      R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64,
          "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
          "num_key_value_heads": 2, "vocab_size": 100, "rms_norm_eps": 1e-5,
          "rope_theta": 10000.0, "max_position_embeddings": 512, "tie_word_embeddings": true})",
      "", "config.json");
  REQUIRE(spec.ok());
  return *spec;
}

v1::Config ConfigWith(const std::vector<std::string>& more) {
  std::vector<std::string> overrides = {"model.path=/m", "data.train_files=/d",
                                        "data.train_batch_size=8", "rollout.n=4"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  const auto loaded = LoadConfig("", overrides);
  INFO(loaded.status().ToString());
  REQUIRE(loaded.ok());
  return loaded->config;
}

TransferPlan PlanWith(const std::vector<std::string>& more, double copied = 0) {
  return PlanTransfers(SmallModel(), ConfigWith(more), int64_t{1} << 30, copied);
}

}  // namespace

TEST_CASE("Weights of one host cross shared memory, and take the time of a copy", "[plan]") {
  const TransferPlan plan = PlanWith({"cluster.trainers=2"}, 1e9);
  REQUIRE(plan.routes.size() == 2);
  const int64_t bytes = 2 * SmallModel().parameters();
  for (const PlannedRoute& route : plan.routes) {
    REQUIRE(route.trainer == route.rollout);
    REQUIRE(route.over == Carrier::kSharedMemory);
    REQUIRE_FALSE(route.between_hosts);
    REQUIRE(route.bytes == bytes);
    REQUIRE(route.seconds == Approx(static_cast<double>(bytes) / 1e9));
  }
  REQUIRE(plan.SyncSeconds() == Approx(plan.routes[0].seconds));
  REQUIRE(plan.trainers.sync_gather_bytes == 0);  // nothing crosses a network
  // What is not measured is not told.
  REQUIRE(PlanWith({"cluster.trainers=2"}).SyncSeconds() == 0);
  REQUIRE(PlanWith({}).routes[0].seconds == 0);
}

TEST_CASE("On GPUs weights cross as handles, unless shared memory is asked for", "[plan]") {
  REQUIRE(PlanWith({"trainer.device=cuda"}, 1e9).routes[0].over == Carrier::kIpc);
  REQUIRE(PlanWith({"trainer.device=cuda"}, 1e9).routes[0].seconds == 0);
  REQUIRE(PlanWith({"trainer.device=cuda", "weight_sync.transport=shm"}).routes[0].over ==
          Carrier::kSharedMemory);
  REQUIRE(PlanWith({"trainer.device=cuda", "cluster.hybrid_engine=false"}).routes[0].over ==
          Carrier::kSharedMemory);
}

TEST_CASE("TCP on one host crosses no network, and its time is not known", "[plan]") {
  const TransferPlan plan =
      PlanWith({"weight_sync.transport=tcp", "cluster.network_gbit_per_second=8"}, 1e9);
  REQUIRE(plan.routes[0].over == Carrier::kTcp);
  REQUIRE_FALSE(plan.routes[0].between_hosts);
  REQUIRE(plan.routes[0].seconds == 0);
  REQUIRE(plan.SyncSeconds() == 0);
}

TEST_CASE("Routes that leave or reach a host in one round share its network", "[plan]") {
  // Two trainers on a host, two rollouts on each of two others.
  RouteInput input{.topology = {.trainers = 2, .rollouts = 4, .apart = true, .rollout_hosts = 2},
                   .shortest_chain = 0,
                   .sync_bytes = 1'000'000'000,
                   .network_gbit_per_second = 8};
  const WorkerHosts apart{.of_trainer = {0, 0}, .of_rollout = {1, 1, 2, 2}};
  for (const PlannedRoute& route : PlanRoutes(input, apart)) {
    INFO(route.rollout);
    REQUIRE(route.trainer == route.rollout % 2);
    REQUIRE(route.round == route.rollout / 2);
    REQUIRE(route.over == Carrier::kTcp);
    REQUIRE(route.seconds == Approx(2));  // 1 GB at 1 GB/s, beside another
  }
  // Trainers on hosts of their own, rollouts of a round on one: its way in is shared.
  const WorkerHosts into{.of_trainer = {0, 1}, .of_rollout = {2, 2, 0, 3}};
  const std::vector<PlannedRoute> routes = PlanRoutes(input, into, 2e9);
  REQUIRE(routes[0].seconds == Approx(2));
  REQUIRE(routes[2].over == Carrier::kSharedMemory);
  REQUIRE(routes[2].seconds == Approx(0.5));
  REQUIRE(routes[3].seconds == Approx(1));
  input.tls = true;
  REQUIRE(PlanRoutes(input, into)[3].over == Carrier::kTcpTls);
  // A worker whose host is not known.
  const WorkerHosts missing{.of_trainer = {0, -1}, .of_rollout = {1, 1, -1, 2}};
  const std::vector<PlannedRoute> some = PlanRoutes(input, missing);
  REQUIRE(some[0].seconds == Approx(1));
  for (const size_t unknown : {1, 2, 3}) {
    REQUIRE(some[unknown].over == Carrier::kUnknown);
    REQUIRE(some[unknown].seconds == 0);
  }
}

TEST_CASE("Along a chain weights leave a trainer once, and a host's way in is used once",
          "[plan]") {
  const RouteInput input{.topology = {.trainers = 1, .rollouts = 4, .apart = true},
                         .sync_bytes = 1'000'000'000,
                         .network_gbit_per_second = 8};
  const WorkerHosts hosts{.of_trainer = {0}, .of_rollout = {1, 2, 1, 0}};
  const std::vector<PlannedRoute> routes = PlanRoutes(input, hosts);
  // Shared memory first, then 0 and 2 on one host, then 1.
  REQUIRE(routes[3].round == 0);
  REQUIRE(routes[3].over == Carrier::kSharedMemory);
  for (const size_t rollout : {0, 1, 2}) REQUIRE(routes[rollout].round == 1);
  REQUIRE(routes[0].sender == -1);
  REQUIRE(routes[2].sender == 0);
  REQUIRE(routes[1].sender == 2);
  REQUIRE_FALSE(routes[2].between_hosts);
  for (const size_t rollout : {0, 1, 2}) REQUIRE(routes[rollout].seconds == Approx(1));
  // Two are no chain yet.
  const WorkerHosts nearer{.of_trainer = {0}, .of_rollout = {1, 2, 0, 0}};
  for (const PlannedRoute& route : PlanRoutes(input, nearer)) REQUIRE(route.sender == -1);
  REQUIRE(
      PlanWith({"cluster.hybrid_engine=false", "cluster.rollouts=3", "weight_sync.transport=tcp"})
          .rounds == 1);
  REQUIRE(PlanWith({"cluster.hybrid_engine=false", "cluster.rollouts=3",
                    "weight_sync.transport=tcp", "weight_sync.fan_out=star"})
              .rounds == 3);
}

TEST_CASE("A sync takes the slowest route of each of its rounds", "[plan]") {
  TransferPlan plan{.routes = {{.round = 0, .seconds = 1},
                               {.round = 0, .seconds = 3},
                               {.round = 1, .seconds = 2}},
                    .rounds = 2};
  REQUIRE(plan.SyncSeconds() == Approx(5));
  plan.trainers.sync_gather_bytes = 5'000'000'000;
  REQUIRE(plan.SyncSeconds() == 0);
  plan.network_gbit_per_second = 16;  // the gather takes 2.5 s in each round
  REQUIRE(plan.SyncSeconds() == Approx(3 + 2.5));
  plan.routes[2].seconds = 0;
  REQUIRE(plan.SyncSeconds() == 0);
}

TEST_CASE("Where rollouts may be elsewhere the plan reckons with the network", "[plan]") {
  const std::vector<std::string> apart = {"cluster.hybrid_engine=false", "cluster.trainers=2",
                                          "cluster.rollouts=4"};
  REQUIRE(PlanWith(apart).routes[3].over == Carrier::kSharedMemory);
  REQUIRE_FALSE(PlanWith(apart).rollouts_elsewhere);
  REQUIRE(PlanWith(apart).rounds == 2);
  std::vector<std::string> hosts = apart;
  hosts.insert(hosts.end(), {"rollout.nnodes=2", "cluster.listen=127.0.0.1:0"});
  const TransferPlan plan = PlanWith(hosts);
  REQUIRE(plan.rollouts_elsewhere);
  for (const PlannedRoute& route : plan.routes) REQUIRE(route.between_hosts);
}

TEST_CASE("Trainers of several hosts send gradients and gather weights", "[plan]") {
  const ModelSpec spec = SmallModel();
  const int64_t gradients = 4 * spec.parameters(), weights = WeightGroups(spec).total();
  const std::vector<std::string> two = {"cluster.trainers=2",
                                        "trainer.nnodes=2",
                                        "cluster.listen=127.0.0.1:0",
                                        "data.max_prompt_length=64",
                                        "data.max_response_length=64",
                                        "actor.ppo_max_token_len_per_gpu=400",
                                        "actor.fsdp_config.forward_prefetch=false",
                                        "actor.fsdp_config.reshard_after_forward=true"};
  const TransferPlan plan = PlanWith(two);
  for (const PlannedRoute& route : plan.routes) REQUIRE_FALSE(route.between_hosts);
  // 32 samples, of which a trainer gets a twentieth more than its half at most: 18; three of 128
  // tokens fill a micro-batch.
  REQUIRE(plan.trainers.micro_batches == 6);
  REQUIRE(plan.trainers.sync_gather_bytes == weights / 2);
  REQUIRE(plan.trainers.gradient_bytes == 6 * gradients / 2);
  const GroupSizes groups = WeightGroups(spec);
  REQUIRE(plan.trainers.gather_bytes == (groups.global + 12 * groups.layers * groups.layer) / 2);

  std::vector<std::string> kept = two;
  kept.back() = "actor.fsdp_config.reshard_after_forward=false";
  REQUIRE(PlanWith(kept).trainers.gather_bytes == weights / 2);

  // Two hosts of two: each host's ranks send what all of them hold. Three of two: a chain of hosts.
  std::vector<std::string> four = two;
  four[0] = "cluster.trainers=4";
  REQUIRE(PlanWith(four).trainers.gradient_bytes ==
          PlanWith(four).trainers.micro_batches * gradients);
  std::vector<std::string> six = two;
  six[0] = "cluster.trainers=6";
  six[1] = "trainer.nnodes=3";
  REQUIRE(PlanWith(six).trainers.gradient_bytes ==
          PlanWith(six).trainers.micro_batches * gradients);
  std::vector<std::string> gpus = four;
  gpus.emplace_back("trainer.device=cuda");
  REQUIRE(PlanWith(gpus).trainers.gradient_bytes ==
          PlanWith(gpus).trainers.micro_batches * (gradients * 3 / 4));
}

TEST_CASE("Separate adapters are sent alone after the first sync, and summed once a step",
          "[plan]") {
  const ModelSpec spec = SmallModel();
  const std::vector<std::string> lora = {"model.lora.rank=4", "model.lora.merge=false",
                                         "cluster.trainers=2", "trainer.nnodes=2",
                                         "cluster.listen=127.0.0.1:0"};
  const TransferPlan plan = PlanWith(lora);
  REQUIRE(plan.routes[0].bytes > 0);
  REQUIRE(plan.routes[0].bytes < 2 * spec.parameters());
  REQUIRE(plan.first_sync_bytes == plan.routes[0].bytes + 2 * spec.parameters());
  REQUIRE(plan.trainers.gradient_bytes == plan.routes[0].bytes);  // twice the bytes, half of them
  std::vector<std::string> merged = lora;
  merged[1] = "model.lora.merge=true";
  REQUIRE(PlanWith(merged).routes[0].bytes == 2 * spec.parameters());
  REQUIRE(PlanWith(merged).first_sync_bytes == 2 * spec.parameters());
}

TEST_CASE("A plan of transfers is JSON, without times that are not known", "[plan]") {
  const auto json = nlohmann::json::parse(TransferPlanToJson(PlanWith({})));
  REQUIRE(json.at("routes")[0].at("over") == "shm");
  REQUIRE_FALSE(json.at("routes")[0].contains("seconds"));
  REQUIRE_FALSE(json.contains("sync_seconds"));
  REQUIRE(json.at("trainers").at("gradient_bytes") == 0);
  const auto timed = nlohmann::json::parse(TransferPlanToJson(PlanWith({}, 1e9)));
  REQUIRE(timed.at("routes")[0].at("seconds").get<double>() > 0);
  REQUIRE(timed.at("sync_seconds").get<double>() > 0);
  REQUIRE(timed.at("copied_bytes_per_second") == 1e9);
}

TEST_CASE("Memory is copied at a rate that a machine can have", "[plan]") {
  const double rate = MeasureCopyRate();
  REQUIRE(rate > 1e7);
  REQUIRE(rate < 1e13);
}

}  // namespace tandem
