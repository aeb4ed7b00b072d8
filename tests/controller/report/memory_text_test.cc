#include "controller/report/memory_text.h"

#include <catch2/catch.hpp>

#include "controller/report/format.h"
#include "controller/report/memory_html.h"
#include "tests/support/text.h"

using namespace tandem;  // NOLINT(google-build-using-namespace)

namespace {

using tandem::testing::Has;

MemoryPlan PrintedPlan() {
  MemoryPlan plan{.device_bytes = 1000, .sleep_level = 1};
  plan.phases = {{"generate", {{false, "kv_cache", Location::kDevice, 400}}},
                 {"train",
                  {{true, "master", Location::kDevice, 500},
                   {false, "weights", Location::kHost, 250},
                   {true, "optimizer", Location::kFile, 900}}}};
  plan.peak = 1;
  return plan;
}

}  // namespace

TEST_CASE("A bar has a character per share, capitals for the rollout", "[report][memory]") {
  REQUIRE(MemoryBar(PrintedPlan().phases[1].lines, 1000, 8) == "|mmmmWW  |");
  REQUIRE(MemoryBar({}, 1000, 4) == "|    |");
  // More than the full width is cut.
  REQUIRE(MemoryBar({{true, "master", Location::kDevice, 5000}}, 1000, 4) == "|mmmm|");
  REQUIRE(TagLetters(PrintedPlan().phases[1].lines) == "trainer: m master; rollout: W weights\n");
}

TEST_CASE("The text of a plan names phases, peak, decisions and what lies elsewhere",
          "[report][memory]") {
  const std::string text = MemoryPlanText(PrintedPlan());
  INFO(text);
  REQUIRE(Has(text, "75.0 %"));
  REQUIRE(Has(text, "sleeps at level 1"));
  REQUIRE(Has(text, "of optimizer in file"));
  REQUIRE(Has(text, "in train: fits"));
  MemoryPlan plan = PrintedPlan();
  plan.device_bytes = 700;
  REQUIRE(Has(MemoryPlanText(plan), "does not fit, 1 KiB too much"));
  plan.problem = "no pool";
  REQUIRE(Has(MemoryPlanText(plan), "does not fit, 1 KiB too much: no pool"));
  plan.problem = "";
  // Beside a device of its own, host memory does not count.
  plan.host_is_device = false;
  REQUIRE(plan.peak_bytes() == 500);
  REQUIRE(Has(MemoryPlanText(plan), "of weights in host memory"));
}

TEST_CASE("Advice is a table, and a list where one change is not enough", "[report][memory]") {
  REQUIRE(Has(AdviceText({}), "nothing"));
  const PlanAdvices one{.alone = {{"rollout.sleep_level=2", 1 << 20, false, true}}};
  REQUIRE(Has(AdviceText(one), "rollout.sleep_level=2"));
  REQUIRE(Has(AdviceText(one), "fits then"));
  const PlanAdvices two{.alone = {{"a=1", 1 << 20, false, false}, {"b=2", 1 << 20, false, false}},
                        .together = {{"a=1", 1 << 20, false, false}, {"b=2", 1 << 20, false, true}},
                        .least_bytes = 5 << 20};
  REQUIRE(Has(AdviceText(two), "together these fit"));
  const PlanAdvices none{.alone = {{"a=1", 1 << 20, false, false}}, .least_bytes = 7 << 20};
  REQUIRE(Has(AdviceText(none), "still need 7 MiB and have no room for a KV pool"));
  const PlanAdvices pool{.alone = {{"a=1", -(1 << 20), true, false}}, .pool = true};
  REQUIRE(Has(AdviceText(pool), "takes 1 MiB"));
  REQUIRE(Has(AdviceText(pool), "room for a KV pool then"));
}

TEST_CASE("The page holds bars for plan and run, and refers to nothing outside",
          "[report][memory]") {
  const std::string plan = MemoryHtml("a <b>", {.plan = PrintedPlan()});
  REQUIRE(Has(plan, "a &lt;b&gt;"));
  REQUIRE(Has(plan, "<rect"));
  REQUIRE(Has(plan, "in train: fits"));
  REQUIRE_FALSE(Has(plan, "What to change"));
  MemoryPlan tight = PrintedPlan();
  tight.device_bytes = 700;
  const PlanAdvices advices{
      .alone = {{"rollout.sleep_level=2", 1 << 20}, {"a=1", 1 << 20}},
      .together = {{"rollout.sleep_level=2", 1 << 20}, {"a=1", 1 << 20, false, true}}};
  const std::string advised = MemoryHtml("c", {.plan = tight}, advices);
  REQUIRE(Has(advised, "What to change"));
  REQUIRE(Has(advised, "<td>rollout.sleep_level=2</td><td>saves 1 MiB</td>"));
  REQUIRE(Has(advised, "together these fit"));
  StepMemory memory{.step = 1, .state = "run, step 1", .plan = PrintedPlan()};
  memory.phases = {
      {"train",
       2.0,
       600,
       {{true,
         1,
         {.entries = {{"master", Location::kDevice, 480, 480}}, .memory_peak_bytes = 480}}}}};
  const std::string both = MemoryHtml("run", memory);
  REQUIRE(Has(both, "train, planned"));
  REQUIRE(Has(both, "train, measured"));
  memory.note = NoteOnStep(1);
  REQUIRE(Has(MemoryHtml("run", memory), "optimizer&#39;s state") !=
          Has(MemoryHtml("run", memory), "optimizer's state"));
  REQUIRE(Has(StepMemoryText(memory), "step 1 makes the optimizer's state"));
  REQUIRE(NoteOnStep(2).empty());
  for (const std::string& page : {plan, both, advised}) {
    for (const char* outside : {"http", "src=", "href", "<script", "@import", "url("}) {
      REQUIRE_FALSE(Has(page, outside));
    }
  }
}

TEST_CASE("Measured bars leave out what planned bars leave out: beside a GPU, host memory",
          "[report][memory]") {
  StepMemory memory{.step = 2, .state = "run, step 2", .plan = PrintedPlan()};
  const auto measure = [&](int64_t driver_bytes) {
    memory.plan.host_is_device = driver_bytes == 0;
    const LedgerSnapshot trainer = {.entries = {{"master", Location::kDevice, 480, 480},
                                                {"optimizer", Location::kFile, 900, 900}},
                                    .device_peak_bytes = 480,
                                    .memory_peak_bytes = 480,
                                    .driver_total_bytes = driver_bytes};
    const LedgerSnapshot rollout = {.entries = {{"weights", Location::kHost, 250, 250}},
                                    .memory_peak_bytes = 250,
                                    .driver_total_bytes = driver_bytes};
    memory.phases = {{"train", 2.0, 0, {{true, 0, trainer}, {false, 0, rollout}}}};
  };
  for (const int64_t driver_bytes : {0, 1000}) {
    measure(driver_bytes);
    const bool on_host = driver_bytes == 0;
    const std::string text = StepMemoryText(memory), html = MemoryHtml("run", memory);
    INFO(text << html);
    REQUIRE(Has(text, "trainer: m master;"));
    REQUIRE(Has(text, "W weights") == on_host);
    REQUIRE(Has(html, "<title>trainer master: "));
    REQUIRE(Has(html, "<title>rollout weights: ") == on_host);
    REQUIRE_FALSE(Has(html, "<title>trainer optimizer: "));
    // The table of tags still has all.
    REQUIRE(text.find("weights", text.find("tag ")) != std::string::npos);
  }
}

TEST_CASE("Apart, devices, roles and the fuller device are told", "[memory]") {
  MemoryPlan plan = PrintedPlan();
  plan.apart = true;
  const std::string text = MemoryPlanText(plan);
  REQUIRE(Has(text, "memory plan of a trainer and a rollout, device of "));
  REQUIRE(Has(text, " each\n"));
  REQUIRE(Has(text, "fuller"));
  REQUIRE(Has(text, "trainer and rollout have a device each, and the rollout never sleeps"));
  const PlannedPhase& peak = plan.phases[plan.peak];
  const bool trainers = plan.Bytes(peak, true) >= plan.Bytes(peak, false);
  REQUIRE(Has(MemoryPlanSummary(plan),
              trainers ? ", on the trainer's device: " : ", on the rollout's device: "));

  // The heaviest of each role need not have the same rank.
  StepMemory memory{.step = 1, .state = "run, step 1", .plan = plan};
  const auto of = [](int64_t bytes) { return LedgerSnapshot{.memory_peak_bytes = bytes}; };
  memory.phases = {
      {"train",
       2.0,
       900,
       {{true, 0, of(900)}, {true, 1, of(100)}, {false, 0, of(200)}, {false, 2, of(500)}}}};
  const ShownWorkers shown = HeaviestWorkers(memory.phases, true);
  REQUIRE(shown.Text() == "trainer 0 and rollout 2");
  REQUIRE(PairOf(memory.phases[0], shown).peak_bytes() == 900);
  REQUIRE(Has(StepMemoryText(memory), "run, step 1, trainer 0 and rollout 2, device of "));
  REQUIRE(HeaviestWorkers(memory.phases, false).Text() == "pair 0");

  // Tags that have their peaks one after the other: a device's bar says its own peak, not the sum.
  constexpr int64_t kMiB = 1 << 20;
  LedgerSnapshot trainer = of(900 * kMiB);
  trainer.entries = {{"master", Location::kDevice, 0, 600 * kMiB},
                     {"gather", Location::kDevice, 0, 500 * kMiB}};
  memory.phases = {{"train", 2.0, 900 * kMiB, {{true, 0, trainer}, {false, 0, of(200 * kMiB)}}}};
  const std::string html = MemoryHtml("run", memory);
  const std::string bars = html.substr(0, html.find("<table>"));
  INFO(bars);
  REQUIRE(Has(bars, ">900 MiB<"));
  REQUIRE(Has(bars, ">200 MiB<"));
  REQUIRE_FALSE(Has(bars, ">" + FormatBytes(1100 * kMiB) + "<"));
}

TEST_CASE("On a GPU peaks are the device's, and what no ledger counts of it is shown") {
  constexpr int64_t kKiB = 1024;
  StepMemory memory{.step = 1, .state = "run, step 1", .plan = PrintedPlan()};
  const LedgerSnapshot trainer = {.device_bytes = 300 * kKiB,
                                  .device_peak_bytes = 350 * kKiB,
                                  .memory_bytes = 900 * kKiB,
                                  .memory_peak_bytes = 990 * kKiB,
                                  .driver_total_bytes = 1000 * kKiB,
                                  .driver_free_bytes = 420 * kKiB};
  LedgerSnapshot rollout = {
      .device_bytes = 200 * kKiB, .device_peak_bytes = 200 * kKiB, .memory_peak_bytes = 500 * kKiB};
  rollout.driver_total_bytes = 1000 * kKiB;  // it has rested, and not asked
  memory.phases = {{"train", 2.0, 550 * kKiB, {{true, 0, trainer}, {false, 0, rollout}}}};
  const PairMemory pair = PairOf(memory.phases[0], {});
  REQUIRE(pair.peak_bytes() == 550 * kKiB);
  const std::string line = DriverLines(pair);
  REQUIRE(Has(line, "580 KiB of 1000 KiB in use; 80 KiB of it is in neither ledger"));
  REQUIRE(Has(StepMemoryText(memory), line));
  memory.phases[0].workers[0].ledger.driver_free_bytes = 0;
  REQUIRE(DriverLines(PairOf(memory.phases[0], {})).empty());
}
