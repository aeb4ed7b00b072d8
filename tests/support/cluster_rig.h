// A whole run in a folder of a test's own: a tiny model, generated additions, a config, and the
// real programs, started through the launcher or one by one, watched over the API, killed at will.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "controller/store/saved_batch.h"
#include "tandem/v1/controller.pb.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_process.h"
#include "tests/support/tiny_model.h"

namespace tandem::testing {

struct RigOptions {
  TinyModelOptions model;
  std::string model_path;   // an HF directory to use in place of a tiny model
  int64_t max_operand = 9;  // of the additions: one-digit numbers make prompts of one length
  bool validation = false;  // evaluate on the held-out additions before and after every step
  std::map<std::string, std::string> config;  // dotted key → YAML value, over the rig's own
};

// One pair, three steps of 4 prompts x 4 samples of 8 tokens, rewarded for letters from a to m, so
// that a random model earns some and learns something.
class ClusterRig {
 public:
  // Throws std::runtime_error where model or data cannot be written.
  explicit ClusterRig(const RigOptions& options = {});
  // Kills what still runs.
  ~ClusterRig();

  // Over the config file, from the next start on.
  void Set(const std::string& key, const std::string& value);
  void SetPairs(int pairs);
  // Every worker has a device of its own.
  void SetApart(int trainers, int rollouts);
  // Environment of everything started from now on.
  void SetEnv(const std::string& name, const std::string& value) { env_[name] = value; }
  // Kills or stops a process at a point of its work, or flips a bit there
  // (common/process/fault_injection.h).
  void SetFault(const std::string& role,
                int rank,
                const std::string& point,
                int nth,
                const std::string& action = "kill");
  // One more, beside those that are set.
  void AddFault(const std::string& role,
                int rank,
                const std::string& point,
                int nth,
                const std::string& action = "kill");
  // The last one that was set or added.
  bool FaultFired() const;
  // Lets the process go on that a fault has made wait. `number`: of the fault, from 1, in the order
  // in which they were set and added; 0: the last one.
  void ReleaseFault(int number = 0) const;
  // Waits for that. Throws std::runtime_error with the ends of all logs where the run ends before,
  // as `run` or `over` says; `what`: what was to come.
  void WaitForFault(const std::string& what, TestProcess& run) const;
  void WaitForFault(const std::string& what, const std::function<bool()>& over) const;
  // Of everything started from now on: writing beyond gives EFBIG.
  void LimitFileSize(std::optional<int64_t> bytes) { file_size_limit_ = bytes; }
  // Runs start in this folder from now on, with the same model and data.
  void UseRunDir(const std::string& name) { run_name_ = name; }
  // Programs are started from this folder in place of the build's bin.
  void UsePrograms(const std::string& folder) { programs_ = folder; }
  // All workers that are started one by one share this device; by default rank r has cpu:r.
  void UseDevice(const std::string& device) { device_ = device; }

  // What is started one by one from now on is on the host of this name. Workers of nodes other than
  // the controller's need ListenOnPort, as a Unix socket reaches no other host.
  void UseNode(const std::string& node) { node_ = node; }
  // The controller and the workers that are started one by one listen on ports of 127.0.0.1, with
  // the run's token.
  void ListenOnPort();

  const std::filesystem::path& dir() const { return dir_.path(); }
  std::string run_dir() const { return dir() / run_name_; }
  std::string model_dir() const { return model_dir_; }
  std::string train_file() const { return dir() / "data" / "train.jsonl"; }
  std::string config_file() const { return dir() / "config.yaml"; }
  std::string controller_address() const {
    return port_address_.empty() ? "unix:" + run_dir() + "/controller.sock" : port_address_;
  }
  std::string token_file() const { return run_dir() + "/token"; }

  // Writes the config file, and returns the flags with which a program finds it and the run
  // directory: for one that is started elsewhere, with this environment.
  std::vector<std::string> ConfigFlags() const;
  const std::map<std::string, std::string>& env() const { return env_; }
  // Where the launcher's output is looked for.
  std::string launcher_log() const { return dir() / (run_name_ + "-launcher.log"); }

  TestProcess& Launch(const std::vector<std::string>& flags = {});
  TestProcess& StartController(const std::vector<std::string>& flags = {});
  TestProcess& StartTrainer(int rank = 0);
  TestProcess& StartRollout(int rank = 0);

  // The agent of one of `hosts` hosts, on the node that is used now; it starts the workers there.
  TestProcess& StartAgent(int host, int hosts, const std::vector<std::string>& flags = {});

  struct CtlResult {
    int code = 0;
    std::string output;
  };
  // tandemctl with --run-dir and `arguments`.
  CtlResult Ctl(const std::vector<std::string>& arguments);
  // The same, to be waited for later; it is killed with the rig, as all of its processes.
  TestProcess& StartCtl(const std::vector<std::string>& arguments);

  // What the running controller says of itself; nullopt until it listens.
  std::optional<v1::GetStatusResponse> Status() const;
  // Waits for a status that satisfies `wanted`.
  template <typename Wanted>
  v1::GetStatusResponse WaitForStatus(const std::string& what, Wanted&& wanted) const {
    std::optional<v1::GetStatusResponse> status;
    WaitUntil(what, [&] {
      status = Status();
      return status && wanted(*status);
    });
    return *status;
  }

  // Processes of this rig that run, as "pid command line".
  std::vector<std::string> Running() const;
  // Waits for all processes to end; returns "" then, or those that remain after two minutes.
  std::string LeftBehind() const;

  // What the run left.
  std::string RunFile(const std::string& name) const { return FileText(run_dir() + "/" + name); }
  bool HasRunFile(const std::string& name) const;
  std::string Log(const std::string& role, int rank = 0) const;
  // The ends of all logs, each below its name.
  std::string EndsOfLogs() const;
  // Lines of metrics.jsonl that hold a step, the last of each step, by step.
  std::map<int64_t, nlohmann::json> Metrics() const;
  // The lines of evaluations, by the step after which they were made.
  std::map<int64_t, nlohmann::json> Evaluations() const;
  // model.safetensors of a checkpoint, "" without one.
  std::string Weights(int64_t step) const;
  // The samples of a step that is recorded, from its .samples file, in order of sample id.
  std::vector<SavedSample> StoredSamples(int64_t step) const;
  // Of each of them tokens, log-probs and versions, as bytes.
  std::vector<std::string> StoredRecords(int64_t step) const;

 private:
  // Data of the metrics.jsonl lines that hold `key` or, if not `with`, do not.
  std::map<int64_t, nlohmann::json> MetricsLines(const std::string& key, bool with) const;
  TestProcess& Start(const std::string& program,
                     const std::vector<std::string>& arguments,
                     const std::string& output);
  TestProcess& StartWorker(const std::string& role, int rank);
  // Of the tandemctl that is started next.
  std::string CtlOutput() const;

  TempDir dir_;
  const std::string model_dir_;
  std::string run_name_ = "run";
  std::string programs_;
  std::string device_;
  std::string node_;
  std::string port_address_;  // empty: Unix sockets
  std::map<std::string, std::string> config_;
  std::map<std::string, std::string> env_;
  std::optional<int64_t> file_size_limit_;
  int faults_ = 0;
  std::vector<std::unique_ptr<TestProcess>> processes_;
};

// Metrics of a step without those that measure time, memory or what engines did: equal in equal
// runs.
nlohmann::json Repeatable(const nlohmann::json& metrics);

}  // namespace tandem::testing
