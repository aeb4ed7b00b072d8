// The launcher program with shell scripts in place of controller, workers and agents. The scripts
// report into a FIFO, so that tests wait for events instead of sleeping; alarm() ends one that
// hangs.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/model_spec/model_spec.h"
#include "tests/support/tiny_model.h"

namespace tandem::testing {

namespace fs = std::filesystem;

// USR1 ends it with 0, USR2 with 70, TERM with 0; otherwise it waits for ever.
inline constexpr char kScript[] = R"(#!/bin/bash
exec 9>"$LIFE"
name=$(basename "$0")
all="$*"
while [ $# -gt 0 ]; do case "$1" in --rank|--host-index) name="$name-$2";; esac; shift; done
echo "$all" >"$(dirname "$0")/$name.arguments"
echo "$name is here" >&2
trap 'echo "$name stopped 0" >"$EVENTS"; exit 0' TERM
trap 'exit 0' USR1
trap 'echo "no disk left" >&2; exit 70' USR2
echo "$name up $$" >"$EVENTS"
[ -n "$PLAIN" ] && { trap - TERM; exec sleep infinity; }
sleep infinity >/dev/null 2>&1 &
while :; do wait; done
)";

struct ScriptRunOptions {
  std::vector<std::string> flags;  // appended to the launcher's
  std::string model_type = "llama";
  std::map<std::string, std::string>
      programs;  // more scripts in the folder, which PATH begins with
  std::map<std::string, std::string> env;
};

class ScriptRun {
 public:
  explicit ScriptRun(const ScriptRunOptions& options = {}) : options_(options) {
    std::string pattern = (fs::temp_directory_path() / "launch-XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    dir_ = pattern;
    for (const char* name : {"controller", "trainer", "rollout", "agent"}) {
      WriteProgram(std::string("tandem-") + name, kScript);
    }
    for (const auto& [name, script] : options.programs) WriteProgram(name, script);
    REQUIRE(WriteTinyModel(dir_ + "/model").ok());
    if (options.model_type != "llama") {
      ModelSpec spec = TinyModelSpec({});
      spec.model_type = options.model_type;
      std::ofstream(dir_ + "/model/config.json") << ModelConfigJson(spec);
    }
    std::ofstream(dir_ + "/t.jsonl") << "{}";
    std::ofstream(dir_ + "/c.yaml")
        << "model.path: " << dir_ << "/model\ndata.train_files: " << dir_
        << "/t.jsonl\ncluster.run_dir: " << dir_ << "/run\n";
    events_ = MakeFifo("events", "EVENTS", O_RDWR);
    life_ = MakeFifo("life", "LIFE", O_RDONLY | O_NONBLOCK);
    fcntl(life_, F_SETFL, 0);
    Start(options.flags);
  }
  ~ScriptRun() {
    if (launcher_ > 0) {
      kill(launcher_, SIGTERM);
      waitpid(launcher_, nullptr, 0);
    }
    close(events_);
    close(life_);
    fs::remove_all(dir_);
    alarm(0);
  }
  ScriptRun(const ScriptRun&) = delete;
  ScriptRun& operator=(const ScriptRun&) = delete;

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
  // Until so many processes are up.
  void WaitForAll(size_t count) {
    while (pids_.size() < count) Event();
  }
  pid_t pid(const std::string& name) const { return pids_.at(name); }
  pid_t launcher() const { return launcher_; }

  void StartAgain(const std::vector<std::string>& flags = {},
                  const std::map<std::string, std::string>& env = {}) {
    pids_.clear();
    fs::remove(dir_ + "/err");
    for (const auto& [name, value] : env) options_.env[name] = value;
    Start(flags);
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

  // What the last start of "controller" or "agent-1" was given.
  std::string Arguments(const std::string& name) const {
    return File("tandem-" + name + ".arguments");
  }

 private:
  void WriteProgram(const std::string& name, const std::string& script) {
    const std::string path = dir_ + "/" + name;
    std::ofstream(path) << script;
    fs::permissions(path, fs::perms::owner_all);
  }
  int MakeFifo(const std::string& name, const char* variable, int flags) {
    const std::string path = dir_ + "/" + name;
    REQUIRE(mkfifo(path.c_str(), 0600) == 0);
    setenv(variable, path.c_str(), 1);
    return open(path.c_str(), flags | O_CLOEXEC);
  }
  void Start(const std::vector<std::string>& flags) {
    alarm(120);
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
    setenv("PATH", (dir_ + ":" + getenv("PATH")).c_str(), 1);
    for (const auto& [name, value] : options_.env) setenv(name.c_str(), value.c_str(), 1);
    execv(program, const_cast<char* const*>(argv.data()));
    _exit(127);
  }

  ScriptRunOptions options_;
  std::string dir_;
  int events_ = -1, life_ = -1;
  pid_t launcher_ = 0;
  std::map<std::string, pid_t> pids_;
};

}  // namespace tandem::testing
