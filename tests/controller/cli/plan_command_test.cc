#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "controller/cli/memory_command.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

using namespace tandem;  // NOLINT(google-build-using-namespace)

namespace {

using tandem::testing::Says;

constexpr int64_t kPlanCommandGib = int64_t{1} << 30;

std::string Config(const char* name) { return std::string("configs/") + name; }

PlanOptions SevenB(const std::string& memory) {
  return {.config = Config("gsm8k_7b_4x80gb.yaml"),
          .overrides = {"model.path=configs/models/qwen2-7b"},
          .device_memory = memory};
}

// The `--set` of an advice: "a=1 b=1 (with a device each)" are two.
void Follow(const nlohmann::json& advice, PlanOptions& options) {
  std::istringstream words(advice.at("setting").get<std::string>());
  for (std::string word; words >> word;) {
    if (word.find('=') != std::string::npos) options.overrides.push_back(word);
  }
}

nlohmann::json PlanOf(PlanOptions options) {
  options.json = true;
  std::ostringstream out;
  const PlanOutcome outcome = PlanCommand(options, out);
  INFO(outcome.error.ToString());
  REQUIRE(outcome.error.ok());
  nlohmann::json json = nlohmann::json::parse(out.str());
  REQUIRE(outcome.exit_code == (json.at("fits").get<bool>() ? 0 : 1));
  return json;
}

int ExitOf(const PlanOptions& options) {
  std::ostringstream out;
  const PlanOutcome outcome = PlanCommand(options, out);
  REQUIRE_FALSE(outcome.error.ok());
  return outcome.exit_code;
}

}  // namespace

TEST_CASE("A plan of adapters on modules that the model lacks is refused", "[ctl][plan]") {
  PlanOptions options = SevenB("80GiB");
  options.overrides.insert(options.overrides.end(),
                           {"model.lora.rank=8", "model.lora.target_modules=[c_attn]",
                            "actor.use_kl_loss=false", "ref.offload=false"});
  std::ostringstream out;
  const PlanOutcome outcome = PlanCommand(options, out);
  INFO(outcome.error.ToString());
  REQUIRE(Says(outcome.error, "c_attn"));
  REQUIRE(out.str().empty());
}

TEST_CASE("The 7B configuration plans from its config.json alone, and fits 80 GiB", "[ctl][plan]") {
  std::ostringstream out;
  const PlanOutcome outcome = PlanCommand(SevenB("80GiB"), out);
  INFO(outcome.error.ToString() << out.str());
  REQUIRE(outcome.error.ok());
  REQUIRE(outcome.exit_code == 0);
  for (const char* part :
       {"generate", "reference", "train", "optimize", "sync", "check", "wake", "save", "fits",
        "sleeps at level 2", "of reference in file", "80.00 GiB"}) {
    REQUIRE(out.str().find(part) != std::string::npos);
  }
}

TEST_CASE("A plan for a GPU has lines for scratch, the driver and libraries", "[ctl][plan]") {
  PlanOptions options = SevenB("80GiB");
  options.overrides.emplace_back("trainer.device=cuda");
  std::ostringstream out;
  REQUIRE(PlanCommand(options, out).exit_code == 0);
  INFO(out.str());
  for (const char* part : {"start", "workspace: head", "workspace: attention", "workspace: uploads",
                           "driver: context", "driver: graphs", "driver: NCCL",
                           "estimates, counted in no ledger", "of reference in host memory"}) {
    REQUIRE(out.str().find(part) != std::string::npos);
  }
  REQUIRE(out.str().find("in file") == std::string::npos);
  // auto is the CPU.
  options.overrides.back() = "trainer.device=auto";
  std::ostringstream host;
  REQUIRE(PlanCommand(options, host).error.ok());
  REQUIRE(host.str().find("driver") == std::string::npos);
}

TEST_CASE("What does not fit says what to change", "[ctl][plan]") {
  std::ostringstream out;
  REQUIRE(PlanCommand(SevenB("40GiB"), out).exit_code == 1);
  INFO(out.str());
  REQUIRE(out.str().find("does not fit") != std::string::npos);
  REQUIRE(out.str().find("too much") != std::string::npos);
  REQUIRE(out.str().find("optimizer_offload=true") != std::string::npos);
}

TEST_CASE("What advice says to fit does fit, the KV pool too", "[ctl][plan]") {
  int alone = 0, together = 0, pools = 0;
  for (const char* memory : {"16GiB", "20GiB", "30GiB", "48GiB"}) {
    for (const char* share : {"0.05", "0.25", "0.7"}) {
      PlanOptions options = SevenB(memory);
      options.overrides.push_back(std::string("rollout.gpu_memory_utilization=") + share);
      const nlohmann::json plan = PlanOf(options);
      INFO(memory << " " << share);
      pools += plan.at("problem").get<std::string>().empty() ? 0 : 1;
      for (const nlohmann::json& advice : plan.at("advice")) {
        PlanOptions changed = options;
        Follow(advice, changed);
        INFO(advice.dump());
        const nlohmann::json then = PlanOf(changed);
        REQUIRE(then.at("fits") == advice.at("enough"));
        REQUIRE(plan.at("peak_bytes").get<int64_t>() - then.at("peak_bytes").get<int64_t>() ==
                advice.at("saved_bytes").get<int64_t>());
        alone += advice.at("enough").get<bool>() ? 1 : 0;
      }
      if (plan.at("together").empty()) continue;
      PlanOptions changed = options;
      std::set<std::string> keys;
      for (const nlohmann::json& advice : plan.at("together")) {
        Follow(advice, changed);
        const auto setting = advice.at("setting").get<std::string>();
        REQUIRE(keys.insert(setting.substr(0, setting.find('='))).second);
      }
      REQUIRE(PlanOf(changed).at("fits").get<bool>());
      ++together;
    }
  }
  REQUIRE(alone > 0);
  REQUIRE(together > 0);
  REQUIRE(pools > 0);
}

TEST_CASE("A plan is JSON and a page for those who ask", "[ctl][plan]") {
  const testing::TempDir dir;
  PlanOptions options = SevenB("80GiB");
  options.html = (dir.path() / "plan.html").string();
  const nlohmann::json json = PlanOf(options);
  REQUIRE(json.at("device_bytes").get<int64_t>() == 80 * kPlanCommandGib);
  REQUIRE(json.at("fits").get<bool>());
  int64_t most = 0;
  for (const nlohmann::json& phase : json.at("phases")) {
    most = std::max(most, phase.at("bytes").get<int64_t>());
  }
  REQUIRE(json.at("peak_bytes").get<int64_t>() == most);
  REQUIRE(std::filesystem::file_size(options.html) > 1000);
}

TEST_CASE("A plan tells what crosses between workers, and times only by what it knows",
          "[ctl][plan]") {
  PlanOptions options = SevenB("80GiB");
  std::ostringstream out;
  REQUIRE(PlanCommand(options, out).exit_code == 0);
  INFO(out.str());
  REQUIRE(out.str().find("trainer 3 to rollout 3") != std::string::npos);
  REQUIRE(out.str().find("just measured") == std::string::npos);  // another machine's memory
  const nlohmann::json elsewhere = PlanOf(options).at("transfers");
  REQUIRE(elsewhere.at("routes").size() == 4);
  REQUIRE(elsewhere.at("routes")[0].at("over") == "shm");
  REQUIRE_FALSE(elsewhere.at("routes")[0].contains("seconds"));
  REQUIRE_FALSE(elsewhere.contains("sync_seconds"));

  options.device_memory.clear();
  std::ostringstream here;
  REQUIRE(PlanCommand(options, here).error.ok());
  INFO(here.str());
  REQUIRE(here.str().find("just measured") != std::string::npos);
  REQUIRE(PlanOf(options).at("transfers").at("routes")[0].at("seconds").get<double>() > 0);

  options = SevenB("80GiB");
  options.overrides.insert(options.overrides.end(),
                           {"trainer.nnodes=2", "cluster.listen=127.0.0.1:0"});
  std::ostringstream network;
  REQUIRE(PlanCommand(options, network).exit_code == 0);
  INFO(network.str());
  REQUIRE(network.str().find("cluster.network_gbit_per_second=G") != std::string::npos);
  options.overrides.emplace_back("cluster.network_gbit_per_second=25");
  std::ostringstream known;
  REQUIRE(PlanCommand(options, known).exit_code == 0);
  REQUIRE(known.str().find("by cluster.network_gbit_per_second=25 alone") != std::string::npos);
}

TEST_CASE("A plan refuses what it cannot read, with the exit codes of a run", "[ctl][plan]") {
  PlanOptions options = SevenB("80");
  std::ostringstream out;
  REQUIRE(Says(PlanCommand(options, out).error, "--device-memory: \"80\" is 80 bytes"));
  REQUIRE(ExitOf(options) == 64);
  // The host's memory says nothing of a GPU's.
  options = SevenB("");
  options.overrides.emplace_back("trainer.device=cuda");
  REQUIRE(Says(PlanCommand(options, out).error, "--device-memory"));
  REQUIRE(ExitOf(options) == 64);
  options = SevenB("80GiB");
  options.overrides.emplace_back("rollout.sleep_level=3");
  REQUIRE(ExitOf(options) == 64);
  options.overrides = {"model.path=nonexistent"};
  REQUIRE(Says(PlanCommand(options, out).error, "model.path: "));
  REQUIRE(Says(PlanCommand(options, out).error, "/nonexistent/config.json"));
  REQUIRE(Says(PlanCommand(options, out).error, "a relative path starts at the current directory"));
  REQUIRE(ExitOf(options) == 66);
  options = SevenB("80GiB");
  options.config = "configs";
  REQUIRE(Says(PlanCommand(options, out).error, "is a directory"));
  REQUIRE(ExitOf(options) == 66);
  options.config += "/nonexistent.yaml";
  REQUIRE(ExitOf(options) == 66);
}

TEST_CASE("A model of absurd size is refused with key and bound", "[ctl][plan]") {
  const testing::TempDir dir;
  std::ofstream(dir.path() / "config.json")
      << R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "vocab_size": 100,
             "num_attention_heads": 4, "num_hidden_layers": 1000000000000})";
  PlanOptions options = SevenB("80GiB");
  options.overrides = {"model.path=" + dir.path().string()};
  std::ostringstream out;
  REQUIRE(Says(PlanCommand(options, out).error, "num_hidden_layers is 1000000000000"));
  REQUIRE(ExitOf(options) == 65);
}
