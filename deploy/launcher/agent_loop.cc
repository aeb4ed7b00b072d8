#include "deploy/launcher/agent_loop.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <absl/base/thread_annotations.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "deploy/launcher/messages.h"
#include "deploy/launcher/process_loop.h"

namespace tandem {
namespace {

constexpr size_t kMostLogBytes = 8192;  // of a report
// The beats' thread wakes this one, so nothing is missed without it but a signal that came to no
// thread.
constexpr absl::Duration kLongestWait = absl::Seconds(1);

WorkerKey KeyOf(const ProcessId& id) {
  return {id.role == Role::kTrainer ? WorkerRole::kTrainer : WorkerRole::kRollout, id.rank};
}

ProcessId IdOf(const WorkerKey& key) {
  return {key.role == WorkerRole::kTrainer ? Role::kTrainer : Role::kRollout, key.rank};
}

// What the thread of the beats and that of the processes tell each other.
class AgentMail {
 public:
  explicit AgentMail(AgentNews news) : news_(std::move(news)) {}

  // --- for the beats ---
  AgentNews News() {
    const MutexLock lock(mail_mutex_);
    return news_;
  }
  void OnOrders(const AgentOrders& orders) {
    {
      const MutexLock lock(mail_mutex_);
      orders_ = orders;
    }
    Wake();
  }
  void OnEnd(const absl::Status& end) {
    {
      const MutexLock lock(mail_mutex_);
      end_ = end;
    }
    Wake();
  }

  // --- for the processes ---
  // The newest answer that has not been taken yet.
  std::optional<AgentOrders> TakeOrders() {
    const MutexLock lock(mail_mutex_);
    return std::exchange(orders_, std::nullopt);
  }
  std::optional<absl::Status> TakeEnd() {
    const MutexLock lock(mail_mutex_);
    return std::exchange(end_, std::nullopt);
  }
  // Whether that is another state than the one before, so that the controller should hear of it.
  bool Put(std::vector<AgentProcess> processes, const std::optional<AgentFailure>& failure) {
    const MutexLock lock(mail_mutex_);
    if (news_.processes == processes && news_.failure == failure) return false;
    news_.processes = std::move(processes);
    news_.failure = failure;
    return true;
  }

 private:
  // SIGCHLD is blocked and read by the loop, which then looks at everything.
  static void Wake() { kill(getpid(), SIGCHLD); }

  Mutex mail_mutex_;
  AgentNews news_ ABSL_GUARDED_BY(mail_mutex_);
  std::optional<AgentOrders> orders_ ABSL_GUARDED_BY(mail_mutex_);
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mail_mutex_);
};

class AgentLoop final : public ProcessLoop {
 public:
  AgentLoop(const AgentNews& news,
            const AgentLimits& limits,
            const SupervisorOptions& options,
            ProcessTable* table,
            AgentClient* client)
      : ProcessLoop(SignalReader::kAgent, kLongestWait, options, table),
        limits_(limits),
        client_(client),
        mail_(news) {}

  int Run() {
    const int code = Supervise();
    client_->Leave(mail_.News());
    return code;
  }

 private:
  void OnStart() override {
    TellNews();
    client_->Start(limits_, {.news = [this] { return mail_.News(); },
                             .on_orders = [this](const auto& orders) { mail_.OnOrders(orders); },
                             .on_end = [this](const auto& end) { mail_.OnEnd(end); }});
  }
  void AfterReaping() override { TakeMail(); }
  void AtEndOfTurn() override { TellNews(); }

  void TakeMail() {
    const Instant now = RealClock().Now();
    if (const auto orders = mail_.TakeOrders()) {
      if (orders->over) {
        Do(supervisor().OnRunOver(kExitDone, "", now));
      } else {
        supervisor().OnAlive(now);
        Do(supervisor().OnOrders(TakeOrders(*orders, &table()), now));
        for (const AgentVictim& victim : orders->kill) Kill(victim);
      }
    }
    if (const auto end = mail_.TakeEnd()) OnEnd(*end, now);
  }

  void Kill(const AgentVictim& victim) {
    if (!table().KillIfStill(IdOf(victim.key), static_cast<pid_t>(victim.pid))) return;
    Say(fmt::format("{} hangs, as the controller says; killed it", victim.key.Text()));
  }

  void OnEnd(const absl::Status& end, Instant now) {
    const std::string why(end.message());
    if (absl::IsAlreadyExists(end)) {
      Say(why);
      Do(supervisor().OnRunOver(kExitDone, why, now));
    } else {
      Do(supervisor().OnRunOver(absl::IsUnavailable(end) ? kExitPeerLost : kExitRefused, why, now));
    }
  }

  void TellNews() {
    std::vector<AgentProcess> processes;
    for (const auto& [id, child] : table().children()) {
      processes.push_back({.key = KeyOf(id),
                           .pid = child.pid,
                           .starts = child.starts,
                           .ended_pid = child.ended_pid,
                           .exit_code = child.exit.code,
                           .exit_signal = child.exit.signal});
    }
    if (mail_.Put(std::move(processes), failure_)) client_->BeatNow();
  }

  void OnReport(const Action& action) override {
    std::string log = table().LastLogLines(action.id, kBlameLines);
    if (log.size() > kMostLogBytes) log.erase(0, log.size() - kMostLogBytes);
    failure_ = AgentFailure{
        .key = KeyOf(action.id), .code = action.code, .reason = action.text, .log = log};
    Say("telling the controller that the run cannot go on");
  }

  void OnFinish(const Action& action) override { SayEnd(action); }

  const AgentLimits limits_;
  AgentClient* const client_;
  AgentMail mail_;
  std::optional<AgentFailure> failure_;
};

}  // namespace

std::vector<ProcessId> TakeOrders(const AgentOrders& orders, ProcessTable* table) {
  std::vector<ProcessId> ids;
  for (const AgentOrder& order : orders.processes) {
    ids.push_back(IdOf(order.key));
    table->SetDevice(ids.back(), order.device);
  }
  return ids;
}

int RunAgent(const AgentNews& news,
             const AgentOrders& first,
             const SupervisorOptions& options,
             ProcessTable* table,
             AgentClient* client) {
  return AgentLoop(news, first.limits, options, table, client).Run();
}

}  // namespace tandem
