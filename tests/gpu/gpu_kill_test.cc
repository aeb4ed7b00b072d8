// A process of a pair is killed between the record of an event and its happening, which the fault
// matrix beside this, as on a host, cannot show: the survivor must not wait for an event that never
// happens.
#include <signal.h>

#include "common/base/status.h"
#include "tests/common/weights/ordered_client.h"
#include "tests/common/weights/pair_processes.h"
#include "tests/gpu/gpu.h"
#include "tests/support/patience.h"

namespace tandem {
namespace {

using testing::OpenDescriptors;
using testing::Pair;

constexpr int64_t kKilledSlotBytes = 512 << 10;

// Kills the rollout once bucket `at` has been read, as its replies say: its device may be busy.
class KillingClient : public testing::OrderedClient {
 public:
  KillingClient(std::shared_ptr<grpc::Channel> channel, pid_t rollout, int at)
      : OrderedClient(std::move(channel), {}), rollout_(rollout), at_(at) {}
  absl::Status StartApply(int slot, const std::vector<BucketEntry>& entries) override {
    if (!entries.empty() && bucket_++ == at_) {
      TANDEM_RETURN_IF_ERROR(AwaitEarlier());
      slot_ = slot;
    }
    return GrpcUpdateClient::StartApply(slot, entries);
  }
  absl::Status WaitApply(int slot) override {
    const absl::Status status = GrpcUpdateClient::WaitApply(slot);
    if (slot != slot_) return status;
    slot_ = -1;
    if (status.ok()) kill(rollout_, SIGKILL);
    return status;
  }

 private:
  const pid_t rollout_;
  const int at_;
  int bucket_ = 0;
  int slot_ = -1;  // of bucket `at` while it is being read
};

}  // namespace

TEST_CASE("a rollout outlives a trainer whose GPU never fills what was announced as filled") {
  const bool direct = GENERATE(false, true);
  Pair pair("small", "ipc");
  const auto weights = pair.Weights(3, direct);
  for (const int at : {0, 1, 4}) {
    INFO((direct ? "direct" : "slots") << ", bucket " << at);
    const auto rollout = pair.StartRollout("kill", at);
    const std::string there = std::to_string(rollout->pid());
    const int held_there = OpenDescriptors(there, "emulated-cuda");
    // The rollout kills it when it is asked to read the bucket.
    const auto trainer = pair.StartTrainer(4, 2, "occupy", at, kKilledSlotBytes, direct);
    REQUIRE(trainer->Wait() == -SIGKILL);
    // Answered once the read has ended, which has no end unless the death is noticed.
    const v1::RolloutStatusResponse status = pair.Status();
    INFO(status.last_action());
    REQUIRE(status.state() == v1::EMPTY);
    REQUIRE(status.version() == -1);
    REQUIRE(status.last_action().find("the trainer died during the update to version 2") == 0);
    // Its own scratch of the update may be one more. What a real driver opens is not told apart.
    if (testing::kEmulated) REQUIRE(OpenDescriptors(there, "emulated-cuda") <= held_there + 1);
    const auto healed = pair.Publish(3, *weights, kKilledSlotBytes);
    INFO(healed.status().ToString());
    REQUIRE(healed.ok());
    REQUIRE(healed->direct == direct);
    REQUIRE(pair.Check(*weights).ok());
  }
}

TEST_CASE("a trainer outlives a rollout whose GPU never reads what it answered for") {
  const bool direct = GENERATE(false, true);
  const bool kept = GENERATE(false, true);
  Pair pair("small", "ipc");
  if (kept) pair.keep_bytes = int64_t{1} << 40;
  const auto weights = pair.Weights(3, direct);
  int64_t used = 0;  // with a rollout: a GPU counts what all processes hold
  {
    const auto rollout = pair.StartRollout();
    REQUIRE(pair.Publish(1, *weights, kKilledSlotBytes).ok());
    used = pair.device->UsedBytes();
  }
  for (const int at : {0, 1, 3}) {
    INFO((direct ? "direct" : "slots") << (kept ? ", kept" : "") << ", bucket " << at);
    const auto rollout = pair.StartRollout("occupy", at);
    KillingClient client(pair.channel, rollout->pid(), at);
    const absl::Status status = pair.PublishTo(client, 2, *weights, kKilledSlotBytes).status();
    INFO(status.ToString());
    REQUIRE(absl::IsUnavailable(status));
    REQUIRE(std::string(status.message()).find("rollout") != std::string::npos);
    REQUIRE(OriginOf(status) == FailureOrigin::kPartner);
    REQUIRE(rollout->Wait() == -SIGKILL);
    REQUIRE(BytesOf(pair.ledger.Snapshot(), "bucket") == 0);

    const auto successor = pair.StartRollout();
    const auto healed = pair.Publish(3, *weights, kKilledSlotBytes);
    INFO(healed.status().ToString());
    REQUIRE(healed.ok());
    REQUIRE(pair.Check(*weights).ok());
    // A driver may give back what a killed process held a little after its end.
    testing::WaitUntil("the device's memory to be given back", [&] {
      return pair.device->UsedBytes() <= used + pair.device->SlackBytes();
    });
  }
}

}  // namespace tandem
