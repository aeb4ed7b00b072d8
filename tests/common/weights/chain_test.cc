// A chain of rollouts over TCP in one process: what arrives, what crosses, and who refuses what.
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "common/tcp/tcp_listener.h"
#include "common/weights/tcp/slot_relay.h"
#include "tests/common/weights/layout_zoo.h"
#include "tests/common/weights/stream_rig.h"
#include "tests/common/weights/tcp_relay.h"
#include "tests/support/certificates.h"
#include "tests/support/text.h"
#include "trainer_worker/weight_sync/chain_update_client.h"

namespace tandem::chain_test {
namespace {

using testing::Authority;
using testing::kPatience;
using testing::MemoryWeights;
using testing::NamesOf;
using testing::Says;
using testing::StreamClient;
using testing::StreamRollout;
using testing::TcpRelay;
using testing::TempDir;
using testing::WaitUntil;
using testing::WireFault;

constexpr int64_t kSlotBytes = 16 << 10;
constexpr int64_t kInFirstFrame = 5000;  // far within its payload, in a tensor that has no gaps
constexpr absl::Duration kStandstill = absl::Seconds(3);

WeightLayout Layout() { return WeightLayout::Build(testing::OddSpec(true), DType::kBFloat16); }

// Three rollouts and a trainer that publishes to them.
struct ChainRig {
  explicit ChainRig(absl::Duration slots_timeout = kPatience,
                    const TcpSecurity& accepting = {},
                    const TcpSecurity& relaying = {},
                    const TcpSecurity& trainer = {})
      : layout(Layout()), security(trainer) {
    for (int rank = 0; rank < 3; ++rank) {
      rollouts.emplace_back(layout, accepting, slots_timeout, relaying);
    }
  }

  // `prepare` may change the client of each rank before the update.
  absl::StatusOr<PublishReport> Publish(
      int64_t version, const std::function<void(int rank, StreamClient&)>& prepare = {}) {
    std::vector<std::unique_ptr<UpdateClient>> clients;
    for (int rank = 0; rank < 3; ++rank) {
      auto client = std::make_unique<StreamClient>(&rollouts[static_cast<size_t>(rank)], security);
      if (prepare) prepare(rank, *client);
      clients.push_back(std::move(client));
    }
    ChainUpdateClient chain(std::move(clients));
    auto report = publisher.Publish(version, weights, &chain);
    REQUIRE(chain.ended());
    outcomes = chain.outcomes();
    for (StreamRollout& rollout : rollouts) {
      REQUIRE_FALSE(rollout.updates->transaction().updating());
      REQUIRE(rollout.BucketBytes() == 0);
    }
    return report;
  }
  // What the wire before the rollout of `rank` does.
  static auto Damage(int damaged, std::unique_ptr<TcpRelay>* wire, const WireFault& fault) {
    return [=](int rank, StreamClient& client) {
      if (rank != damaged) return;
      client.on_offer = [=](StreamOffer& offer) {
        *wire = std::make_unique<TcpRelay>(offer.address, fault);
        offer.address = (*wire)->address();
      };
    };
  }
  const absl::Status& status(size_t rank) const { return outcomes[rank].status; }
  void RequireAllHold(int64_t version) {
    const auto report = Publish(version);
    INFO(report.status().ToString());
    REQUIRE(report.ok());
    for (size_t rank = 0; rank < 3; ++rank) {
      INFO(rank << " " << status(rank).ToString());
      REQUIRE(status(rank).ok());
      REQUIRE(rollouts[rank].updates->version() == version);
      REQUIRE(rollouts[rank].Holds(publisher));
    }
  }

  const WeightLayout layout;
  const TcpSecurity security;
  std::deque<StreamRollout> rollouts;
  MemoryWeights weights{layout, 1};
  WeightPublisher publisher{&layout, {.slot_bytes = kSlotBytes}};
  std::vector<ChainOutcome> outcomes;
};

TcpSecurity Files(const RpcSecurity& files, std::vector<std::string> peers) {
  return {.cert = files.cert,
          .key = files.key,
          .ca = files.ca,
          .project = "demo",
          .peer_roles = std::move(peers)};
}

}  // namespace

TEST_CASE("in a chain all rollouts hold the same bits, and weights leave the trainer once",
          "[chain]") {
  ChainRig rig;
  rig.RequireAllHold(1);
  rig.weights.tensor(rig.layout.places()[0].name)[0] ^= std::byte{0x5a};
  const auto report = rig.Publish(2);
  REQUIRE(report.ok());
  for (StreamRollout& rollout : rig.rollouts) REQUIRE(rollout.Holds(rig.publisher));
  REQUIRE(rig.rollouts[0].storage == rig.rollouts[2].storage);
  REQUIRE(report->buckets > 4);
  REQUIRE(report->sent_bytes >= report->bytes);
  for (const ChainOutcome& outcome : rig.outcomes) {
    REQUIRE(outcome.traffic.received == report->sent_bytes);
  }
  REQUIRE(rig.outcomes[0].traffic.forwarded == report->sent_bytes);
  REQUIRE(rig.outcomes[1].traffic.forwarded == report->sent_bytes);
  REQUIRE(rig.outcomes[2].traffic.forwarded == 0);

  // One after the other, they leave it three times.
  int64_t sent = 0;
  for (StreamRollout& rollout : rig.rollouts) {
    StreamClient client(&rollout);
    const auto alone = rig.publisher.Publish(3, rig.weights, &client);
    REQUIRE(alone.ok());
    REQUIRE(client.traffic().received == alone->sent_bytes);
    REQUIRE(client.traffic().forwarded == 0);
    sent += alone->sent_bytes;
  }
  REQUIRE(sent == 3 * report->sent_bytes);
}

TEST_CASE("a bit that flips on the way to a rollout of a chain is refused there and behind it",
          "[chain]") {
  ChainRig rig;
  rig.RequireAllHold(1);
  std::unique_ptr<TcpRelay> wire;
  const auto report = rig.Publish(2, ChainRig::Damage(1, &wire, {.flip_at = kInFirstFrame}));
  REQUIRE(report.ok());
  REQUIRE(rig.status(0).ok());
  REQUIRE(rig.rollouts[0].Holds(rig.publisher));
  for (size_t rank : {1, 2}) {
    INFO(rig.status(rank).ToString());
    REQUIRE(absl::IsDataLoss(rig.status(rank)));
    REQUIRE(Says(rig.status(rank), "model.embed_tokens.weight of version 2 arrived damaged"));
    REQUIRE(rig.rollouts[rank].updates->version() == kNoVersion);
  }
  rig.RequireAllHold(3);
}

TEST_CASE("a link of a chain that ends leaves the rollouts before it, and ends those behind it",
          "[chain]") {
  ChainRig rig;
  rig.RequireAllHold(1);
  const int broken = GENERATE(1, 2);
  std::unique_ptr<TcpRelay> wire;
  const auto report =
      rig.Publish(2, ChainRig::Damage(broken, &wire, {.cut_at = kInFirstFrame + 2 * kSlotBytes}));
  REQUIRE(report.ok());
  for (int rank = 0; rank < 3; ++rank) {
    const absl::Status& status = rig.status(static_cast<size_t>(rank));
    INFO(rank << " " << status.ToString());
    REQUIRE(status.ok() == (rank < broken));
    REQUIRE((status.ok() || absl::IsUnavailable(status)));
  }
  rig.RequireAllHold(3);
}

TEST_CASE("a link of a chain that keeps bytes back ends the rollouts behind it alone", "[chain]") {
  ChainRig rig(kStandstill);
  rig.RequireAllHold(1);
  std::unique_ptr<TcpRelay> wire;
  const auto report = rig.Publish(2, ChainRig::Damage(1, &wire, {.hold_at = kInFirstFrame}));
  REQUIRE(report.ok());
  REQUIRE(rig.status(0).ok());
  REQUIRE_FALSE(rig.status(1).ok());
  REQUIRE_FALSE(rig.status(2).ok());
  rig.RequireAllHold(3);
}

TEST_CASE("a slow last rollout applies what came after those before it have committed", "[chain]") {
  ChainRig rig;
  std::atomic<bool> committed = false;
  const auto report = rig.Publish(1, [&committed](int rank, StreamClient& client) {
    if (rank == 0) client.after_commit = [&committed] { committed = true; };
    if (rank < 2) return;
    client.before_apply = [&committed] {
      WaitUntil("the first rollout's commit", [&committed] { return committed.load(); });
    };
  });
  REQUIRE(report.ok());
  for (size_t rank = 0; rank < 3; ++rank) {
    INFO(rig.status(rank).ToString());
    REQUIRE(rig.status(rank).ok());
    REQUIRE(rig.rollouts[rank].Holds(rig.publisher));
  }
}

TEST_CASE("a rollout that refuses the update is left out of the chain", "[chain]") {
  ChainRig rig;
  const size_t refuses = GENERATE(0, 1, 2);
  rig.rollouts[refuses].states.KnowGroup(7);
  const auto report = rig.Publish(1);
  INFO(report.status().ToString());
  REQUIRE(report.ok());
  for (size_t rank = 0; rank < 3; ++rank) {
    INFO(rank << " " << rig.status(rank).ToString());
    REQUIRE(rig.status(rank).ok() == (rank != refuses));
    REQUIRE((rank == refuses || rig.rollouts[rank].Holds(rig.publisher)));
  }
  REQUIRE(absl::IsAborted(rig.status(refuses)));
}

TEST_CASE("where all rollouts of a chain refuse, the update fails", "[chain]") {
  ChainRig rig;
  for (StreamRollout& rollout : rig.rollouts) rollout.states.KnowGroup(7);
  REQUIRE(absl::IsAborted(rig.Publish(1).status()));
  for (const ChainOutcome& outcome : rig.outcomes) REQUIRE(absl::IsAborted(outcome.status));
}

TEST_CASE("over TLS rollouts of a chain show their certificates to each other", "[chain]") {
  const TempDir dir;
  const Authority authority(dir.path(), "ours");
  const RpcSecurity rollout = authority.Issue("rollout", NamesOf("rollout"));
  const TcpSecurity accepting = Files(rollout, {"trainer", "rollout"});
  const TcpSecurity trainer = Files(authority.Issue("trainer", NamesOf("trainer")), {"rollout"});
  ChainRig rig(kPatience, accepting, Files(rollout, {"rollout"}), trainer);
  rig.RequireAllHold(1);

  // Of an update that comes from a trainer, a rollout is sent nothing by a rollout.
  StreamClient client(&rig.rollouts[0], Files(rollout, {"rollout"}));
  const absl::Status status = rig.publisher.Publish(2, rig.weights, &client).status();
  INFO(status.ToString());
  REQUIRE(absl::IsUnavailable(status));
  REQUIRE(rig.rollouts[0].updates->version() == 1);
  rig.RequireAllHold(3);
}

TEST_CASE("a frame of a rollout waits until its slot was applied and forwarded", "[chain]") {
  constexpr SlotShape shape = {.slot_bytes = 4096, .slots = 1};
  const Instant patience = RealClock().Now() + kPatience;
  const auto listener = TcpListener::Listen("127.0.0.1:0", {});
  REQUIRE(listener.ok());
  std::unique_ptr<TcpConnection> accepted;
  std::jthread accepts([&] { accepted = (*listener)->Accept(patience).value(); });
  const auto dialled = DialTcp(fmt::format("127.0.0.1:{}", (*listener)->port()), {}, patience);
  accepts.join();
  REQUIRE(dialled.ok());
  std::vector<std::byte> slot(4096);
  SlotReceiver receiver(std::move(accepted), 1, shape, slot.data(), kPatience,
                        {.from_rollout = true, .forwards = true});
  std::vector<std::byte> first(4096, std::byte{1}), second(4096, std::byte{2});
  for (const auto* bytes : {&first, &second}) {
    const FrameHeader header = {
        .update_number = 1, .sequence = bytes == &second ? 1 : 0, .bytes = 4096};
    REQUIRE((*dialled)->Send(&header, sizeof(header), patience).ok());
    REQUIRE((*dialled)->Send(bytes->data(), 4096, patience).ok());
  }
  REQUIRE(receiver.Await(0, kPatience).value() == 4096);
  REQUIRE(slot == first);
  receiver.Free(0);
  // Applied, and not forwarded: the second frame is not late either.
  REQUIRE(receiver.bytes() == 4096);
  REQUIRE(slot == first);
  receiver.Forwarded(0);
  REQUIRE(receiver.Await(0, kPatience).value() == 4096);
  REQUIRE(slot == second);
}

TEST_CASE("a relay gives up a rollout that reads nothing, and its slots are free again",
          "[chain]") {
  // More than sockets hold.
  constexpr SlotShape shape = {.slot_bytes = 64 << 20, .slots = 2};
  const Instant patience = RealClock().Now() + kPatience;
  const auto listener = testing::ListenOnLoopback();
  REQUIRE(listener.ok());
  const StreamOffer offer = (*listener)->Expect(1, shape, StreamSender::kTrainerOrRollout).value();
  const std::vector<std::byte> slot(static_cast<size_t>(shape.slot_bytes));
  std::atomic<int> forwarded = 0;
  SlotRelay relay({offer.address, offer.ticket, 1, shape}, {}, kStandstill,
                  [&forwarded](int) { ++forwarded; });
  const auto silent = (*listener)->Take(kPatience);
  REQUIRE(silent.ok());
  relay.Forward(0, slot.data(), shape.slot_bytes);
  relay.Forward(1, slot.data(), shape.slot_bytes);
  relay.Finish();
  REQUIRE(forwarded == 2);
  REQUIRE(relay.bytes() == 0);
  // Behind what went there is no last frame: the connection ends within a slot.
  FrameHeader header;
  REQUIRE((*silent)->Receive(&header, sizeof(header), patience).ok());
  REQUIRE(header.bytes == shape.slot_bytes);
  std::vector<std::byte> rest(static_cast<size_t>(shape.slot_bytes));
  REQUIRE(absl::IsUnavailable((*silent)->Receive(rest.data(), shape.slot_bytes, patience)));
}

}  // namespace tandem::chain_test
