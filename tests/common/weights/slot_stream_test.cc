// Weights over TCP in one process: who is let in, and what a damaged or broken wire leaves behind.
#include "common/weights/slot_stream.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <sys/stat.h>

#include "common/tcp/tcp_listener.h"
#include "tests/common/weights/layout_zoo.h"
#include "tests/common/weights/stream_rig.h"
#include "tests/common/weights/tcp_relay.h"
#include "tests/support/certificates.h"
#include "tests/support/text.h"

namespace tandem {
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
// Far within the payload of the first frame, in a tensor that has no gaps.
constexpr int64_t kInFirstFrame = 5000;
// Long enough for all that does not stand still.
constexpr absl::Duration kStandstill = absl::Seconds(3);

WeightLayout Layout() { return WeightLayout::Build(testing::OddSpec(true), DType::kBFloat16); }

struct Sender {
  explicit Sender(const WeightLayout& layout, int64_t generation = 1)
      : publisher(&layout,
                  {.slot_bytes = kSlotBytes, .ledger = &ledger, .group_generation = generation}) {}
  Ledger ledger;
  WeightPublisher publisher;
};

// A whole update of other weights, which must arrive.
void RequireHeals(StreamRollout& rollout, int64_t version, const TcpSecurity& security = {}) {
  StreamClient client(&rollout, security);
  MemoryWeights weights(rollout.layout, 9);
  Sender trainer(rollout.layout, version);
  const auto report = trainer.publisher.Publish(version, weights, &client);
  INFO(report.status().ToString());
  REQUIRE(report.ok());
  REQUIRE(rollout.updates->version() == version);
  REQUIRE(rollout.Holds(trainer.publisher));
  REQUIRE(rollout.BucketBytes() == 0);
}

TcpSecurity Files(const RpcSecurity& files, const std::string& peer) {
  return {.cert = files.cert,
          .key = files.key,
          .ca = files.ca,
          .project = "demo",
          .peer_roles = {peer}};
}

}  // namespace

TEST_CASE("weights cross over TCP, in slots that both ledgers count") {
  StreamRollout rollout(Layout());
  StreamClient client(&rollout);
  MemoryWeights weights(rollout.layout, 1);
  Sender trainer(rollout.layout);
  int64_t most = 0;
  for (int64_t version = 1; version <= 3; ++version) {
    weights.tensor(rollout.layout.places()[0].name)[0] ^= std::byte{0x5a};
    client.on_target = [&](StreamTarget&) { most = BytesOf(trainer.ledger.Snapshot(), "bucket"); };
    const auto report = trainer.publisher.Publish(version, weights, &client);
    INFO(report.status().ToString());
    REQUIRE(report.ok());
    REQUIRE_FALSE(report->direct);
    REQUIRE(report->buckets > 2);
    REQUIRE(client.applied == version * report->buckets);
    REQUIRE(rollout.Holds(trainer.publisher));
    REQUIRE(most == 2 * kSlotBytes);
    REQUIRE(rollout.BucketBytes() == 0);
  }
  REQUIRE(rollout.ledger.Snapshot().entries.size() == 1);
  REQUIRE(rollout.ledger.Snapshot().entries[0].peak_bytes == 2 * kSlotBytes);
}

TEST_CASE("a shard that the rollout could read in place is sent through slots") {
  StreamRollout rollout(Layout());
  StreamClient client(&rollout);
  MemoryWeights weights(rollout.layout, 1);
  weights.Share();
  Sender trainer(rollout.layout);
  const auto report = trainer.publisher.Publish(1, weights, &client);
  REQUIRE(report.ok());
  REQUIRE_FALSE(report->direct);
  REQUIRE(rollout.Holds(trainer.publisher));
}

TEST_CASE("connections that are not the expected one harm no update") {
  StreamRollout rollout(Layout());
  RequireHeals(rollout, 1);
  const std::string address = rollout.listener->address();
  const Instant patience = RealClock().Now() + kPatience;
  // They stay open, and say nothing, for as long as the test lasts.
  const auto silent = DialTcp(address, {}, patience);
  REQUIRE(silent.ok());
  const auto dial = [&](StreamTarget target) {
    return SlotSender::Dial(target, {}, kPatience).status();
  };
  StreamClient client(&rollout);
  client.on_target = [&](StreamTarget& target) {
    StreamTarget wrong = target;
    wrong.ticket[3] ^= 1;
    REQUIRE(absl::IsUnavailable(dial(wrong)));
    wrong = target;
    wrong.shape.slot_bytes += 256;
    REQUIRE(absl::IsUnavailable(dial(wrong)));
    wrong = target;
    --wrong.update_number;
    REQUIRE(absl::IsUnavailable(dial(wrong)));
    wrong = target;
    wrong.ticket.pop_back();
    REQUIRE(absl::IsInvalidArgument(dial(wrong)));
    const auto garbage = DialTcp(address, {}, patience);
    REQUIRE(garbage.ok());
    const std::string text(200, 'x');
    REQUIRE((*garbage)->Send(text.data(), 200, patience).ok());
    char answer = 0;
    REQUIRE(absl::IsUnavailable((*garbage)->Receive(&answer, 1, patience)));
    REQUIRE_FALSE(rollout.updates->transaction().applied());
    REQUIRE(rollout.updates->Poll().ok());
  };
  MemoryWeights weights(rollout.layout, 2);
  Sender trainer(rollout.layout, 2);
  const auto report = trainer.publisher.Publish(2, weights, &client);
  INFO(report.status().ToString());
  REQUIRE(report.ok());
  REQUIRE(rollout.Holds(trainer.publisher));
}

TEST_CASE("a ticket lets one connection in") {
  StreamRollout rollout(Layout());
  StreamClient client(&rollout);
  StreamTarget used;
  client.on_target = [&](StreamTarget& target) { used = target; };
  MemoryWeights weights(rollout.layout, 2);
  Sender trainer(rollout.layout);
  REQUIRE(trainer.publisher.Publish(1, weights, &client).ok());
  REQUIRE(absl::IsUnavailable(SlotSender::Dial(used, {}, kPatience).status()));
  client.on_target = [&](StreamTarget& target) {
    REQUIRE(target.ticket != used.ticket);
    const auto first = SlotSender::Dial(target, {}, kPatience);
    REQUIRE(first.ok());
    REQUIRE(absl::IsUnavailable(SlotSender::Dial(target, {}, kPatience).status()));
  };
  // The connection that came first has ended, and with it the update.
  REQUIRE(absl::IsUnavailable(trainer.publisher.Publish(2, weights, &client).status()));
  REQUIRE(rollout.updates->version() == 1);
  RequireHeals(rollout, 3);
}

TEST_CASE("a bit that flips on the wire is refused at the commit, by the tensor's name") {
  StreamRollout rollout(Layout());
  RequireHeals(rollout, 1);
  const TcpRelay relay(rollout.listener->address(), {.flip_at = kInFirstFrame});
  StreamClient client(&rollout);
  client.on_target = [&](StreamTarget& target) { target.address = relay.address(); };
  MemoryWeights weights(rollout.layout, 2);
  Sender trainer(rollout.layout, 2);
  const absl::Status status = trainer.publisher.Publish(2, weights, &client).status();
  INFO(status.ToString());
  REQUIRE(absl::IsDataLoss(status));
  REQUIRE(Says(status, "model.embed_tokens.weight of version 2 arrived damaged"));
  REQUIRE(rollout.updates->version() == kNoVersion);
  RequireHeals(rollout, 3);
}

TEST_CASE("a connection that ends within a frame ends the update as an abort does") {
  StreamRollout rollout(Layout());
  RequireHeals(rollout, 1);
  // In the first frame nothing has been applied; the third is sent when the first has been.
  const bool early = GENERATE(true, false);
  const TcpRelay relay(rollout.listener->address(),
                       {.cut_at = kInFirstFrame + (early ? 0 : 2 * kSlotBytes)});
  StreamClient client(&rollout);
  client.on_target = [&](StreamTarget& target) { target.address = relay.address(); };
  MemoryWeights weights(rollout.layout, 2);
  Sender trainer(rollout.layout, 2);
  const absl::Status status = trainer.publisher.Publish(2, weights, &client).status();
  INFO(status.ToString());
  REQUIRE(absl::IsUnavailable(status));
  REQUIRE_FALSE(rollout.updates->transaction().updating());
  REQUIRE(rollout.updates->version() == (early ? 1 : kNoVersion));
  REQUIRE(rollout.states.state() == (early ? RolloutState::kServing : RolloutState::kEmpty));
  REQUIRE(rollout.BucketBytes() == 0);
  RequireHeals(rollout, 3);
}

TEST_CASE("a connection that stands still within a frame ends the update by its deadline") {
  StreamRollout rollout(Layout(), {}, kStandstill);
  RequireHeals(rollout, 1);
  const TcpRelay relay(rollout.listener->address(), {.hold_at = kInFirstFrame});
  StreamClient client(&rollout);
  client.on_target = [&](StreamTarget& target) { target.address = relay.address(); };
  MemoryWeights weights(rollout.layout, 2);
  Sender trainer(rollout.layout, 2);
  const absl::Status status = trainer.publisher.Publish(2, weights, &client).status();
  INFO(status.ToString());
  REQUIRE(absl::IsDeadlineExceeded(status));
  REQUIRE(Says(status, "the update to version 2 has ended; version 1 stays"));
  REQUIRE_FALSE(rollout.updates->transaction().updating());
  REQUIRE(rollout.updates->version() == 1);
  RequireHeals(rollout, 3);
}

TEST_CASE("a frame may take longer than the limit as long as it moves on") {
  constexpr int64_t kParts = 8;
  const SlotShape shape = {kParts * kFramePart, 1};
  const auto listener = TcpListener::Listen("127.0.0.1:0", {}, kPeerSilence);
  REQUIRE(listener.ok());
  const Instant patience = RealClock().Now() + kPatience;
  std::unique_ptr<TcpConnection> accepted;
  std::jthread accepts([&] { accepted = (*listener)->Accept(patience).value(); });
  const auto dialled = DialTcp(fmt::format("127.0.0.1:{}", (*listener)->port()), {}, patience);
  accepts.join();
  REQUIRE(dialled.ok());
  std::vector<std::byte> slot(static_cast<size_t>(shape.slot_bytes)), sent(slot);
  sent.back() = std::byte{7};
  SlotReceiver receiver(std::move(accepted), 3, shape, slot.data(), kStandstill);
  // Each part is on its way for a sixth of the limit, and all of them for longer than it.
  const std::jthread slow([&] {
    const FrameHeader header = {.update_number = 3, .bytes = shape.slot_bytes};
    (void)(*dialled)->Send(&header, sizeof(header), patience);
    for (int64_t part = 0; part < kParts; ++part) {
      RealClock().Sleep(kStandstill / (kParts - 2));
      (void)(*dialled)->Send(sent.data() + part * kFramePart, kFramePart, patience);
    }
  });
  const absl::Status filled = receiver.Await(0, kStandstill).status();
  INFO(filled.ToString());
  REQUIRE(filled.ok());
  REQUIRE(slot == sent);
}

TEST_CASE("a trainer that never connects ends its update by the deadline") {
  StreamRollout rollout(Layout(), {}, kStandstill);
  const UpdateRequest request = {.id = {1, 1},
                                 .slots = {kSlotBytes, 2},
                                 .manifest = ManifestOf(rollout.layout),
                                 .over_tcp = true};
  REQUIRE(rollout.Begin(request).ok());
  REQUIRE(rollout.updates->Poll().ok());
  const absl::Status status = rollout.updates->Apply({1, 1}, 0, {});
  INFO(status.ToString());
  REQUIRE(absl::IsDeadlineExceeded(status));
  REQUIRE(Says(status, "the trainer did not connect to 127.0.0.1:"));
  rollout.updates->Abort({1, 1});
  RequireHeals(rollout, 2);
}

TEST_CASE("frames that no trainer sends end the update") {
  StreamRollout rollout(Layout());
  const UpdateRequest request = {.id = {1, 1},
                                 .slots = {kSlotBytes, 2},
                                 .manifest = ManifestOf(rollout.layout),
                                 .over_tcp = true};
  const auto connect = [&] {
    const StreamOffer& offer = rollout.offer;
    const Instant patience = RealClock().Now() + kPatience;
    auto connection = DialTcp(offer.address, {}, patience);
    REQUIRE(connection.ok());
    StreamHello hello = {.update_number = 1, .slot_bytes = kSlotBytes, .slots = 2};
    memcpy(hello.ticket.data(), offer.ticket.data(), hello.ticket.size());
    REQUIRE((*connection)->Send(&hello, sizeof(hello), patience).ok());
    int64_t accepted = 0;
    REQUIRE((*connection)->Receive(&accepted, sizeof(accepted), patience).ok());
    REQUIRE(accepted == 1);
    return *std::move(connection);
  };
  struct Case {
    FrameHeader header;
    const char* says;
  };
  const auto [header, says] = GENERATE(
      Case{{.update_number = 2, .bytes = 256},
           "frame 0 of update 2 came where frame 0 of update 1"},
      Case{{.update_number = 1, .sequence = 1, .bytes = 256}, "frame 1 of update 1 came where"},
      Case{{.update_number = 1, .slot = 2, .bytes = 256}, "256 bytes came for slot 2"},
      Case{{.update_number = 1, .slot = -1, .bytes = 256}, "256 bytes came for slot -1"},
      Case{{.update_number = 1, .bytes = kSlotBytes + 1}, "16385 bytes came for slot 0"},
      Case{{.update_number = 1, .bytes = -1}, "-1 bytes came for slot 0"});
  REQUIRE(rollout.Begin(request).ok());
  const auto connection = connect();
  REQUIRE(connection->Send(&header, sizeof(header), RealClock().Now() + kPatience).ok());
  absl::Status ended;
  WaitUntil("the update to end", [&] {
    const absl::Status polled = rollout.updates->Poll();
    if (!polled.ok()) ended = polled;
    return !rollout.updates->transaction().updating();
  });
  INFO(ended.ToString());
  REQUIRE(absl::IsInvalidArgument(ended));
  REQUIRE(Says(ended, says));
  RequireHeals(rollout, 2);
}

TEST_CASE("a slot that is sent again before it was applied ends the update") {
  StreamRollout rollout(Layout());
  StreamClient client(&rollout);
  const UpdateRequest request = {.id = {1, 1},
                                 .slots = {kSlotBytes, 2},
                                 .manifest = ManifestOf(rollout.layout),
                                 .over_tcp = true};
  REQUIRE(rollout.Begin(request).ok());
  const StreamOffer& offer = rollout.offer;
  const auto sender =
      SlotSender::Dial({offer.address, offer.ticket, 1, {kSlotBytes, 2}}, {}, kPatience);
  REQUIRE(sender.ok());
  const std::vector<std::byte> bytes(256);
  REQUIRE((*sender)->Send(1, bytes.data(), 256).ok());
  REQUIRE((*sender)->Send(1, bytes.data(), 256).ok());
  absl::Status ended;
  WaitUntil("the update to end", [&] {
    const absl::Status polled = rollout.updates->Poll();
    if (!polled.ok()) ended = polled;
    return !rollout.updates->transaction().updating();
  });
  INFO(ended.ToString());
  REQUIRE(Says(ended, "slot 1 was sent again before it was applied"));
}

TEST_CASE("a rollout without data listener refuses weights over TCP") {
  StreamRollout rollout(Layout());
  WeightUpdatesOptions options;
  options.pair_socket = (rollout.dir.path() / "other.sock").string();
  RolloutStates states;
  states.set_mapped(true, true);
  const auto updates = WeightUpdates::Create(
      CreateCpuStorageOps(&rollout.layout, rollout.storage.data(), std::make_shared<ThreadPool>(1)),
      &states, options);
  REQUIRE(updates.ok());
  const absl::Status status = (*updates)->Begin({.id = {1, 1},
                                                 .slots = {kSlotBytes, 2},
                                                 .manifest = ManifestOf(rollout.layout),
                                                 .over_tcp = true});
  REQUIRE(absl::IsFailedPrecondition(status));
  REQUIRE(Says(status, "has no data listener"));
}

TEST_CASE("a rollout makes no slots over TCP that no trainer needs") {
  StreamRollout rollout(Layout());
  const SlotShape shape =
      GENERATE(SlotShape{kSlotBytes, 2, true}, SlotShape{int64_t{1} << 30, 2, false},
               SlotShape{kSlotBytes, 1 << 20, false}, SlotShape{kSlotBytes + 1, 2, false});
  const absl::Status status = rollout.Begin(
      {.id = {1, 1}, .slots = shape, .manifest = ManifestOf(rollout.layout), .over_tcp = true});
  INFO(status.ToString());
  REQUIRE(absl::IsInvalidArgument(status));
  REQUIRE_FALSE(rollout.updates->transaction().updating());
  RequireHeals(rollout, 2);
}

TEST_CASE("trainers of an older group are refused once a later one has begun an update") {
  StreamRollout rollout(Layout());
  MemoryWeights weights(rollout.layout, 1);
  Sender old(rollout.layout, 4), young(rollout.layout, 5);
  StreamClient client(&rollout);
  REQUIRE(old.publisher.Publish(1, weights, &client).ok());
  REQUIRE(young.publisher.Publish(2, weights, &client).ok());
  const absl::Status status = old.publisher.Publish(3, weights, &client).status();
  INFO(status.ToString());
  REQUIRE(absl::IsAborted(status));
  REQUIRE(Says(status, "they are of generation 4, and this rollout knows of generation 5"));
  REQUIRE(rollout.updates->version() == 2);
  REQUIRE(rollout.states.state() == RolloutState::kServing);
  REQUIRE(young.publisher.Publish(4, weights, &client).ok());
}

TEST_CASE("trainers of an older group are refused once the rollout was told of a later one") {
  StreamRollout rollout(Layout());
  MemoryWeights weights(rollout.layout, 1);
  Sender old(rollout.layout, 4), young(rollout.layout, 5);
  StreamClient client(&rollout);
  REQUIRE(old.publisher.Publish(1, weights, &client).ok());
  rollout.states.KnowGroup(5);
  rollout.states.KnowGroup(3);  // an answer that comes late
  REQUIRE(absl::IsAborted(old.publisher.Publish(2, weights, &client).status()));
  REQUIRE(rollout.updates->version() == 1);
  REQUIRE(young.publisher.Publish(2, weights, &client).ok());
}

TEST_CASE("over TLS weights cross, a flipped bit ends the connection, and roles are asked for") {
  const TempDir dir;
  const Authority ours(dir.path(), "ours"), others(dir.path(), "others");
  const TcpSecurity here = Files(ours.Issue("rollout", NamesOf("rollout")), "trainer");
  const TcpSecurity trainer = Files(ours.Issue("trainer", NamesOf("trainer")), "rollout");
  StreamRollout rollout(Layout(), here);
  RequireHeals(rollout, 1, trainer);

  const auto publish = [&](const TcpSecurity& security, const WireFault& fault) {
    const TcpRelay relay(rollout.listener->address(), fault);
    StreamClient client(&rollout, security);
    client.on_target = [&](StreamTarget& target) { target.address = relay.address(); };
    MemoryWeights weights(rollout.layout, 2);
    Sender sender(rollout.layout, 2);
    const absl::Status status = sender.publisher.Publish(2, weights, &client).status();
    INFO(status.ToString());
    REQUIRE_FALSE(status.ok());
    REQUIRE_FALSE(absl::IsDataLoss(status));
    REQUIRE_FALSE(rollout.updates->transaction().updating());
    REQUIRE(rollout.updates->version() == 1);
  };
  // A bit of an encrypted record, in the first frame.
  publish(trainer, {.flip_at = 2 * kInFirstFrame});
  // No trainer; of another project; of another authority; without TLS.
  publish(Files(ours.Issue("other", NamesOf("rollout")), "rollout"), {});
  publish(Files(ours.Issue("project", NamesOf("trainer", "other")), "rollout"), {});
  publish(Files(others.Issue("trainer", NamesOf("trainer")), "rollout"), {});
  publish({}, {});
  RequireHeals(rollout, 3, trainer);
}

TEST_CASE("files that are being replaced while a trainer dials are read again until they fit") {
  const TempDir dir;
  const Authority ours(dir.path(), "ours");
  const TcpSecurity here = Files(ours.Issue("rollout", NamesOf("rollout")), "trainer");
  TcpSecurity trainer = Files(ours.Issue("trainer", NamesOf("trainer")), "rollout");
  const std::string fitting = trainer.key, other = ours.Issue("other", NamesOf("trainer")).key;
  StreamRollout rollout(Layout(), here);
  // Who reads the key first is given another certificate's; the fitting one has replaced it by
  // then.
  trainer.key = (dir.path() / "pipe.key").string();
  REQUIRE(mkfifo(trainer.key.c_str(), 0600) == 0);
  const std::jthread replaces([&] {
    std::ofstream pipe(trainer.key);  // open when its reader is
    std::filesystem::rename(fitting, trainer.key);
    pipe << std::ifstream(other).rdbuf();
  });
  RequireHeals(rollout, 1, trainer);
}

TEST_CASE("files that never fit end the dial as their fault") {
  const TempDir dir;
  const Authority ours(dir.path(), "ours");
  StreamRollout rollout(Layout(), Files(ours.Issue("rollout", NamesOf("rollout")), "trainer"));
  TcpSecurity trainer = Files(ours.Issue("trainer", NamesOf("trainer")), "rollout");
  trainer.key = ours.Issue("other", NamesOf("trainer")).key;
  StreamClient client(&rollout, trainer);
  client.timeout = absl::Milliseconds(100);
  MemoryWeights weights(rollout.layout, 1);
  Sender sender(rollout.layout);
  const absl::Status status = sender.publisher.Publish(1, weights, &client).status();
  INFO(status.ToString());
  REQUIRE(absl::IsInvalidArgument(status));
}

}  // namespace tandem
