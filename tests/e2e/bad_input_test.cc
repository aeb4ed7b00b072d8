// Configs and data that cannot work: refused by name before anything trains, and no process is
// left.
#include <filesystem>
#include <fstream>

#include <arpa/inet.h>
#include <catch2/catch.hpp>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/e2e/recovery.h"
#include "tests/support/text.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;

// What the launcher said; requires `code` and that nobody is left.
std::string RefusedInput(ClusterRig& rig, int code = 64) {
  const int ended = rig.Launch({"--grace", "5"}).Wait();
  const std::string said = rig.Log("launcher");
  INFO(said);
  REQUIRE(ended == code);
  REQUIRE(rig.LeftBehind() == "");
  return said;
}

void AppendRow(const ClusterRig& rig, const std::string& row) {
  std::ofstream(rig.train_file(), std::ios::app) << row << "\n";
}

TEST_CASE("a key with a typo is told with its line and the nearest key") {
  ClusterRig rig({.config = {{"rollout.temprature", "1"}}});
  RequireSaid(RefusedInput(rig), {"config.yaml:", "rollout.temprature", "rollout.temperature"});
  REQUIRE(rig.Log("controller") == "");  // nothing was started
}

TEST_CASE("key=value is an override with and without --set, and the last one counts") {
  ClusterRig rig;
  for (const std::vector<std::string>& flags : std::vector<std::vector<std::string>>{
           {"rollout.temprature=1"}, {"--dry-run", "rollout.temprature=1"}}) {
    REQUIRE(rig.Launch(flags).Wait() == 64);
    RequireSaid(rig.Log("launcher"), {"--set: rollout.temprature: unknown key"});
  }
  REQUIRE(rig.Log("controller") == "");
  REQUIRE(rig.StartController({"rollout.temprature=1"}).Wait() == 64);
  const auto resolved = [&rig](std::vector<std::string> overrides) {
    overrides.insert(overrides.begin(), {"config", "check", rig.config_file()});
    return rig.Ctl(overrides).output;
  };
  RequireSaid(resolved({"actor.optim.lr=7"}), {"lr: 7\n"});
  RequireSaid(resolved({"--set", "actor.optim.lr=7", "actor.optim.lr=8"}), {"lr: 8\n"});
  RequireSaid(resolved({"actor.optim.lr=8", "--set", "actor.optim.lr=7"}), {"lr: 7\n"});
  RequireSaid(rig.Ctl({"plan", rig.config_file(), "rollout.temprature=1"}).output,
              {"--set: rollout.temprature: unknown key"});
  RequireSaid(rig.Ctl({"config", "check", "--set", "actor.optim.lr=9", rig.config_file()}).output,
              {"lr: 9\n"});
  RequireSaid(resolved({"lr"}), {"--set: lr: an override is written key=value"});
}

TEST_CASE("a value of the wrong type and an impossible one are told") {
  ClusterRig rig({.config = {{"rollout.n", "many"}, {"actor.grad_clip", "-1"}}});
  RequireSaid(RefusedInput(rig), {"rollout.n", "actor.grad_clip", "config.yaml:"});
}

TEST_CASE("rewards that cannot work are refused before anything is launched") {
  ClusterRig rig({.config = {{"reward.function", "regex"}, {"reward.args", R"({"patern": "x"})"}}});
  RequireSaid(RefusedInput(rig), {"reward.args at ", "config.yaml:", "unknown argument patern"});
  const ClusterRig::CtlResult checked = rig.Ctl({"config", "check", rig.config_file()});
  REQUIRE(checked.code == 64);
  RequireSaid(checked.output, {"reward.args", "unknown argument patern"});
  rig.Set("reward.args", "{}");
  RequireSaid(RefusedInput(rig), {"reward.args at ", "needs the argument pattern"});
  rig.Set("reward.function", "exact");
  rig.Set("reward.terms", "[{name: nicely}]");
  RequireSaid(RefusedInput(rig),
              {"reward.terms[0]: unknown reward nicely", "(reward.terms at ", "config.yaml:"});
  REQUIRE(rig.Log("controller") == "");
}

TEST_CASE("a key without effect is noted once, and only where it is given") {
  ClusterRig rig({.config = {{"actor.kl_loss_coef", "0.01"}, {"data.train_batch_size", "1000"}}});
  const std::string note = "actor.kl_loss_coef has no effect: it needs actor.use_kl_loss=true";
  const auto count = [&note](const std::string& text) {
    int found = 0;
    for (size_t at = 0; (at = text.find(note, at)) != std::string::npos; ++at) ++found;
    return found;
  };
  REQUIRE(rig.Launch({"--dry-run"}).Wait() == 65);
  REQUIRE(count(rig.Log("launcher")) == 1);
  REQUIRE(rig.Launch().Wait() == 65);
  REQUIRE(count(rig.Log("launcher")) == 2);  // both starts
  REQUIRE(count(rig.Log("controller")) == 0);
  rig.Set("actor.use_kl_loss", "true");
  REQUIRE(rig.Launch({"--dry-run"}).Wait() == 65);
  REQUIRE(count(rig.Log("launcher")) == 2);
}

TEST_CASE("reward values that no row has are refused before anything is launched") {
  ClusterRig rig({.config = {{"algorithm.adv_estimator", "gdpo"},
                             {"algorithm.gdpo_reward_keys", "[score, length]"}}});
  RequireSaid(RefusedInput(rig), {"algorithm.gdpo_reward_keys at ",
                                  "config.yaml:", "the reward has no \"length\"", "it has acc"});
  REQUIRE(rig.Log("controller") == "");
}

TEST_CASE("rows that no reward can score are told with file and line before step 1") {
  ClusterRig rig;
  AppendRow(rig, R"({"prompt": "What is a?", "data_source": "x",)"
                 R"( "reward_model": {"ground_truth": "abc"}})");
  RequireSaid(RefusedInput(rig, 65),
              {"train.jsonl:", "ground truth \"abc\"", "last_integer needs an integer"});
  // A look at the config alone reads the data, too.
  const ClusterRig::CtlResult checked = rig.Ctl({"config", "check", rig.config_file()});
  REQUIRE(checked.code == 65);
  RequireSaid(checked.output, {"train.jsonl:", "ground truth \"abc\""});
  rig.Set("reward.function", "auto");
  const std::string said = RefusedInput(rig, 65);
  RequireSaid(said, {"train.jsonl:", "no built-in reward for data_source \"x\"", "first_integer"});
}

TEST_CASE("responses beyond the model's positions are refused before anything is launched") {
  ClusterRig rig({.config = {{"data.max_response_length", "2000"},
                             {"actor.ppo_max_token_len_per_gpu", "4000"},
                             {"rollout.max_num_batched_tokens", "4000"}}});
  RequireSaid(RefusedInput(rig, 65), {"rollout.max_model_len is 2112",
                                      "the model has 1024 positions", "max_position_embeddings"});
  const ClusterRig::CtlResult checked = rig.Ctl({"config", "check", rig.config_file()});
  REQUIRE(checked.code == 65);
  RequireSaid(checked.output, {"the model has 1024 positions"});
  REQUIRE(rig.Log("controller") == "");
}

TEST_CASE("a run directory that cannot be made is named") {
  for (const std::string where : {"/proc/run", "file/run"}) {
    ClusterRig rig;
    std::ofstream(rig.dir() / "file") << "text";
    const std::string run_dir = where.starts_with('/') ? where : (rig.dir() / where).string();
    const int code = rig.Launch({"--set", "cluster.run_dir=" + run_dir}).Wait();
    INFO(rig.Log("launcher"));
    REQUIRE(code == 74);
    // The first folder on the way that cannot be made.
    const std::string culprit = where.starts_with('/') ? run_dir : (rig.dir() / "file").string();
    RequireSaid(rig.Log("launcher"), {"cluster.run_dir: cannot make the folder " + culprit + ":"});
    REQUIRE(rig.Launch({"--dry-run", "--set", "cluster.run_dir=" + run_dir}).Wait() == 74);
  }
}

TEST_CASE("what a start refuses in cluster is refused by a dry run in the same words") {
  ClusterRig rig;
  const std::string shared = (rig.dir() / "shared").string();
  const std::string nope = (rig.dir() / "nope").string();
  const std::string pem = (rig.dir() / "text.pem").string();
  fs::create_directory(shared);
  chmod(shared.c_str(), 01777);
  std::ofstream(pem) << "no PEM\n";
  struct Case {
    std::vector<std::string> overrides;
    int code;
    std::vector<std::string> said;
  };
  for (const Case& c : std::vector<Case>{
           {{"cluster.run_dir=" + shared},
            74,
            {"cluster.run_dir: " + shared, "users of this host"}},
           {{"cluster.listen=127.0.0.1:0"}, 64, {"cluster.listen=127.0.0.1:0: the launcher must"}},
           {{"cluster.listen=unix:" + nope + "/x"}, 66, {"the folder " + nope + " does not exist"}},
           {{"cluster.tls.cert=" + pem, "cluster.tls.key=" + pem, "cluster.tls.ca=" + pem},
            64,
            {"cluster.tls.cert or --tls-cert, " + pem + ": there is no PEM certificate in it"}}}) {
    std::vector<std::string> dry = c.overrides;
    dry.push_back("--dry-run");
    for (const std::vector<std::string>& flags : {c.overrides, dry}) {
      REQUIRE(rig.Launch(flags).Wait() == c.code);
      RequireSaid(rig.Log("launcher"), c.said);
    }
  }
  REQUIRE(rig.Log("controller") == "");
  REQUIRE_FALSE(fs::exists(nope));
  REQUIRE(rig.StartController({"--listen", "unix:" + nope + "/x"}).Wait() == 66);
  REQUIRE_FALSE(fs::exists(nope));
}

TEST_CASE("a dry run of what does not fit into memory says so and ends as tandemctl plan does") {
  ClusterRig rig({.config = {{"rollout.max_num_batched_tokens", "1073741824"}}});
  const int code = rig.Launch({"--dry-run"}).Wait();
  RequireSaid(rig.Log("launcher"), {"dry run: the plan does not fit; config, model, data"});
  REQUIRE(code == 1);
  REQUIRE(rig.Ctl({"plan", rig.config_file()}).code == 1);
  rig.Set("rollout.max_num_batched_tokens", "256");
  REQUIRE(rig.Launch({"--dry-run"}).Wait() == 0);
}

TEST_CASE("a trainer without a partner is named") {
  ClusterRig rig({.config = {{"cluster.trainers", "2"}, {"cluster.rollouts", "1"}}});
  RequireSaid(RefusedInput(rig), {"trainer rank 1 has no partner rollout rank 1"});
  REQUIRE(rig.Log("controller") == "");
}

TEST_CASE("a data line that is not JSON is told with file and line") {
  ClusterRig rig;
  AppendRow(rig, "{\"prompt\": \"cut");
  RequireSaid(RefusedInput(rig, 65), {"train.jsonl:", "is not JSON"});
}

TEST_CASE("multimodal columns are refused by name") {
  ClusterRig rig;
  AppendRow(rig, R"({"prompt": "What is this?", "images": ["a.png"], "data_source": "x",)"
                 R"( "reward_model": {"ground_truth": "1"}})");
  RequireSaid(RefusedInput(rig, 65), {"train.jsonl:", "\"images\"", "not supported"});
}

TEST_CASE("local commands end with the codes of what is wrong with their inputs") {
  ClusterRig rig;
  const std::string out = (rig.dir() / "out.jsonl").string();
  const std::string bad = (rig.dir() / "bad.jsonl").string();
  std::ofstream(bad) << "no JSON\n";
  REQUIRE(rig.Launch({"--dry-run"}).Wait() == 0);  // writes the config file
  const ClusterRig::CtlResult checked = rig.Ctl({"config", "check", rig.config_file()});
  REQUIRE(checked.code == 0);
  RequireSaid(checked.output,
              {"# data.train_files: ", " rows (0 too long, 0 cut)", "# disk of ", "checkpoints "});
  REQUIRE(rig.Ctl({"config", "check", rig.config_file(), "data.train_files=/no/such.jsonl"}).code ==
          66);
  REQUIRE(rig.Ctl({"config", "check", "/no/such.yaml"}).code == 66);
  REQUIRE(rig.Ctl({"config", "check", rig.config_file(), "rollout.m=1"}).code == 64);
  REQUIRE(rig.Ctl({"config", "explain", "rollout.m"}).code == 64);
  REQUIRE(rig.Ctl({"data", "convert", "poems", bad, out}).code == 64);
  REQUIRE(rig.Ctl({"data", "convert", "math", bad, out}).code == 65);
  REQUIRE(rig.Ctl({"data", "convert", "math", "/no/such.jsonl", out}).code == 66);
  REQUIRE(rig.Ctl({"data", "make", "poems", out}).code == 64);
  REQUIRE(rig.Ctl({"import", "gguf", bad, out}).code == 65);
  REQUIRE(rig.Ctl({"import", "gguf", "/no/such.gguf", out}).code == 66);
  REQUIRE(rig.Ctl({"weights", "manifest", "/no/such/model"}).code == 66);
}

TEST_CASE("a Parquet file is told with the way to convert it") {
  ClusterRig rig;
  std::ofstream(rig.train_file()) << "PAR1" << std::string(64, '\x15') << "PAR1";
  RequireSaid(RefusedInput(rig, 65), {"train.jsonl: this is a Parquet file", "to_json("});
}

TEST_CASE("a missing data file is named") {
  ClusterRig rig;
  rig.Set("data.train_files", "/no/such/file.jsonl");
  RequireSaid(RefusedInput(rig, 66), {"data.train_files", "/no/such/file.jsonl"});
}

TEST_CASE("a batch larger than the data is refused") {
  ClusterRig rig({.config = {{"data.train_batch_size", "1000"}}});
  RequireSaid(RefusedInput(rig, 65), {"fewer than data.train_batch_size = 1000; lower it"});
}

TEST_CASE("a port that is in use is named") {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(name);
  REQUIRE(bind(fd, reinterpret_cast<sockaddr*>(&name), size) == 0);
  REQUIRE(listen(fd, 1) == 0);
  REQUIRE(getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size) == 0);
  const std::string address = "127.0.0.1:" + std::to_string(ntohs(name.sin_port));
  ClusterRig rig({.config = {{"cluster.listen", address}}});
  RequireSaid(RefusedInput(rig), {address, "in use"});
  close(fd);
}

TEST_CASE("a second controller in the same directory is refused") {
  ClusterRig rig;
  TestProcess& first = rig.StartController({"--start-paused"});
  rig.WaitForStatus("the controller to listen", [](const auto&) { return true; });
  TestProcess& second = rig.StartController({"--start-paused"});
  REQUIRE(second.Wait() == 64);
  REQUIRE(rig.Log("controller").find(" is in use (a controller, process ") != std::string::npos);
  REQUIRE(rig.Launch({"--dry-run"}).Wait() == 64);
  RequireSaid(rig.Log("launcher"), {"another controller is running in " + rig.run_dir()});
  REQUIRE(first.running());
}

TEST_CASE("a worker whose rank the run does not have is refused with 64") {
  ClusterRig rig;
  rig.StartController({"--start-paused"});
  REQUIRE(rig.StartTrainer(1).Wait() == 64);
  REQUIRE(rig.Log("trainer", 1).find("trainer 1 is out of range") != std::string::npos);
}

}  // namespace
}  // namespace tandem::testing
