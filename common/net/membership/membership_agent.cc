#include "common/net/membership/membership_agent.h"

#include <utility>

#include <absl/base/thread_annotations.h>
#include <absl/time/clock.h>
#include <grpcpp/channel.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/mutex.h"
#include "common/base/progress.h"
#include "common/base/status.h"
#include "common/net/call_tracker.h"
#include "common/net/channel.h"
#include "common/net/grpc_status.h"
#include "common/net/membership/first_answer.h"
#include "common/net/protocol.h"
#include "common/net/worker_codec.h"
#include "common/process/process_identity.h"
#include "common/process/progress_watchdog.h"
#include "common/process/threads.h"
#include "tandem/v1/controller.grpc.pb.h"

namespace tandem {
namespace {

constexpr absl::Duration kRegisterDeadline = absl::Seconds(10);
constexpr absl::Duration kHeartbeatDeadline = absl::Seconds(5);
constexpr absl::Duration kRetryPause = absl::Milliseconds(200);

class GrpcMembershipAgent : public MembershipAgent {
 public:
  GrpcMembershipAgent(JoinOptions options, const std::shared_ptr<grpc::Channel>& channel)
      : options_(std::move(options)), stub_(v1::ClusterService::NewStub(channel)) {
    request_.set_protocol(kProtocolVersion);
    request_.set_role(options_.role);
    request_.set_rank(options_.rank);
    request_.set_address(options_.listen_address);
    request_.set_boot_id(options_.host.boot_id);
    request_.set_node(options_.host.node);
    request_.set_device(options_.device);
    request_.set_boot_nonce(MakeBootNonce());
    request_.set_pid(getpid());
    request_.set_process_start(OwnProcessStart());
    request_.set_build(BuildText(options_.build));
    request_.set_build_id(BuildId(options_.build));
    request_.set_device_memory_bytes(options_.device_memory_bytes);
    request_.set_device_uuid(options_.device_uuid);
  }

  ~GrpcMembershipAgent() override {
    {
      const MutexLock lock(state_mutex_);
      stopping_ = true;
    }
    calls_.CancelAll();
    wake_.NotifyAll();
    heartbeats_.Join();
  }

  const v1::RegisterResponse& registration() const override { return registration_; }
  int64_t incarnation() const override { return registration_.incarnation(); }

  v1::WorkerId worker_id() const override {
    v1::WorkerId id;
    id.set_role(options_.role);
    id.set_rank(options_.rank);
    id.set_incarnation(incarnation());
    id.mutable_coordinates()->set_dp(options_.rank);
    return id;
  }

  absl::Status FirstRegistration(absl::Duration timeout) {
    TANDEM_RETURN_IF_ERROR(AwaitFirstAnswer({.controller = options_.controller_address,
                                             .what_is_held = "the rank",
                                             .security = options_.security,
                                             .clock = options_.clock,
                                             .timeout = timeout},
                                            [this] { return Register(&registration_); }));
    const MutexLock lock(state_mutex_);
    request_.set_incarnation(registration_.incarnation());
    return absl::OkStatus();
  }

  void SetDataAddress(const std::string& address) override {
    const MutexLock lock(state_mutex_);
    request_.set_data_address(address);
  }

  absl::Status SetTokenizerAndNumerics(const std::string& tokenizer_digest,
                                       const WorkerNumerics& numerics) override {
    {
      const MutexLock lock(state_mutex_);
      request_.set_tokenizer_digest(tokenizer_digest);
      request_.set_numerics_class(numerics.numerics_class);
      request_.set_kernel_set(numerics.kernel_set);
      request_.mutable_numerics_choices()->clear();
      request_.mutable_numerics_choices()->insert(numerics.choices.begin(), numerics.choices.end());
    }
    const Instant deadline = options_.clock->Now() + controller_lost();
    while (true) {
      v1::RegisterResponse ignored;
      absl::Status status = Register(&ignored);
      if (!IsUnreachable(status) || options_.clock->Now() + kRetryPause >= deadline) return status;
      absl::SleepFor(kRetryPause);
    }
  }

  void StartHeartbeats(std::function<WorkerHealth()> health,
                       std::function<void(absl::Status)> on_end) override {
    heartbeats_ =
        NamedThread("heartbeat", [this, health = std::move(health), on_end = std::move(on_end)] {
          absl::Status end;
          if (Beat(health, &end)) on_end(end);
        });
  }

 private:
  absl::Duration controller_lost() const {
    return absl::Seconds(registration_.config().cluster().controller_lost_seconds());
  }

  absl::Status Register(v1::RegisterResponse* response) {
    v1::RegisterRequest request;
    {
      const MutexLock lock(state_mutex_);
      request = request_;
    }
    return calls_.Run(kRegisterDeadline, [&](grpc::ClientContext* context) {
      return stub_->Register(context, request, response);
    });
  }

  // Measured by the heartbeat thread itself, so that the controller learns of a stalled engine even
  // if the ProgressWatchdog fails.
  void ReportProgress(v1::EngineProgress* report) {
    report->set_moves(MovesOfProcess());
    const auto still = meter_.Look(CurrentProgress(), options_.clock->Now());
    if (!still) return;
    report->set_activity(still->progress.Place());
    report->set_still_seconds(absl::ToDoubleSeconds(still->time));
  }

  absl::StatusOr<bool> SendHeartbeat(const WorkerHealth& health) {
    v1::HeartbeatRequest request;
    *request.mutable_worker() = worker_id();
    request.set_phase(health.phase);
    request.set_version(health.version);
    request.set_last_action(health.last_action);
    *request.mutable_ledger() = ToProto(health.ledger);
    request.set_numerics_class(health.numerics_class);
    ReportProgress(request.mutable_progress());
    if (health.generation) *request.mutable_generation() = ToProto(*health.generation);
    if (health.training) *request.mutable_training() = ToProto(*health.training);
    v1::HeartbeatResponse response;
    TANDEM_RETURN_IF_ERROR(calls_.Run(kHeartbeatDeadline, [&](grpc::ClientContext* context) {
      return stub_->Heartbeat(context, request, &response);
    }));
    return response.stop();
  }

  // Returns true with the reason in `end` when the membership ended, false when the owner did.
  bool Beat(const std::function<WorkerHealth()>& health, absl::Status* end) {
    const absl::Duration pause =
        absl::Seconds(registration_.config().cluster().heartbeat_seconds());
    Instant last_answer = options_.clock->Now();
    bool refused = false;
    while (true) {
      absl::StatusOr<bool> stop = SendHeartbeat(health());
      if (stop.ok()) {
        last_answer = options_.clock->Now();
        refused = false;
        if (*stop) return *end = absl::OkStatus(), true;
      } else if (absl::IsNotFound(stop.status())) {
        if (!Rejoin(&last_answer, end)) return true;
      } else if (absl::IsUnauthenticated(stop.status()) && !std::exchange(refused, true)) {
        // A controller that starts makes a new token; the call has read the old one.
      } else if (!IsUnreachable(stop.status())) {
        return *end = stop.status(), true;
      }
      if (options_.clock->Now() - last_answer > controller_lost()) {
        *end = MakeStatus(absl::StatusCode::kUnavailable,
                          "the controller at {} has not answered for {}; ending",
                          options_.controller_address, absl::FormatDuration(controller_lost()));
        return true;
      }
      const MutexLock lock(state_mutex_);
      const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoMilliseconds(pause);
      while (!stopping_ && wake_.WaitUntil(state_mutex_, deadline)) {
      }
      if (stopping_) return false;
    }
  }

  // Registers again, because the controller is a new process that does not know this worker.
  bool Rejoin(Instant* last_answer, absl::Status* end) {
    v1::RegisterResponse ignored;
    absl::Status status = Register(&ignored);
    if (status.ok()) {
      LogInfo("Registered again because the controller was restarted.");
      *last_answer = options_.clock->Now();
      return true;
    }
    if (!IsUnreachable(status)) {
      *end = status;
      return false;
    }
    // A controller that answers is not lost, though it cannot call this worker yet.
    if (AnsweredByWorker(status)) *last_answer = options_.clock->Now();
    return true;
  }

  const JoinOptions options_;
  const std::unique_ptr<v1::ClusterService::Stub> stub_;
  v1::RegisterResponse registration_;

  Mutex state_mutex_;
  ConditionVariable wake_;
  v1::RegisterRequest request_ ABSL_GUARDED_BY(state_mutex_);
  bool stopping_ ABSL_GUARDED_BY(state_mutex_) = false;

  StandstillMeter meter_;  // of the heartbeats' thread
  CallTracker calls_;
  NamedThread heartbeats_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MembershipAgent>> MembershipAgent::Join(JoinOptions options,
                                                                       absl::Duration timeout) {
  TANDEM_ASSIGN_OR_RETURN(auto channel, MakeChannel(options.controller_address, options.security));
  auto agent = std::make_unique<GrpcMembershipAgent>(std::move(options), std::move(channel));
  TANDEM_RETURN_IF_ERROR(agent->FirstRegistration(timeout));
  return absl::StatusOr<std::unique_ptr<MembershipAgent>>(std::move(agent));
}

}  // namespace tandem
