#include "tests/bench/load/fake_workers.h"

#include <latch>
#include <stdexcept>
#include <utility>

#include <absl/time/clock.h>
#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include "common/base/build_info.h"
#include "common/base/mutex.h"
#include "common/net/channel.h"
#include "common/net/protocol.h"
#include "common/process/process_identity.h"
#include "tandem/v1/controller.grpc.pb.h"
#include "tests/bench/load/fake_rollouts.h"
#include "tests/bench/load/fake_trainers.h"

namespace tandem::testing {
namespace {

constexpr char kNumerics[] = "cpu-load-bench";

template <typename T>
T OrThrow(absl::StatusOr<T> value) {
  if (!value.ok()) throw std::runtime_error(value.status().ToString());
  return *std::move(value);
}

template <typename Request, typename Response>
struct Call {
  grpc::ClientContext context;
  Request request;
  Response response;
};

}  // namespace

struct FakeWorkers::Worker {
  v1::RegisterRequest registration;
  v1::HeartbeatRequest heartbeat;
  std::shared_ptr<grpc::Channel> controller;
  std::unique_ptr<v1::ClusterService::Stub> stub;
};

FakeWorkers::FakeWorkers(const std::string& controller, const std::string& folder, int pairs) {
  const auto trainer_of = [this](int64_t incarnation) {
    const Worker& worker = *workers_[static_cast<size_t>(incarnation - 1)];
    return FakeTrainer{.rank = worker.registration.rank(), .controller = worker.controller};
  };
  services_.push_back(MakeFakeTrainers(trainer_of));
  services_.push_back(MakeFakeRollouts());
  const std::string address = "unix:" + folder + "/workers.sock";
  server_ = OrThrow(RpcServer::Start(address, {services_[0].get(), services_[1].get()}, {}));
  const HostId host = OrThrow(ThisHost());
  for (int i = 0; i < 2 * pairs; ++i) {
    auto& worker = *workers_.emplace_back(std::make_unique<Worker>());
    v1::RegisterRequest& request = worker.registration;
    request.set_protocol(kProtocolVersion);
    request.set_role(i % 2 == 0 ? v1::ROLE_TRAINER : v1::ROLE_ROLLOUT);
    request.set_rank(i / 2);
    request.set_address(address);
    request.set_boot_id(host.boot_id);
    request.set_node(host.node);
    request.set_device(fmt::format("cpu:{}", i / 2));
    request.set_boot_nonce(MakeBootNonce());
    request.set_pid(getpid());
    request.set_process_start(OwnProcessStart());
    request.set_build(BuildText(ThisBuild()));
    request.set_build_id(BuildId(ThisBuild()));
    request.set_device_memory_bytes(int64_t{1} << 30);
    request.set_incarnation(i + 1);  // of each its own, by which a call tells its worker
    worker.controller = OrThrow(MakeChannel(controller));
    worker.stub = v1::ClusterService::NewStub(worker.controller);
    v1::WorkerId& id = *worker.heartbeat.mutable_worker();
    id.set_role(request.role());
    id.set_rank(request.rank());
    id.set_incarnation(i + 1);
    id.mutable_coordinates()->set_dp(request.rank());
    worker.heartbeat.set_phase("idle");
    worker.heartbeat.set_last_action("none");
    worker.heartbeat.set_numerics_class(kNumerics);
    for (const char* tag : {"weights", "activations", "kv_cache", "optimizer"}) {
      v1::LedgerEntry& entry = *worker.heartbeat.mutable_ledger()->add_entries();
      entry.set_tag(tag);
      entry.set_location("device");
      entry.set_current_bytes(1 << 20);
      entry.set_peak_bytes(1 << 21);
    }
  }
}

FakeWorkers::~FakeWorkers() {
  over_ = true;
  heartbeats_.Join();
  while (running_ > 0) absl::SleepFor(absl::Milliseconds(5));
}

void FakeWorkers::Register() {
  RegisterAll(false);
  RegisterAll(true);
}

void FakeWorkers::RegisterAll(bool ready) {
  std::latch answered(static_cast<ptrdiff_t>(workers_.size()));
  struct {
    Mutex mutex;
    std::string text ABSL_GUARDED_BY(mutex);
  } refusal;
  for (const auto& worker : workers_) {
    auto call = std::make_shared<Call<v1::RegisterRequest, v1::RegisterResponse>>();
    if (ready) worker->registration.set_numerics_class(kNumerics);
    if (ready) worker->registration.set_kernel_set("none");
    call->request = worker->registration;
    // The real ones give a call ten seconds; here the time is what is measured.
    SetDeadline(call->context, absl::Seconds(120));
    worker->stub->async()->Register(&call->context, &call->request, &call->response,
                                    [&, call](const grpc::Status& status) {
                                      if (!status.ok()) {
                                        const MutexLock lock(refusal.mutex);
                                        refusal.text = status.error_message();
                                      }
                                      answered.count_down();
                                    });
  }
  answered.wait();
  const MutexLock lock(refusal.mutex);
  if (!refusal.text.empty()) throw std::runtime_error("a worker was refused: " + refusal.text);
}

void FakeWorkers::StartHeartbeats() {
  heartbeats_ = NamedThread("heartbeats", [this] {
    absl::Time due = absl::Now();
    for (size_t next = 0; !over_; next = (next + 1) % workers_.size()) {
      Beat(*workers_[next]);
      due += absl::Seconds(1) / static_cast<int64_t>(workers_.size());
      absl::SleepFor(due - absl::Now());
    }
  });
}

void FakeWorkers::Beat(Worker& worker) {
  auto call = std::make_shared<Call<v1::HeartbeatRequest, v1::HeartbeatResponse>>();
  call->request = worker.heartbeat;
  SetDeadline(call->context, absl::Seconds(5));
  ++running_;
  const absl::Time sent = absl::Now();
  worker.stub->async()->Heartbeat(
      &call->context, &call->request, &call->response,
      [this, call, sent](const grpc::Status& status) {
        const int64_t took = absl::ToInt64Microseconds(absl::Now() - sent);
        int64_t slowest = slowest_microseconds_;
        while (took > slowest && !slowest_microseconds_.compare_exchange_weak(slowest, took)) {
        }
        ++(status.ok() ? answered_ : failed_);
        --running_;
      });
}

FakeWorkers::Answers FakeWorkers::TakeAnswers() {
  return {.heartbeats = answered_.exchange(0),
          .failed = failed_.exchange(0),
          .slowest_seconds = static_cast<double>(slowest_microseconds_.exchange(0)) * 1e-6};
}

}  // namespace tandem::testing
