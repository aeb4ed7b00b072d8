// The launcher program with shell scripts in place of controller and workers. The scripts report
// into a FIFO, so the tests wait for events instead of sleeping; alarm() ends a test that hangs.
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include <catch2/catch.hpp>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/model_spec/model_spec.h"
#include "tests/support/tiny_model.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// USR1 ends it with 0, USR2 with 70, TERM with 0; otherwise it waits for ever.
constexpr char kScript[] = R"(#!/bin/bash
exec 9>"$LIFE"
name=$(basename "$0")
while [ $# -gt 0 ]; do [ "$1" = --rank ] && name="$name-$2"; shift; done
echo "$name is here" >&2
trap 'echo "$name stopped 0" >"$EVENTS"; exit 0' TERM
trap 'exit 0' USR1
trap 'echo "no disk left" >&2; exit 70' USR2
echo "$name up $$" >"$EVENTS"
[ -n "$PLAIN" ] && { trap - TERM; exec sleep infinity; }
sleep infinity >/dev/null 2>&1 &
while :; do wait; done
)";

class Run {
 public:
  // `flags` are appended to the launcher's.
  explicit Run(const std::vector<std::string>& flags = {},
               const std::string& model_type = "llama") {
    alarm(60);
    std::string pattern = (fs::temp_directory_path() / "launch-XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    dir_ = pattern;
    for (const char* name : {"controller", "trainer", "rollout"}) {
      const std::string path = dir_ + "/tandem-" + name;
      std::ofstream(path) << kScript;
      fs::permissions(path, fs::perms::owner_all);
    }
    REQUIRE(testing::WriteTinyModel(dir_ + "/model").ok());
    if (model_type != "llama") {
      ModelSpec spec = testing::TinyModelSpec({});
      spec.model_type = model_type;
      std::ofstream(dir_ + "/model/config.json") << ModelConfigJson(spec);
    }
    std::ofstream(dir_ + "/t.jsonl") << "{}";
    std::ofstream(dir_ + "/c.yaml")
        << "model.path: " << dir_ << "/model\ndata.train_files: " << dir_
        << "/t.jsonl\ncluster.run_dir: " << dir_ << "/run\n";
    events_ = MakeFifo("events", "EVENTS", O_RDWR);
    life_ = MakeFifo("life", "LIFE", O_RDONLY | O_NONBLOCK);
    fcntl(life_, F_SETFL, 0);
    Start(flags);
  }
  ~Run() {
    if (launcher_ > 0) {
      kill(launcher_, SIGTERM);
      waitpid(launcher_, nullptr, 0);
    }
    close(events_);
    close(life_);
    fs::remove_all(dir_);
    alarm(0);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // The next event; remembers pids.
  std::string Event() {
    std::string line;
    for (char c; read(events_, &c, 1) == 1 && c != '\n';) line += c;
    std::istringstream words(line);
    std::string name, what;
    pid_t pid = 0;
    words >> name >> what >> pid;
    if (what == "up") pids_[name.substr(7)] = pid;
    return name.substr(7) + " " + what;
  }
  void WaitForAll(size_t count) {
    while (pids_.size() < count) Event();
  }
  pid_t pid(const std::string& name) const { return pids_.at(name); }
  pid_t launcher() const { return launcher_; }

  void StartAgain() {
    pids_.clear();
    fs::remove(dir_ + "/err");
    Start({});
  }

  // Exit code of the launcher.
  int Wait() {
    int status = 0;
    waitpid(launcher_, &status, 0);
    launcher_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  // Returns when no process holds the other end open, that is when all have gone.
  void WaitUntilNobodyIsLeft() {
    char c;
    REQUIRE(read(life_, &c, 1) == 0);
  }
  std::string File(const std::string& name) const {
    std::ifstream file(dir_ + "/" + name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  const std::string& dir() const { return dir_; }

 private:
  int MakeFifo(const std::string& name, const char* variable, int flags) {
    const std::string path = dir_ + "/" + name;
    REQUIRE(mkfifo(path.c_str(), 0600) == 0);
    setenv(variable, path.c_str(), 1);
    return open(path.c_str(), flags | O_CLOEXEC);
  }
  void Start(const std::vector<std::string>& flags) {
    const char* program = getenv("TANDEM_LAUNCHER");
    REQUIRE(program != nullptr);
    const std::string config = dir_ + "/c.yaml", err = dir_ + "/err";
    std::vector<const char*> argv = {
        program, "--config", config.c_str(), "--bin-dir", dir_.c_str(), "--grace", "5"};
    for (const std::string& text : flags) argv.push_back(text.c_str());
    argv.push_back(nullptr);
    launcher_ = fork();
    if (launcher_ != 0) return;
    dup2(open(err.c_str(), O_WRONLY | O_CREAT, 0600), STDERR_FILENO);
    execv(program, const_cast<char* const*>(argv.data()));
    _exit(127);
  }

  std::string dir_;
  int events_ = -1, life_ = -1;
  pid_t launcher_ = 0;
  std::map<std::string, pid_t> pids_;
};

TEST_CASE("a run whose controller ends well ends with 0 and leaves nobody behind") {
  Run run;
  run.WaitForAll(3);
  REQUIRE(run.File("run/pids.json").find(std::to_string(run.pid("trainer-0"))) !=
          std::string::npos);
  kill(run.pid("controller"), SIGUSR1);
  REQUIRE(run.Wait() == 0);
  run.WaitUntilNobodyIsLeft();
  REQUIRE(run.File("run/logs/rollout-0.log") == "tandem-rollout-0 is here\n");
}

TEST_CASE("a killed worker and a killed controller are started again") {
  Run run({"--set", "cluster.trainers=2", "cluster.rollouts=2"});
  run.WaitForAll(5);
  kill(run.pid("rollout-1"), SIGKILL);
  REQUIRE(run.Event() == "rollout-1 up");
  kill(run.pid("controller"), SIGKILL);
  REQUIRE(run.Event() == "controller up");
  kill(run.launcher(), SIGTERM);
  REQUIRE(run.Event() == "controller stopped");
  REQUIRE(run.Wait() == 143);
  run.WaitUntilNobodyIsLeft();
  REQUIRE(run.File("err").find("rollout 1 died: signal 9 (Killed); restart 1 of 3") !=
          std::string::npos);
  REQUIRE(run.File("run/logs/rollout-1.log") ==
          "tandem-rollout-1 is here\ntandem-rollout-1 is here\n");
}

TEST_CASE("a controller that fails ends the run with its code and its last words") {
  Run run;
  run.WaitForAll(3);
  kill(run.pid("controller"), SIGUSR2);
  REQUIRE(run.Wait() == 70);
  run.WaitUntilNobodyIsLeft();
  REQUIRE(run.File("err").find("no disk left") != std::string::npos);
}

TEST_CASE("the last words shown are of this launch, and a stopped run says how to resume") {
  Run run;
  run.WaitForAll(3);
  kill(run.launcher(), SIGINT);
  REQUIRE(run.Wait() == 130);
  run.WaitUntilNobodyIsLeft();
  // Nothing was trained, so there is no checkpoint to resume from.
  REQUIRE(run.File("err").find("Started again with the same configuration, the run begins from the "
                               "start: it has no checkpoint yet") != std::string::npos);
  const std::string log = run.dir() + "/run/logs/controller-0.log";
  std::ofstream(log, std::ios::app) << "said in an earlier launch\n";
  run.StartAgain();
  run.WaitForAll(3);
  kill(run.pid("controller"), SIGUSR2);
  REQUIRE(run.Wait() == 70);
  run.WaitUntilNobodyIsLeft();
  REQUIRE(run.File("err").find("no disk left") != std::string::npos);
  REQUIRE(run.File("err").find("said in an earlier launch") == std::string::npos);
  REQUIRE(run.File("run/logs/controller-0.log").find("said in an earlier") != std::string::npos);
}

TEST_CASE("restarts that are used up end the run with 70") {
  Run run({"--set", "cluster.max_restarts=0"});
  run.WaitForAll(3);
  kill(run.pid("trainer-0"), SIGUSR2);
  REQUIRE(run.Wait() == 70);
  run.WaitUntilNobodyIsLeft();
  REQUIRE(run.File("err").find("are used (cluster.max_restarts = 0)") != std::string::npos);
}

TEST_CASE("children do not outlive a launcher that is killed") {
  setenv("PLAIN", "1", 1);
  Run run;
  unsetenv("PLAIN");
  run.WaitForAll(3);
  kill(run.launcher(), SIGKILL);
  REQUIRE(run.Wait() == -SIGKILL);
  run.WaitUntilNobodyIsLeft();
}

TEST_CASE("a config that cannot work ends with 64 before anything starts") {
  Run run({"--set", "cluster.trainers=2", "cluster.rollouts=1"});
  REQUIRE(run.Wait() == 64);
  REQUIRE(run.File("err").find("trainer rank 1 has no partner rollout rank 1") !=
          std::string::npos);
  REQUIRE_FALSE(fs::exists(run.dir() + "/run"));
}

TEST_CASE("a model type that nobody can run ends with 65 before anything starts") {
  Run run({}, "mamba");
  REQUIRE(run.Wait() == 65);
  REQUIRE(run.File("err").find("model_type mamba is not supported") != std::string::npos);
  REQUIRE_FALSE(fs::exists(run.dir() + "/run"));
}

TEST_CASE("a second launcher in the same directory is refused") {
  Run run;
  run.WaitForAll(3);
  Run other({"--set", "cluster.run_dir=" + run.dir() + "/run"});
  REQUIRE(other.Wait() == 64);
  REQUIRE(other.File("err").find("is in use (a launcher, process ") != std::string::npos);
}

TEST_CASE("a missing program is told by its name and ends the run") {
  Run run({"--set", "rollout.n=2"});
  run.WaitForAll(3);
  fs::remove(run.dir() + "/tandem-trainer");
  kill(run.pid("trainer-0"), SIGKILL);
  REQUIRE(run.Wait() == 64);
  run.WaitUntilNobodyIsLeft();
  REQUIRE(run.File("err").find("tandem-trainer: No such file or directory") != std::string::npos);
}

}  // namespace
}  // namespace tandem
