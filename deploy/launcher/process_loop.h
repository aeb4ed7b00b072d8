// Carries out on real processes, signals and time what a Supervisor decides: what the loops of a
// launcher and of an agent have in common.
#pragma once

#include <string>

#include <absl/time/time.h>

#include "deploy/launcher/process_table.h"
#include "deploy/launcher/supervisor.h"

namespace tandem {

// A launcher reads SIGUSR1 too, by which Slurm says that the time of a job is over soon. An agent
// leaves it ignored.
enum class SignalReader { kLauncher, kAgent };

// SIGCHLD, SIGINT, SIGTERM, SIGHUP and a launcher's SIGUSR1 are blocked in this thread and read by
// the loop. Call it first thing in main, before any thread and any child.
void BlockSignals(SignalReader reader);

// The next of those signals, or 0 after `longest`.
int WaitForSignal(SignalReader reader, absl::Duration longest);

// Not thread-safe.
class ProcessLoop {
 public:
  ProcessLoop(const ProcessLoop&) = delete;
  ProcessLoop& operator=(const ProcessLoop&) = delete;

 protected:
  // It looks at everything at least every `longest_wait`. `table` outlives the loop.
  ProcessLoop(SignalReader reader,
              absl::Duration longest_wait,
              const SupervisorOptions& options,
              ProcessTable* table);
  virtual ~ProcessLoop() = default;

  // Starts all processes and supervises them until the last has ended. Returns the exit code of
  // this process.
  int Supervise();

  // What a launcher or an agent adds, in the order of a turn of the loop.
  virtual void OnStart() {}
  virtual void BeforeReaping(int /*signal*/) {}  // 0: none came
  virtual void AfterReaping() {}
  virtual void AtEndOfTurn() {}
  virtual void OnReport(const Action& /*action*/) {}
  // All has ended; says so, with SayEnd.
  virtual void OnFinish(const Action& action) = 0;

  void Do(const Actions& actions);
  void Say(const std::string& text) const;
  // Why the own exit code is not 0, if it is not.
  void SayEnd(const Action& action) const;

  Supervisor& supervisor() { return supervisor_; }
  ProcessTable& table() { return *table_; }
  int code() const { return code_; }
  void set_code(int code) { code_ = code; }

 private:
  const char* Name() const { return reader_ == SignalReader::kLauncher ? "launcher" : "agent"; }
  void Take(const Action& action);
  void Spawn(const ProcessId& id);
  void Finish(const Action& action);

  const SignalReader reader_;
  const absl::Duration longest_wait_;
  Supervisor supervisor_;
  ProcessTable* const table_;
  int code_ = 0;
};

}  // namespace tandem
