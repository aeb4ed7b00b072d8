#include "deploy/launcher/run_loop.h"

#include <string>

#include <fmt/format.h>
#include <signal.h>

#include "common/base/clock.h"
#include "common/process/files/dead_sockets.h"
#include "common/process/service_notifier.h"
#include "deploy/launcher/launch_plan.h"
#include "deploy/launcher/process_loop.h"

namespace tandem {
namespace {

constexpr absl::Duration kLookForHung = absl::Milliseconds(500);

class RunLoop final : public ProcessLoop {
 public:
  RunLoop(const SupervisorOptions& options, ProcessTable* table, NotifySocket* notify)
      : ProcessLoop(SignalReader::kLauncher, kLookForHung, options, table), notify_(notify) {}

  int Run() { return Supervise(); }

 private:
  void OnStart() override { own_notifier_.Ready(); }

  void BeforeReaping(int signal) override {
    if (signal == SIGUSR1) OnTimeLimit();
    own_notifier_.KeepAlive();
    // Before the dead are reaped: the last sign of a controller says nothing of its successor.
    if (notify_->TakeSignOfLife()) supervisor().OnAlive(RealClock().Now());
    for (const ProcessId& id : table().KillHung()) {
      Say(fmt::format("{} hangs; killed it", id.ToString()));
    }
  }

  // Slurm sends it some time before the end of the job. It does not kill what stops already.
  void OnTimeLimit() {
    if (!supervisor().running()) return;
    Say("SIGUSR1: the time of this job is over soon.");
    Do(supervisor().OnStopRequest(SIGUSR1, RealClock().Now()));
  }

  void OnFinish(const Action& action) override {
    const LaunchPlan& plan = table().plan();
    RemoveDeadSockets(plan.run_dir,
                      [&plan](const std::string& name) { return IsSocketOf(plan, name); });
    // The user stopped what had only waited for more commands.
    if (WasStopped() && FinishedByThisLaunch(plan)) set_code(kExitDone);
    SayEnd(action);
    if (!WasStopped()) return;
    if (const std::string hint = ResumeHint(plan); !hint.empty()) Say(hint);
  }

  bool WasStopped() const {
    return code() == 128 + SIGINT || code() == 128 + SIGTERM || code() == 128 + SIGUSR1;
  }

  NotifySocket* const notify_;
  ServiceNotifier own_notifier_;  // to systemd, where that started the launcher
};

}  // namespace

int RunUntilDone(const SupervisorOptions& options, ProcessTable* table, NotifySocket* notify) {
  return RunLoop(options, table, notify).Run();
}

}  // namespace tandem
