#include "tests/support/cluster_rig.h"

#include <algorithm>
#include <csignal>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "controller/data/datasets.h"
#include "controller/store/batch_file.h"
#include "tests/support/build_folder.h"
#include "tests/support/free_port.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;

constexpr char kMark[] = "TANDEM_RIG";  // in the environment of everything that a rig starts

void ThrowUnlessOk(const absl::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

std::map<std::string, std::string> BaseConfig(const ClusterRig& rig) {
  return {{"model.path", rig.model_dir()},
          {"data.train_files", rig.train_file()},
          {"data.max_prompt_length", "112"},
          {"data.max_response_length", "8"},
          {"data.train_batch_size", "4"},
          {"rollout.n", "4"},
          {"rollout.max_num_seqs", "8"},
          {"rollout.max_num_batched_tokens", "256"},
          {"rollout.gpu_memory_utilization", "0.05"},
          {"actor.ppo_max_token_len_per_gpu", "512"},
          {"actor.optim.lr", "0.0005"},
          {"reward.function", "last_integer"},
          {"reward.terms", "[{name: format, weight: 1, args: {pattern: \"[a-m]\"}}]"},
          {"trainer.total_training_steps", "3"},
          {"trainer.save_freq", "1"},
          {"trainer.max_actor_ckpt_to_keep", "0"},
          {"trainer.val_before_train", "false"},
          {"trainer.console_freq", "1"},
          {"cluster.heartbeat_seconds", "0.1"},
          {"cluster.heartbeat_timeout_seconds", "15"},
          {"cluster.rpc_timeout_seconds", "60"},
          {"cluster.compute_threads", "1"}};
}

std::string ReadProc(const std::string& pid, const std::string& name) {
  std::string text = FileText("/proc/" + pid + "/" + name);
  std::replace(text.begin(), text.end(), '\0', ' ');
  return text;
}

}  // namespace

ClusterRig::ClusterRig(const RigOptions& options)
    : model_dir_(options.model_path.empty() ? std::string(dir_.path() / "model")
                                            : options.model_path),
      programs_(BuildFolder("bin")) {
  if (options.model_path.empty()) ThrowUnlessOk(WriteTinyModel(model_dir(), options.model));
  const auto files = MakeAddition(dir() / "data", {.max_operand = options.max_operand});
  ThrowUnlessOk(files.status());
  config_ = BaseConfig(*this);
  if (options.validation) {
    Set("data.val_files", files->val_path);
    Set("trainer.val_before_train", "true");
    Set("trainer.test_freq", "1");
  }
  for (const auto& [key, value] : options.config) Set(key, value);
  env_[kMark] = dir();
}

ClusterRig::~ClusterRig() {
  processes_.clear();
  // What a killed launcher left is dying: the folder goes when nobody writes into it any more.
  LeftBehind();
}

void ClusterRig::Set(const std::string& key, const std::string& value) { config_[key] = value; }

void ClusterRig::SetPairs(int pairs) {
  Set("cluster.trainers", std::to_string(pairs));
  Set("cluster.rollouts", std::to_string(pairs));
}

void ClusterRig::SetApart(int trainers, int rollouts) {
  Set("cluster.hybrid_engine", "false");
  Set("cluster.trainers", std::to_string(trainers));
  Set("cluster.rollouts", std::to_string(rollouts));
}

void ClusterRig::ListenOnPort() {
  port_address_ = fmt::format("127.0.0.1:{}", FreePort("127.0.0.1"));
  Set("cluster.listen", port_address_);
}

void ClusterRig::SetFault(const std::string& role,
                          int rank,
                          const std::string& point,
                          int nth,
                          const std::string& action) {
  env_.erase("TANDEM_FAULT");
  AddFault(role, rank, point, nth, action);
}

void ClusterRig::AddFault(const std::string& role,
                          int rank,
                          const std::string& point,
                          int nth,
                          const std::string& action) {
  const std::string marker = dir() / fmt::format("fault-{}", ++faults_);
  std::string& faults = env_["TANDEM_FAULT"];
  faults += fmt::format("{}{}:{}:{}:{}:{}:{}", faults.empty() ? "" : ",", role, rank, point, nth,
                        action, marker);
}

bool ClusterRig::FaultFired() const { return fs::exists(dir() / fmt::format("fault-{}", faults_)); }

void ClusterRig::ReleaseFault(int number) const {
  std::ofstream(dir() / fmt::format("fault-{}.go", number == 0 ? faults_ : number)) << "go";
}

void ClusterRig::WaitForFault(const std::string& what, TestProcess& run) const {
  WaitForFault(what, [&run] { return !run.running(); });
}

void ClusterRig::WaitForFault(const std::string& what, const std::function<bool()>& over) const {
  WaitUntil(what, [&] {
    if (FaultFired()) return true;
    if (!over() || FaultFired()) return false;
    throw std::runtime_error("the run ended before " + what + ":\n" + EndsOfLogs());
  });
}

std::vector<std::string> ClusterRig::ConfigFlags() const {
  std::ofstream file(config_file());
  for (const auto& [key, value] : config_) file << key << ": " << value << "\n";
  return {"--config", config_file(), "--set", "cluster.run_dir=" + run_dir()};
}

TestProcess& ClusterRig::Start(const std::string& program,
                               const std::vector<std::string>& arguments,
                               const std::string& output) {
  fs::create_directories(run_dir());
  ProcessOptions options{.argv = {programs_ + "/" + program},
                         .env = env_,
                         .output = output,
                         .file_size_limit = file_size_limit_};
  options.argv.insert(options.argv.end(), arguments.begin(), arguments.end());
  return *processes_.emplace_back(std::make_unique<TestProcess>(std::move(options)));
}

TestProcess& ClusterRig::Launch(const std::vector<std::string>& flags) {
  std::vector<std::string> arguments = ConfigFlags();
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  return Start("tandem-launcher", arguments, launcher_log());
}

TestProcess& ClusterRig::StartController(const std::vector<std::string>& flags) {
  std::vector<std::string> arguments = ConfigFlags();
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  if (!node_.empty()) arguments.insert(arguments.end(), {"--node", node_});
  fs::create_directories(run_dir() + "/logs");
  return Start("tandem-controller", arguments, run_dir() + "/logs/controller-0.log");
}

TestProcess& ClusterRig::StartWorker(const std::string& role, int rank) {
  fs::create_directories(run_dir() + "/logs");
  const std::string device = device_.empty() ? fmt::format("cpu:{}", rank) : device_;
  std::vector<std::string> arguments = {"--controller", controller_address(), "--role",   role,
                                        "--rank",       std::to_string(rank), "--device", device};
  if (!node_.empty()) arguments.insert(arguments.end(), {"--node", node_});
  if (!port_address_.empty()) arguments.insert(arguments.end(), {"--token-file", token_file()});
  return Start("tandem-" + role, arguments,
               fmt::format("{}/logs/{}-{}.log", run_dir(), role, rank));
}

TestProcess& ClusterRig::StartTrainer(int rank) { return StartWorker("trainer", rank); }
TestProcess& ClusterRig::StartRollout(int rank) { return StartWorker("rollout", rank); }

TestProcess& ClusterRig::StartAgent(int host, int hosts, const std::vector<std::string>& flags) {
  fs::create_directories(run_dir() + "/logs");
  std::vector<std::string> arguments = {"--controller", controller_address(),
                                        "--host-index", std::to_string(host),
                                        "--hosts",      std::to_string(hosts)};
  if (!node_.empty()) arguments.insert(arguments.end(), {"--node", node_});
  if (!port_address_.empty()) arguments.insert(arguments.end(), {"--token-file", token_file()});
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  return Start("tandem-agent", arguments, fmt::format("{}/logs/agent-{}.log", run_dir(), host));
}

ClusterRig::CtlResult ClusterRig::Ctl(const std::vector<std::string>& arguments) {
  const std::string output = CtlOutput();
  const int code = StartCtl(arguments).Wait();
  return {.code = code, .output = FileText(output)};
}

std::string ClusterRig::CtlOutput() const {
  return dir() / fmt::format("ctl-{}.txt", processes_.size());
}

TestProcess& ClusterRig::StartCtl(const std::vector<std::string>& arguments) {
  std::vector<std::string> all = {"--run-dir", run_dir()};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return Start("tandemctl", all, CtlOutput());
}

std::vector<std::string> ClusterRig::Running() const {
  std::vector<std::string> found;
  const std::string mark = std::string(kMark) + "=" + dir().string() + " ";
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string pid = entry.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    if (ReadProc(pid, "environ").find(mark) == std::string::npos) continue;
    found.push_back(pid + " " + ReadProc(pid, "cmdline"));
  }
  return found;
}

std::string ClusterRig::LeftBehind() const {
  // Not so long that CTest ends the test before it names them.
  const Instant deadline = RealClock().Now() + kPatience / 5;
  std::vector<std::string> left = Running();
  while (!left.empty() && RealClock().Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(20));
    left = Running();
  }
  return fmt::format("{}", fmt::join(left, "\n"));
}

bool ClusterRig::HasRunFile(const std::string& name) const {
  return fs::exists(run_dir() + "/" + name);
}

std::string ClusterRig::Log(const std::string& role, int rank) const {
  if (role == "launcher") return FileText(launcher_log());
  return RunFile(fmt::format("logs/{}-{}.log", role, rank));
}

std::string ClusterRig::EndsOfLogs() const {
  constexpr size_t kShown = 6000;  // characters of each
  std::vector<fs::path> paths = {launcher_log()};
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(run_dir() + "/logs", none)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin() + 1, paths.end());
  std::string logs;
  for (const fs::path& path : paths) {
    const std::string text = FileText(path);
    if (text.empty()) continue;
    logs += fmt::format("---- {}\n{}", path.filename().string(),
                        text.substr(text.size() > kShown ? text.size() - kShown : 0));
  }
  return logs;
}

std::map<int64_t, nlohmann::json> ClusterRig::Metrics() const {
  return MetricsLines("training/global_step", true);
}

std::map<int64_t, nlohmann::json> ClusterRig::Evaluations() const {
  return MetricsLines("training/global_step", false);
}

std::map<int64_t, nlohmann::json> ClusterRig::MetricsLines(const std::string& key,
                                                           bool with) const {
  std::map<int64_t, nlohmann::json> steps;
  std::istringstream lines(RunFile("metrics.jsonl"));
  for (std::string text; std::getline(lines, text);) {
    const nlohmann::json line = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    // A kill in the middle of a line leaves a part of it.
    if (line.is_object() && line.at("data").contains(key) == with) {
      steps[line.at("step")] = line.at("data");
    }
  }
  return steps;
}

std::string ClusterRig::Weights(int64_t step) const {
  return RunFile(fmt::format("checkpoints/step_{}/model.safetensors", step));
}

std::vector<SavedSample> ClusterRig::StoredSamples(int64_t step) const {
  const auto file =
      BatchReader::Open(fmt::format("{}/samples/step_{:06}.samples", run_dir(), step));
  ThrowUnlessOk(file.status());
  std::vector<SavedSample> samples;
  for (size_t i = 0; i < (*file)->size(); ++i) samples.push_back((*file)->Read(i));
  return samples;
}

std::vector<std::string> ClusterRig::StoredRecords(int64_t step) const {
  std::vector<std::string> records;
  for (const SavedSample& sample : StoredSamples(step)) {
    std::string& bytes = records.emplace_back();
    const auto append = [&bytes](const auto& values) {
      bytes.append(reinterpret_cast<const char*>(values.data()),
                   values.size() * sizeof(values.front()));
    };
    append(sample.tokens);
    append(sample.log_probs);
    append(sample.versions);
  }
  return records;
}

nlohmann::json Repeatable(const nlohmann::json& metrics) {
  nlohmann::json kept = nlohmann::json::object();
  for (const auto& [name, value] : metrics.items()) {
    // What is prefilled depends on preemptions and on who was lost.
    if (name == "partial/prefilled_tokens") continue;
    const bool is_time = name.rfind("timing", 0) == 0 || name.rfind("perf/", 0) == 0 ||
                         name.rfind("partial/tail_", 0) == 0 ||
                         name.rfind("partial/predicted_saving_s", 0) == 0;
    if (!is_time) kept[name] = value;
  }
  return kept;
}

}  // namespace tandem::testing
