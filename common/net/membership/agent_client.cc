#include "common/net/membership/agent_client.h"

#include <chrono>
#include <utility>

#include <absl/base/thread_annotations.h>
#include <grpcpp/channel.h>

#include "common/base/log.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/net/call_tracker.h"
#include "common/net/channel.h"
#include "common/net/membership/agent_codec.h"
#include "common/net/membership/first_answer.h"
#include "common/process/threads.h"
#include "tandem/v1/controller.grpc.pb.h"

namespace tandem {
namespace {

constexpr absl::Duration kBeatDeadline = absl::Seconds(5);
constexpr absl::Duration kLeaveDeadline = absl::Seconds(2);
// How long an attempt to join waits for a connection. gRPC connects only while a thread of the
// process waits for it, and a worker has those of its server, but an agent serves nothing.
constexpr std::chrono::milliseconds kConnectTime(200);

class GrpcAgentClient final : public AgentClient {
 public:
  GrpcAgentClient(AgentClientOptions options, std::shared_ptr<grpc::Channel> channel)
      : options_(std::move(options)),
        channel_(std::move(channel)),
        stub_(v1::AgentService::NewStub(channel_)) {}

  ~GrpcAgentClient() override { StopBeats(); }

  absl::StatusOr<AgentOrders> Join(const AgentNews& news, absl::Duration timeout) override {
    AgentOrders orders;
    TANDEM_RETURN_IF_ERROR(AwaitFirstAnswer(
        {.controller = options_.controller_address,
         .what_is_held = "the place of this host",
         .security = options_.security,
         .clock = options_.clock,
         .timeout = timeout},
        [&]() -> absl::Status {
          channel_->WaitForConnected(std::chrono::system_clock::now() + kConnectTime);
          TANDEM_ASSIGN_OR_RETURN(orders, Send(news, kBeatDeadline, false));
          return absl::OkStatus();
        }));
    return orders;
  }

  void Start(const AgentLimits& limits, Events events) override {
    beats_ = NamedThread("agent-beat", [this, limits, events = std::move(events)] {
      absl::Status end;
      if (Beat(limits, events, &end)) events.on_end(end);
    });
  }

  void BeatNow() override {
    const MutexLock lock(state_mutex_);
    due_ = true;
    wake_.NotifyAll();
  }

  void Leave(AgentNews news) override {
    StopBeats();
    news.leaving = true;
    Send(news, kLeaveDeadline, true).IgnoreError();
  }

 private:
  void StopBeats() {
    {
      const MutexLock lock(state_mutex_);
      stopping_ = true;
    }
    calls_.CancelAll();
    wake_.NotifyAll();
    beats_.Join();
  }

  // `waits`: for a connection, as long as the call may take.
  absl::StatusOr<AgentOrders> Send(const AgentNews& news, absl::Duration deadline, bool waits) {
    const v1::AgentHeartbeatRequest request = ToProto(news);
    v1::AgentHeartbeatResponse response;
    TANDEM_RETURN_IF_ERROR(calls_.Run(deadline, [&](grpc::ClientContext* context) {
      context->set_wait_for_ready(waits);
      return stub_->Heartbeat(context, request, &response);
    }));
    return FromProto(response);
  }

  // Returns true with the reason in `end` when no more beats make sense, false when the owner ended
  // them.
  bool Beat(const AgentLimits& limits, const Events& events, absl::Status* end) {
    Instant last_answer = options_.clock->Now();
    bool refused = false;
    while (Await(limits.heartbeat)) {
      const absl::StatusOr<AgentOrders> orders = Send(events.news(), kBeatDeadline, true);
      if (orders.ok()) {
        last_answer = options_.clock->Now();
        refused = false;
        events.on_orders(*orders);
      } else if (absl::IsUnauthenticated(orders.status()) && !std::exchange(refused, true)) {
        // A controller that starts makes a new token; the call has read the old one.
      } else if (!IsUnreachable(orders.status())) {
        *end = orders.status();
        return true;
      }
      if (options_.clock->Now() - last_answer > limits.controller_lost) {
        *end =
            MakeStatus(absl::StatusCode::kUnavailable,
                       "the controller at {} has not answered for {} "
                       "(cluster.controller_lost_seconds)",
                       options_.controller_address, absl::FormatDuration(limits.controller_lost));
        return true;
      }
    }
    return false;
  }

  // Waits until the next beat is due; false: there is none.
  bool Await(absl::Duration pause) {
    const MutexLock lock(state_mutex_);
    const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoMilliseconds(pause);
    while (!stopping_ && !due_ && wake_.WaitUntil(state_mutex_, deadline)) {
    }
    due_ = false;
    return !stopping_;
  }

  const AgentClientOptions options_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::AgentService::Stub> stub_;

  Mutex state_mutex_;
  ConditionVariable wake_;
  bool due_ ABSL_GUARDED_BY(state_mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(state_mutex_) = false;

  CallTracker calls_;
  NamedThread beats_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<AgentClient>> AgentClient::Connect(AgentClientOptions options) {
  TANDEM_ASSIGN_OR_RETURN(auto channel, MakeChannel(options.controller_address, options.security));
  return absl::StatusOr<std::unique_ptr<AgentClient>>(
      std::make_unique<GrpcAgentClient>(std::move(options), std::move(channel)));
}

}  // namespace tandem
