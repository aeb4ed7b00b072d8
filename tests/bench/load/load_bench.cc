// tandem-load-bench [--workers N]: a real controller under the load of N workers that compute
// nothing: seconds until all are registered; its processor time for heartbeats at 1 Hz, and for
// each group of a step; its memory, threads and descriptors meanwhile. The workers are all in this
// process, colocated pairs: N/2 trainers and N/2 rollouts. Runs in TMPDIR, and needs three
// descriptors for each worker. The parity probe and weight checks are off: nobody has weights.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>

#include <CLI/CLI.hpp>
#include <absl/time/clock.h>
#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <sys/resource.h>

#include "common/net/channel.h"
#include "tandem/v1/controller.grpc.pb.h"
#include "tests/bench/load/fake_workers.h"
#include "tests/bench/load/measured_process.h"
#include "tests/support/cluster_rig.h"

namespace tandem::testing {
namespace {

struct Options {
  int workers = 1000;
  int groups = 8000;  // of a step
  int steps = 2;
  double settle_seconds = 60;
  double idle_seconds = 10;
  std::string programs;  // the folder of another build's controller; empty: of this one's
};

RigOptions MakeRig(const Options& options) {
  const std::string pairs = std::to_string(options.workers / 2);
  return {.max_operand = 199,  // 18,000 rows to train on
          .config = {{"cluster.trainers", pairs},
                     {"cluster.rollouts", pairs},
                     {"cluster.heartbeat_seconds", "1"},
                     {"cluster.heartbeat_timeout_seconds", "60"},
                     {"cluster.register_timeout_seconds", "120"},
                     {"cluster.allow_other_build", options.programs.empty() ? "false" : "true"},
                     {"data.train_batch_size", std::to_string(options.groups)},
                     {"rollout.n", "2"},
                     {"trainer.total_training_steps", std::to_string(options.steps)},
                     {"trainer.save_freq", "-1"},
                     {"weight_sync.check", "off"},
                     {"weight_sync.probe", "false"}}};
}

void Expect(const grpc::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.error_message());
}

// One line of a figure that has a target, as deploy/bench/figures.py reads it.
void Print(const std::string& name, const std::string& unit, double value, double target) {
  fmt::print("{}: {} {:.2f} target {} {}\n", name, unit, value, target,
             value <= target ? "(met)" : "(missed)");
}

void PrintUse(const std::string& when, const ProcessUse& use) {
  fmt::print("{}, at most: MB {:.1f} threads {} descriptors {}\n", when,
             static_cast<double>(use.resident_bytes) / 1e6, use.threads, use.descriptors);
  std::fflush(stdout);
}

TestProcess& StartController(ClusterRig& rig, const std::string& programs) {
  if (!programs.empty()) rig.UsePrograms(programs);
  return rig.StartController({"--start-paused"});
}

class LoadBench {
 public:
  explicit LoadBench(const Options& options)
      : options_(options),
        rig_(MakeRig(options)),
        controller_(StartController(rig_, options.programs)) {
    rig_.WaitForStatus("a controller that listens", [this](const auto&) {
      if (!controller_.running()) throw std::runtime_error(controller_.Output());
      return true;
    });
    measured_ = std::make_unique<MeasuredProcess>(controller_.pid());
    workers_ = std::make_unique<FakeWorkers>(rig_.controller_address(), rig_.run_dir(),
                                             options.workers / 2);
    api_ = v1::TandemService::NewStub(*MakeChannel(rig_.controller_address()));
  }

  void Run() {
    PrintUse("without a worker", measured_->TakeMost());
    Register();
    Idle();
    for (int step = 1; step <= options_.steps; ++step) Step(step);
    v1::StopResponse stopped;
    grpc::ClientContext context;
    Expect(api_->Stop(&context, {}, &stopped));
    const int code = controller_.Wait();
    if (code != 0) throw std::runtime_error(controller_.Output());
  }

 private:
  void Register() {
    const absl::Time begin = absl::Now();
    workers_->Register();
    Print("all registered", "seconds", absl::ToDoubleSeconds(absl::Now() - begin), 5);
    workers_->StartHeartbeats();
    PrintUse("while they register", measured_->TakeMost());
    rig_.WaitForStatus("a paused run", [this](const v1::GetStatusResponse& status) {
      if (!controller_.running()) throw std::runtime_error(controller_.Output());
      return status.state() == "paused";
    });
    PrintUse("while trainers are reset and weights sent", measured_->TakeMost());
  }

  void Idle() {
    absl::SleepFor(absl::Seconds(options_.settle_seconds));
    (void)workers_->TakeAnswers();
    const double cpu = measured_->CpuSeconds();
    const absl::Time begin = absl::Now();
    absl::SleepFor(absl::Seconds(options_.idle_seconds));
    const double seconds = absl::ToDoubleSeconds(absl::Now() - begin);
    const FakeWorkers::Answers answers = workers_->TakeAnswers();
    Print("heartbeats at 1 Hz", "percent-of-a-core",
          100 * (measured_->CpuSeconds() - cpu) / seconds, 10);
    PrintAnswers(answers, seconds);
    PrintUse("with heartbeats alone", measured_->TakeMost());
  }

  static void PrintAnswers(const FakeWorkers::Answers& answers, double seconds) {
    fmt::print("  {:.0f} a second answered, {} failed, the slowest after {:.3f} s\n",
               static_cast<double>(answers.heartbeats) / seconds, answers.failed,
               answers.slowest_seconds);
  }

  void Step(int step) {
    const double cpu = measured_->CpuSeconds();
    const absl::Time begin = absl::Now();
    v1::StepRequest request;
    request.set_request_id(fmt::format("step {}", step));
    v1::Operation operation;
    grpc::ClientContext asked;
    Expect(api_->Step(&asked, request, &operation));
    v1::WaitOperationRequest wait;
    wait.set_id(operation.id());
    wait.set_timeout_seconds(600);
    grpc::ClientContext waited;
    Expect(api_->WaitOperation(&waited, wait, &operation));
    if (!operation.done() || !operation.error().empty()) {
      throw std::runtime_error(operation.error() + "\n" + controller_.Output());
    }
    const double seconds = absl::ToDoubleSeconds(absl::Now() - begin);
    const std::string name = fmt::format("step {}, {} groups", step, options_.groups);
    Print(name + ", the controller's own time", "ms-a-group",
          1000 * (measured_->CpuSeconds() - cpu) / options_.groups, 1);
    fmt::print("{}, by the clock, which the workers share: ms-a-group {:.2f}\n ", name,
               1000 * seconds / options_.groups);
    PrintPhases(step);
    PrintAnswers(workers_->TakeAnswers(), seconds);
    const ProcessUse use = measured_->TakeMost();
    PrintUse(name, use);
    if (step < options_.steps) return;
    Print("resident memory", "MB", static_cast<double>(use.resident_bytes) / 1e6, 300);
  }

  void PrintPhases(int step) {
    v1::ListStepsRequest request;
    request.set_first_step(step);
    request.set_no_ledgers(true);
    v1::ListStepsResponse response;
    grpc::ClientContext context;
    Expect(api_->ListSteps(&context, request, &response));
    for (const v1::PhaseTime& phase : response.steps(0).phases()) {
      fmt::print(" {} {:.2f} s", phase.phase(), phase.seconds());
    }
    fmt::print("\n");
  }

  const Options options_;
  ClusterRig rig_;
  TestProcess& controller_;
  std::unique_ptr<MeasuredProcess> measured_;
  std::unique_ptr<FakeWorkers> workers_;
  std::unique_ptr<v1::TandemService::Stub> api_;
};

// This process has the other ends of the controller's connections.
void RaiseDescriptorLimit() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace
}  // namespace tandem::testing

int main(int argc, char** argv) {
  tandem::testing::Options options;
  CLI::App app("A real controller under the load of many workers that compute nothing.");
  app.add_option("--workers", options.workers, "half of them trainers, half rollouts")
      ->check(CLI::Range(2, 8192))
      ->capture_default_str();
  app.add_option("--groups", options.groups, "of a step")
      ->check(CLI::Range(1, 18000))
      ->capture_default_str();
  app.add_option("--steps", options.steps)->check(CLI::Range(1, 1000))->capture_default_str();
  app.add_option("--settle-seconds", options.settle_seconds,
                 "of heartbeats before they are measured: gRPC pings a new connection with nearly "
                 "every call, and ever more rarely later")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  app.add_option("--idle-seconds", options.idle_seconds,
                 "for which only heartbeats are sent, and measured")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  app.add_option("--programs", options.programs,
                 "folder of a tandem-controller of another build; by default that of this program")
      ->check(CLI::ExistingDirectory);
  CLI11_PARSE(app, argc, argv);
  tandem::testing::RaiseDescriptorLimit();
  try {
    tandem::testing::LoadBench(options).Run();
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
  return 0;
}
