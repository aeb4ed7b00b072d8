#include "controller/cli/print_tables.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "controller/report/format.h"
#include "tests/support/text.h"

using namespace tandem;  // NOLINT(google-build-using-namespace)
using tandem::testing::Has;

TEST_CASE("StatusTable shows every worker", "[ctl][print]") {
  v1::GetStatusResponse status;
  status.set_run_id("r");
  status.set_state("running");
  v1::WorkerStatus* worker = status.add_workers();
  worker->mutable_worker()->set_role(v1::ROLE_ROLLOUT);
  worker->mutable_worker()->set_rank(1);
  worker->mutable_worker()->set_incarnation(3);
  worker->set_device("cpu:1");
  worker->set_version(-1);
  worker->set_numerics_class("cpu-amx32-bf16");
  worker->set_kernel_set("amx-emulated");
  worker->mutable_ledger()->set_process_bytes(int64_t{300} << 20);
  worker->mutable_progress()->set_activity("attention, layer 7");
  worker->mutable_progress()->set_still_seconds(3);
  const std::string text = StatusTable(status);
  REQUIRE(Has(text, "rollout"));
  REQUIRE(Has(text, "attention, layer 7"));
  REQUIRE_FALSE(Has(text, "no progress"));
  worker->mutable_progress()->set_still_seconds(42);
  REQUIRE(Has(StatusTable(status), "attention, layer 7, no progress for " + FormatSeconds(42)));
  REQUIRE(Has(text, "cpu:1"));
  REQUIRE(Has(text, "300 MiB"));
  REQUIRE(Has(text, "cpu-amx32-bf16"));
  REQUIRE(Has(text, "amx-emulated"));
}

TEST_CASE("StatusTable names the nodes of workers where there are several", "[ctl][print]") {
  v1::GetStatusResponse status;
  for (const char* node : {"gpu-7", "gpu-7"}) status.add_workers()->set_node(node);
  REQUIRE_FALSE(Has(StatusTable(status), "gpu-7"));
  status.mutable_workers(1)->set_node("gpu-8");
  const std::string text = StatusTable(status);
  REQUIRE(Has(text, "node"));
  REQUIRE(Has(text, "gpu-7"));
  REQUIRE(Has(text, "gpu-8"));
}

TEST_CASE("StatusTable has what a sync took beside what its route should take", "[ctl][print]") {
  v1::GetStatusResponse status;
  REQUIRE_FALSE(Has(StatusTable(status), "last sync"));
  v1::WeightRoute* route = status.add_routes();
  route->set_trainer(0);
  route->set_rollout(2);
  route->set_over("tcp-tls");
  route->set_bytes(int64_t{300} << 20);
  const std::string before = StatusTable(status);
  REQUIRE(Has(before, "trainer 0 to rollout 2"));
  REQUIRE(Has(before, "tcp-tls"));
  REQUIRE(Has(before, "300 MiB"));
  route->set_expected_seconds(0.25);
  route->mutable_last()->set_version(4);
  route->mutable_last()->set_bytes(int64_t{299} << 20);
  route->mutable_last()->set_seconds(0.75);
  route->mutable_last()->set_time("2026-01-02T03:04:05Z");
  const std::string text = StatusTable(status);
  for (const std::string part :
       {FormatSeconds(0.25), std::string("299 MiB"), std::string("0.75"), std::string("2026-01")}) {
    INFO(text << part);
    REQUIRE(Has(text, part));
    REQUIRE_FALSE(Has(before, part));
  }
}

TEST_CASE("StatusTable has a row per rollout and trainer that told its load", "[ctl][print]") {
  v1::GetStatusResponse status;
  v1::WorkerStatus* rollout = status.add_workers();
  rollout->mutable_worker()->set_role(v1::ROLE_ROLLOUT);
  rollout->mutable_worker()->set_rank(1);
  REQUIRE_FALSE(Has(StatusTable(status), "KV used"));
  rollout->set_phase("serving");
  rollout->set_version(3);
  rollout->set_tokens_per_second(531.6);
  v1::GenerationLoad* load = rollout->mutable_generation();
  load->set_queued(2);
  load->set_running(8);
  load->set_waiting(12);
  load->set_preemptions(4);
  load->set_kv_blocks(100);
  load->set_kv_blocks_used(45);
  load->set_prefix_hit_tokens(1234);
  REQUIRE(Has(StatusTable(status),
              "rollout    state  version  queue  running  waiting  preempted  KV used  KV free  "
              "prefix hits  tokens/s\n"
              "1        serving        3      2        8       12          4       45       55     "
              "1234 tok       532\n"));
  REQUIRE_FALSE(Has(StatusTable(status), "last collective"));
  v1::WorkerStatus* trainer = status.add_workers();
  trainer->mutable_worker()->set_role(v1::ROLE_TRAINER);
  trainer->set_phase("train");
  trainer->set_version(3);
  v1::TrainingLoad* training = trainer->mutable_training();
  training->set_shard_bytes(12 << 20);
  REQUIRE(Has(StatusTable(status), "0        train        3      -  12 MiB                -\n"));
  training->set_layer("layer 7");
  training->mutable_last_collective()->set_name("all-gather");
  training->mutable_last_collective()->set_bytes(3 << 20);
  training->mutable_last_collective()->set_seconds(0.25);
  REQUIRE(Has(StatusTable(status), "layer 7  12 MiB  all-gather of 3 MiB, 250 ms ago\n"));
  training->mutable_last_collective()->set_running(true);
  REQUIRE(Has(StatusTable(status), "all-gather of 3 MiB, for 250 ms\n"));
}

TEST_CASE("The status tells which steps a recovery has lost, until they are made again",
          "[ctl][print]") {
  v1::GetStatusResponse status;
  status.set_state("paused");
  status.set_step(2);
  REQUIRE(NotMadeAgainText(status).empty());
  status.set_last_lost_step(4);
  REQUIRE(Has(NotMadeAgainText(status), "undone: steps 3 to 4 were lost in a recovery"));
  REQUIRE(Has(NotMadeAgainText(status), "; tandemctl run 2 makes them again\n"));
  status.set_state("running");
  REQUIRE_FALSE(Has(NotMadeAgainText(status), "tandemctl run"));
  status.set_step(3);
  REQUIRE(Has(NotMadeAgainText(status), "undone: step 4 was lost"));
  status.set_made_step(4);  // is being saved
  REQUIRE(NotMadeAgainText(status).empty());
  REQUIRE(Has(StatusTable(status), "step 4/0 (made, being saved or validated)"));
  status.set_step(4);
  REQUIRE(NotMadeAgainText(status).empty());
}

TEST_CASE("SamplesTable and StepsTable show numbers and gaps", "[ctl][print]") {
  v1::ListStepsResponse steps;
  v1::StepRecord* step = steps.add_steps();
  step->set_step(4);
  (*step->mutable_metrics())["critic/rewards/mean"] = 0.125;
  (*step->mutable_metrics())["actor/loss"] = -0.25;
  (*step->mutable_metrics())["actor/lr"] = 5e-6;
  (*step->mutable_metrics())["actor/pg_clipfrac"] = 0.75;
  REQUIRE(Has(StepsTable(steps),
              "step  version  reward  length   loss  pg_loss  kl_loss  entropy  ppo_kl  clipfrac  "
              "grad_norm     lr  seconds\n"
              "4           0   0.125       -  -0.25        -        -        -       -      0.75  "
              "        -  5e-06        -\n"));
  REQUIRE(Has(StepsTable(steps), "-"));
  REQUIRE_FALSE(Has(StepsTable(steps), "sent again"));
  (*step->mutable_metrics())["weights/resent_rollouts"] = 2;
  REQUIRE(Has(StepsTable(steps), "step 4: weights were sent again to 2 rollout(s)"));
  REQUIRE_FALSE(Has(StepsTable(steps), "tail"));
  (*step->mutable_metrics())["partial/tail_share"] = 0.5;
  REQUIRE(Has(StepsTable(steps), "the tail of generation left 50 % of the slots empty\n"));
  v1::ListSamplesResponse samples;
  samples.add_samples()->set_response("13");
  samples.set_total(64);
  REQUIRE(Has(SamplesTable(samples, 20), "1 of 64 samples"));
}

TEST_CASE("StepsTable and the status show partial rollout where there is some",
          "[ctl][print][partial]") {
  v1::ListStepsResponse steps;
  REQUIRE(NewestStepText(steps).empty());
  for (const int64_t number : {4, 5}) {
    v1::StepRecord* step = steps.add_steps();
    step->set_step(number);
    (*step->mutable_metrics())["partial/tail_share"] = 0.5;
  }
  REQUIRE(NewestStepText(steps).empty());
  REQUIRE_FALSE(Has(StepsTable(steps), "partial rollout"));
  auto& newest = *steps.mutable_steps(1)->mutable_metrics();
  newest["partial/rounds"] = 2;
  newest["partial/carried_groups"] = 5;
  newest["partial/carried_samples"] = 17;
  REQUIRE(NewestStepText(steps) ==
          "partial rollout in step 5: 2 rounds, 5 groups carried (17 samples)\n");
  const std::string table = StepsTable(steps);
  REQUIRE(Has(table, "partial rollout\nstep  rounds  ahead  groups carried"));
  REQUIRE(Has(table, "partial rollout: 2 rounds in 1 step, "));
  REQUIRE(Has(table, "50 % of the slots empty, and 50 % in the steps without it\n"));
}

TEST_CASE("SamplesTable shows which weights sampled how many tokens", "[ctl][print][partial]") {
  v1::ListSamplesResponse samples;
  v1::SampleRecord* sample = samples.add_samples();
  sample->set_weight_version(3);
  const auto add = [&](int64_t version, int64_t tokens) {
    v1::Segment* const segment = sample->add_segments();
    segment->set_weight_version(version);
    segment->set_length(tokens);
  };
  add(3, 120);
  REQUIRE(Has(SamplesTable(samples, 20), " 3\n"));
  REQUIRE_FALSE(Has(SamplesTable(samples, 20), "v3"));
  add(3, 7);  // after a tool's output
  REQUIRE_FALSE(Has(SamplesTable(samples, 20), "v3"));
  add(4, 57);
  add(6, 1);
  REQUIRE(Has(SamplesTable(samples, 20), "v3:127 v4:57 v6:1\n"));
  const auto json = nlohmann::json::parse(ToJsonText(samples));
  REQUIRE(json.at("samples").at(0).at("segments").at(2).at("weight_version") == "4");
  REQUIRE(json.at("samples").at(0).at("segments").at(2).at("length") == "57");
}

TEST_CASE("A pause says what happens next, wherever the run stands", "[ctl][print]") {
  v1::GetStatusResponse status;
  status.set_total_steps(20);
  status.set_state("starting");
  REQUIRE(PauseText(status).find("pausing before the first step: the workers start") == 0);
  REQUIRE(Has(PauseText(status), "waits for `tandemctl resume`"));
  status.set_state("paused");
  status.set_step(3);
  REQUIRE(PauseText(status) == "paused; 3 of 20 steps are finished\n");
  status.set_phase("train");
  REQUIRE(PauseText(status) ==
          "pausing when the step in progress (phase train) has ended; "
          "3 of 20 steps are finished\n");
  status.set_state("finished");
  REQUIRE(PauseText(status).find("nothing to pause: the run has finished") == 0);
}

TEST_CASE("ToJsonText is JSON with the names of the proto", "[ctl][print]") {
  v1::GetStatusResponse status;
  status.set_total_steps(7);
  const auto json = nlohmann::json::parse(ToJsonText(status));
  REQUIRE(json.at("total_steps") == "7");  // 64-bit integers are strings in protobuf's JSON
  REQUIRE(json.contains("run_id"));
}
