// W6 and W11 as a matrix: every fault at every bucket index, between two processes. After each the
// rollout holds the whole old version or none, the next update succeeds, and nothing has leaked.
#include <functional>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/common/weights/ordered_client.h"
#include "tests/common/weights/pair_processes.h"
#include "tests/support/patience.h"

namespace tandem {
namespace {

using testing::kPatience;
using testing::MemoryWeights;
using testing::OpenDescriptors;
using testing::OrderedClient;
using testing::Pair;
using testing::PairDevice;
using testing::PairWays;
using testing::Peer;
using testing::WaitUntil;

constexpr int64_t kSlotBytes = 512 << 10;

// Flips a bit of a filled slot where the rollout reads it: in shared memory, or in the device's.
void FlipBit(const ProducerSlots& slots, int slot, int64_t offset, PairDevice& device) {
  const int fd = slots.handle().fd;
  const off_t at = offset + (slots.shape().direct ? 0 : slot * slots.shape().slot_bytes);
  unsigned char byte = 0;
  if (fd < 0) device.device().Copy(&byte, slots.slot(slot) + offset, 1);
  REQUIRE(device.device().Synchronize().ok());
  if (fd >= 0) REQUIRE(pread(fd, &byte, 1, at) == 1);
  byte ^= 0x04;
  if (fd >= 0) REQUIRE(pwrite(fd, &byte, 1, at) == 1);
  if (fd < 0) device.device().Copy(slots.slot(slot) + offset, &byte, 1);
  REQUIRE(device.device().Synchronize().ok());
}

// Gives up, or flips one bit of the filled slot, before bucket `at` is sent.
class SabotagedClient : public GrpcUpdateClient {
 public:
  SabotagedClient(std::shared_ptr<grpc::Channel> channel,
                  const PairDevice& device,
                  PairDevice* flips_on,
                  int at)
      : GrpcUpdateClient(std::move(channel),
                         {.deadline = kPatience,
                          .abort_deadline = kPatience,
                          .over_tcp = device.over_tcp(),
                          .data = device.DataSecurity("rollout")}),
        flips_on_(flips_on),
        at_(at) {}
  absl::StatusOr<PeerConnection> Begin(const UpdateRequest& request,
                                       const ProducerSlots& slots) override {
    slots_ = &slots;
    manifest_ = request.manifest;
    return GrpcUpdateClient::Begin(request, slots);
  }
  absl::Status StartApply(int slot, const std::vector<BucketEntry>& entries) override {
    if (!entries.empty() && bucket_++ == at_) {
      if (flips_on_ == nullptr) return absl::CancelledError("given up on purpose");
      const BucketEntry& entry = entries[entries.size() / 2];
      FlipBit(*slots_, slot, entry.offset, *flips_on_);
      damaged = manifest_[entry.tensor].name;
    }
    return GrpcUpdateClient::StartApply(slot, entries);
  }
  std::string damaged;  // the tensor

 private:
  PairDevice* const flips_on_;
  const int at_;
  int bucket_ = 0;
  const ProducerSlots* slots_ = nullptr;
  Manifest manifest_;
};

// Stops the rollout before bucket `at` is sent, so that its trainer runs into a deadline, which is
// short from then on only: what comes before takes as long as it takes.
class StoppingClient : public OrderedClient {
 public:
  StoppingClient(std::shared_ptr<grpc::Channel> channel,
                 const PairDevice& device,
                 pid_t rollout,
                 int at)
      : OrderedClient(std::move(channel),
                      {.deadline = kPatience,
                       .over_tcp = device.over_tcp(),
                       .data = device.DataSecurity("rollout")}),
        rollout_(rollout),
        at_(at) {}
  absl::Status StartApply(int slot, const std::vector<BucketEntry>& entries) override {
    if (!entries.empty() && bucket_++ == at_) {
      TANDEM_RETURN_IF_ERROR(AwaitEarlier());
      siginfo_t stopped;
      kill(rollout_, SIGSTOP);
      waitid(P_PID, static_cast<id_t>(rollout_), &stopped, WSTOPPED);  // all its threads
      ShortenDeadline(absl::Milliseconds(300));
      has_stopped = true;
    }
    return GrpcUpdateClient::StartApply(slot, entries);
  }
  bool has_stopped = false;

 private:
  const pid_t rollout_;
  const int at_;
  int bucket_ = 0;
};

// gRPC opens its own descriptors (pollers, a new connection) at any time, and
// closes those of a peer that was killed when it notices. Fewer than the faults of a matrix, each
// of which would leave one more.
constexpr int kOfGrpc = 4;

// Waits until a process has only `want` descriptors besides gRPC's.
void AwaitDescriptors(const std::string& process, int want) {
  WaitUntil("the descriptors of " + process + " to be closed",
            [&] { return OpenDescriptors(process) <= want + kOfGrpc; });
}

// A way that weights may go here, through slots or direct.
struct Route {
  std::string way;
  bool direct;
};
std::vector<Route> Routes() {
  std::vector<Route> routes;
  for (const std::string& way : PairWays()) {
    routes.push_back({way, false});
    if (way == "host" || way == "ipc") routes.push_back({way, true});
  }
  return routes;
}

bool SharesMemory(const Route& route) { return route.way != "tcp" && route.way != "tls"; }

// A pair whose rollout holds version 1, and the new version that does not get through.
struct FaultMatrix {
  explicit FaultMatrix(const Route& by)
      : route(by),
        pair("small", by.way),
        rollout(pair.StartRollout()),
        old_weights(pair.Weights(3, by.direct)),
        new_weights(pair.Weights(4, by.direct)) {
    Heal();
  }

  // A whole update after whatever happened.
  void Heal() {
    const auto report = pair.Publish(1, *old_weights, kSlotBytes);
    INFO(report.status().ToString());
    REQUIRE(report.ok());
    REQUIRE(report->direct == route.direct);
    buckets = static_cast<int>(report->buckets);
    REQUIRE(buckets > kOfGrpc + 1);
    REQUIRE(pair.Status().version() == 1);
    REQUIRE(pair.Check(*old_weights).ok());
  }

  // `fault` strikes at every bucket in turn (FaultStride). Every time: nothing torn is held, and
  // Heal works.
  void ForEveryBucket(const std::string& name, const std::function<void(int)>& fault) {
    const int64_t used_here = pair.device->UsedBytes();
    const int open_here = OpenDescriptors();
    const int open_there = OpenDescriptors(std::to_string(rollout->pid()));
    int survived = 0;
    const int stride = pair.device->FaultStride();
    for (int at = 0; at < buckets; at += stride) {
      INFO(name << " at bucket " << at << " of " << buckets);
      fault(at);
      const v1::RolloutStatusResponse status = pair.Status();
      REQUIRE(status.state() == (status.version() < 0 ? v1::EMPTY : v1::SERVING));
      REQUIRE((status.version() == 1 || status.version() == -1));
      if (status.version() == 1) REQUIRE(pair.Check(*old_weights).ok());
      Heal();
      REQUIRE(BytesOf(pair.ledger.Snapshot(), "bucket") == 0);
      const std::string there = std::to_string(rollout->pid());
      REQUIRE(OpenDescriptors(there, "memfd:tandem-") == 0);
      AwaitDescriptors(there, open_there);
      const bool host_shards = route.direct && route.way == "host";
      REQUIRE(OpenDescriptors("self", "memfd:tandem-") == (host_shards ? 2 : 0));
      ++survived;
    }
    AwaitDescriptors("self", open_here);
    // A driver may give back what a killed process held a little after its end.
    WaitUntil("the device's memory to be given back",
              [&] { return pair.device->UsedBytes() <= used_here + pair.device->SlackBytes(); });
    REQUIRE(survived == (buckets + stride - 1) / stride);
    WARN(name << " by " << route.way << (route.direct ? ", direct: " : ", slots: ") << survived
              << " faults injected, " << survived << " survived");
  }

  const Route route;
  Pair pair;
  std::unique_ptr<Peer> rollout;
  const std::unique_ptr<MemoryWeights> old_weights, new_weights;
  int buckets = 0;
};

}  // namespace

TEST_CASE("W6: an update that is given up at any bucket, between processes") {
  FaultMatrix matrix(GENERATE(from_range(Routes())));
  matrix.ForEveryBucket("abort", [&](int at) {
    SabotagedClient client(matrix.pair.channel, *matrix.pair.device, nullptr, at);
    const absl::Status status =
        matrix.pair.PublishTo(client, 2, *matrix.new_weights, kSlotBytes).status();
    REQUIRE(absl::IsCancelled(status));
    // Before the first byte was applied the old version stays.
    if (at == 0) REQUIRE(matrix.pair.Status().version() == 1);
    if (at > 2) REQUIRE(matrix.pair.Status().version() == -1);
  });
}

// Of ways on which both ends see the same memory; of others slot_stream_test.cc has the test.
TEST_CASE("W6: a bit that flips in any bucket, between processes") {
  FaultMatrix matrix(GENERATE(
      filter([](const Route& route) { return SharesMemory(route); }, from_range(Routes()))));
  matrix.ForEveryBucket("bit flip", [&](int at) {
    SabotagedClient client(matrix.pair.channel, *matrix.pair.device, matrix.pair.device.get(), at);
    const absl::Status status =
        matrix.pair.PublishTo(client, 2, *matrix.new_weights, kSlotBytes).status();
    REQUIRE(absl::IsDataLoss(status));
    INFO(status.ToString());
    REQUIRE(std::string(status.message()).find(client.damaged + " of version 2 arrived damaged") !=
            std::string::npos);
    REQUIRE(matrix.pair.Status().version() == -1);
  });
}

TEST_CASE("W11: a rollout that stands still at any bucket, and reads on when weights are others") {
  FaultMatrix matrix(GENERATE(from_range(Routes())));
  matrix.ForEveryBucket("rollout stopped", [&](int at) {
    {
      StoppingClient client(matrix.pair.channel, *matrix.pair.device, matrix.rollout->pid(), at);
      const absl::Status status =
          matrix.pair.PublishTo(client, 2, *matrix.new_weights, kSlotBytes).status();
      INFO(status.ToString());
      REQUIRE(client.has_stopped);
      REQUIRE(absl::IsDeadlineExceeded(status));
      // The trainer's next step.
      for (const TensorPlace& place : matrix.pair.layout.places()) {
        matrix.new_weights->tensor(place.name)[0] ^= std::byte{0x11};
      }
      kill(matrix.rollout->pid(), SIGCONT);
    }
    // What it had been asked for before it stood still may be carried out first.
    WaitUntil("the update to end", [&] { return matrix.pair.Status().state() != v1::UPDATING; });
  });
}

TEST_CASE("W11: a trainer killed at any bucket") {
  FaultMatrix matrix(GENERATE(from_range(Routes())));
  matrix.ForEveryBucket("producer killed", [&](int at) {
    const auto trainer = matrix.pair.StartTrainer(4, 2, "die", at, kSlotBytes, matrix.route.direct);
    REQUIRE(trainer->Wait() == -SIGKILL);
    if (at == 0) REQUIRE(matrix.pair.Status().version() == 1);
    if (at > 2) REQUIRE(matrix.pair.Status().version() == -1);
  });
}

TEST_CASE("W11: a rollout killed at any bucket") {
  FaultMatrix matrix(GENERATE(from_range(Routes())));
  matrix.ForEveryBucket("receiver killed", [&](int at) {
    matrix.rollout.reset();
    matrix.rollout = matrix.pair.StartRollout("die", at);
    const absl::Status status = matrix.pair.Publish(2, *matrix.new_weights, kSlotBytes).status();
    REQUIRE(absl::IsUnavailable(status));
    REQUIRE(matrix.rollout->Wait() == -SIGKILL);
    matrix.rollout = matrix.pair.StartRollout();
    REQUIRE(matrix.pair.Status().version() == -1);
  });
}

}  // namespace tandem
