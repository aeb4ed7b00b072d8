// tandem-sync-bench [SLOT_MiB]: GB/s of a whole update of a 135M model (269 MB in bf16) from a
// trainer's shard to committed weights, and of its parts, beside memcpy: through slots, as several
// ranks send it; over TCP, as between hosts, here over loopback and in clear text; and direct, as
// one rank does. Both sides run in this process, the rollout on a thread of its own; the parts are
// measured alone.
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "common/base/bounded_queue.h"
#include "common/base/status.h"
#include "common/device/device.h"
#include "common/process/threads.h"
#include "common/weights/cpu_storage_ops.h"
#include "common/weights/tcp/slot_listener.h"
#include "rollout_worker/weights/update_transaction.h"
#include "tests/fakes/memory_weights.h"
#include "tests/support/listen_for_slots.h"
#include "trainer_worker/weight_sync/weight_publisher.h"

namespace tandem {
namespace {

ModelSpec BenchSpec() {
  ModelSpec spec;
  spec.model_type = "llama";
  spec.vocab_size = 49152;
  spec.hidden_size = 576;
  spec.num_layers = 30;
  spec.num_heads = 9;
  spec.num_kv_heads = 3;
  spec.head_dim = 64;
  spec.intermediate_size = 1536;
  spec.max_position = 8192;
  spec.tie_word_embeddings = true;
  return spec;
}

// A receiver on a separate thread, as in the rollout process.
class ThreadClient : public UpdateClient {
 public:
  // `listener`: where slots are sent over TCP; null: both sides see the same ones.
  ThreadClient(UpdateTransaction* receiver, SlotListener* listener)
      : receiver_(receiver),
        listener_(listener),
        orders_(4),
        replies_{BoundedQueue<absl::Status>(1), BoundedQueue<absl::Status>(1)} {
    thread_ = std::jthread([this] {
      while (auto order = orders_.Pop()) (*order)();
    });
  }
  ~ThreadClient() override { orders_.Close(); }

  bool over_tcp() const override { return listener_ != nullptr; }
  absl::StatusOr<PeerConnection> Begin(const UpdateRequest& request,
                                       const ProducerSlots& slots) override {
    request_ = request;
    slots_ = &slots;
    TANDEM_RETURN_IF_ERROR(receiver_->Begin(request.id, request.manifest));
    PeerConnection connection;
    if (listener_ == nullptr) return connection;
    const int64_t number = request.id.update_number;
    TANDEM_ASSIGN_OR_RETURN(const StreamOffer offer, listener_->Expect(number, slots.shape()));
    TANDEM_ASSIGN_OR_RETURN(
        connection.sender,
        SlotSender::Dial({offer.address, offer.ticket, number, slots.shape()}, {}, kTimeout));
    TANDEM_ASSIGN_OR_RETURN(auto accepted, listener_->Take(kTimeout));
    TANDEM_ASSIGN_OR_RETURN(own_, HostTransport()->MakeOwn(slots.shape(), nullptr));
    stream_ = std::make_unique<SlotReceiver>(std::move(accepted), number, slots.shape(),
                                             own_->slot(0), kTimeout);
    return connection;
  }
  absl::Status StartApply(int slot, const std::vector<BucketEntry>& entries) override {
    outstanding_[slot] = true;
    orders_.Push([this, slot, entries] { replies_[slot].Push(Apply(slot, entries)); });
    return absl::OkStatus();
  }
  absl::Status WaitApply(int slot) override {
    if (!std::exchange(outstanding_[slot], false)) return absl::OkStatus();
    return *replies_[slot].Pop();
  }
  absl::Status Commit(const std::vector<Digest>& digests) override {
    const absl::Status committed = receiver_->Commit(request_.id, digests);
    CloseStream();
    return committed;
  }
  absl::Status Abort(const std::string&) override {
    receiver_->Abort();
    CloseStream();
    return absl::OkStatus();
  }

 private:
  static constexpr absl::Duration kTimeout = absl::Minutes(1);

  absl::Status Apply(int slot, const std::vector<BucketEntry>& entries) {
    const int64_t bytes = slots_->shape().slot_bytes;
    if (stream_ == nullptr) {
      return receiver_->Apply(request_.id, {slots_->slot(slot), bytes}, entries);
    }
    TANDEM_RETURN_IF_ERROR(stream_->Await(slot, kTimeout).status());
    TANDEM_RETURN_IF_ERROR(receiver_->Apply(request_.id, {own_->slot(slot), bytes}, entries));
    stream_->Free(slot);
    return absl::OkStatus();
  }
  void CloseStream() {
    stream_.reset();
    own_.reset();
  }

  UpdateTransaction* const receiver_;
  SlotListener* const listener_;
  std::unique_ptr<ConsumerSlots> own_;  // of the rollout, where slots are sent
  std::unique_ptr<SlotReceiver> stream_;
  UpdateRequest request_;
  const ProducerSlots* slots_ = nullptr;
  BoundedQueue<std::function<void()>> orders_;
  BoundedQueue<absl::Status> replies_[2];
  bool outstanding_[2] = {};
  std::jthread thread_;
};

// Seconds of wall time, and of processor time of all threads: on a machine that does other things
// too the second repeats better.
struct Seconds {
  double wall = 1e9;
  double processor = 1e9;
};

double ProcessorSeconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// The best of five, each by itself.
Seconds Best(const std::function<void()>& body) {
  Seconds best;
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const double processor = ProcessorSeconds();
    body();
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
    best.wall = std::min(best.wall, wall.count());
    best.processor = std::min(best.processor, ProcessorSeconds() - processor);
  }
  return best;
}

// A trainer's shard: one region, digests that the optimizer left.
class RegionSource : public testing::WholeTensors {
 public:
  RegionSource(const WeightLayout& layout, const SharedRegion* region) {
    shared_.shard = {region->data(), region->bytes(), region->fd()};
    const std::byte* rows = region->data();
    for (const TensorPlace& place : layout.places()) {
      rows_[&place] = rows;
      bytes_[&place] = testing::MemoryWeights::Bytes(layout, place);
      digests_.push_back(DigestOf(rows, bytes_[&place]));
      shared_.offsets.push_back(rows - region->data());
      rows += bytes_[&place];
    }
  }
  const SharedTensors* shared() const override { return direct_ ? &shared_ : nullptr; }
  void set_direct(bool direct) { direct_ = direct; }
  absl::StatusOr<const void*> Gather(const TensorPlace& place) override { return rows(place); }
  absl::StatusOr<std::vector<Digest>> Digests() override { return digests_; }
  const void* rows(const TensorPlace& place) const { return rows_.at(&place); }
  int64_t bytes(const TensorPlace& place) const { return bytes_.at(&place); }

 private:
  std::map<const TensorPlace*, const std::byte*> rows_;
  std::map<const TensorPlace*, int64_t> bytes_;
  std::vector<Digest> digests_;
  SharedTensors shared_;
  bool direct_ = false;
};

std::unique_ptr<MemoryRegion> Region(int64_t bytes) {
  auto region = HostDevice()->Reserve("weights", bytes, nullptr);
  if (!region.ok() || !(*region)->Map().ok()) return nullptr;
  memset((*region)->data(), 1, bytes);
  return std::move(region).value();
}

class Bench {
 public:
  explicit Bench(int64_t bytes) : bytes_(static_cast<double>(bytes)) {}
  // Seconds of the best run.
  double Print(const char* what, const std::function<void()>& body) const {
    const Seconds seconds = Best(body);
    fmt::print("{:<26} {:7.1f} ms {:7.2f} GB/s {:7.1f} ms of processor time\n", what,
               seconds.wall * 1e3, bytes_ / seconds.wall / 1e9, seconds.processor * 1e3);
    return seconds.wall;
  }

 private:
  const double bytes_;
};

// The same bytes by memcpy on two threads: what the update is held against.
double BenchMemcpy(const Bench& bench, const std::byte* from, std::byte* to, int64_t bytes) {
  bench.Print("memcpy", [&] { memcpy(to, from, bytes); });
  return bench.Print("memcpy on two threads", [&] {
    const int64_t half = bytes / 2;
    std::jthread other([&] { memcpy(to + half, from + half, bytes - half); });
    memcpy(to, from, half);
  });
}

void BenchParts(const Bench& bench,
                const WeightLayout& layout,
                const RegionSource& source,
                std::byte* storage) {
  uint64_t sink = 0;
  bench.Print("digest", [&] {
    for (const TensorPlace& p : layout.places()) {
      sink += DigestOf(source.rows(p), source.bytes(p)).low;
    }
  });
  std::vector<const TensorPlace*> places;
  std::vector<DenseRows> rows;
  for (const TensorPlace& p : layout.places()) {
    places.push_back(&p);
    rows.push_back({&p, 0, p.rows(), static_cast<const std::byte*>(source.rows(p))});
  }
  for (const int threads : {1, 2}) {
    ThreadPool pool(threads);
    bench.Print(fmt::format("store rows, {} threads", threads).c_str(),
                [&] { StoreRows(pool, layout, storage, rows); });
    bench.Print(fmt::format("read back, {} threads", threads).c_str(),
                [&] { sink += DigestStored(pool, layout, storage, places)[0].low; });
  }
  if (sink == 42) fmt::print("\n");  // the digests are used
}

// Seconds of a whole update; below zero if it failed.
double BenchUpdate(const Bench& bench,
                   const char* what,
                   const WeightLayout& layout,
                   RegionSource& source,
                   std::byte* storage,
                   int64_t slot_bytes,
                   SlotListener* listener) {
  UpdateTransaction receiver(
      CreateCpuStorageOps(&layout, storage, std::make_shared<ThreadPool>(2)));
  ThreadClient client(&receiver, listener);
  WeightPublisher publisher(&layout,
                            {.slot_bytes = slot_bytes, .slots = 2, .keep_bytes = int64_t{1} << 40});
  PublishReport best{.seconds = 1e9};
  absl::Status status;
  int64_t version = 0;
  const double updated = bench.Print(what, [&] {
    const auto report = publisher.Publish(++version, source, &client);
    if (!report.ok()) status = report.status();
    if (report.ok() && report->seconds < best.seconds) best = *report;
  });
  if (!status.ok()) {
    fmt::print(stderr, "{}\n", status.ToString());
    return -1;
  }
  fmt::print("  {} buckets; trainer: gather {:.1f} ms, copy {:.1f} ms, waiting {:.1f} ms\n",
             best.buckets, best.gather_seconds * 1e3, best.fill_seconds * 1e3,
             best.wait_seconds * 1e3);
  return updated;
}

int Run(int64_t slot_bytes) {
  const WeightLayout layout = WeightLayout::Build(BenchSpec(), DType::kBFloat16);
  const Manifest manifest = ManifestOf(layout);
  const int64_t bytes = ManifestBytes(manifest);
  const auto shard = SharedRegion::Create("weights", bytes, nullptr, Location::kDevice,
                                          SharedRegion::Pages::kHuge);
  const auto other = Region(bytes), storage = Region(layout.total_bytes());
  if (!shard.ok() || other == nullptr || storage == nullptr) return 1;
  testing::MemoryWeights random(layout, 1);
  std::byte* at = (*shard)->data();
  for (const TensorPlace& place : layout.places()) {
    memcpy(at, random.tensor(place.name), testing::MemoryWeights::Bytes(layout, place));
    at += testing::MemoryWeights::Bytes(layout, place);
  }
  memset(storage->data(), 0, layout.total_bytes());
  RegionSource source(layout, shard->get());
  fmt::print("{} tensors, {:.1f} MB, slots of {} MiB\n", manifest.size(), bytes / 1e6,
             slot_bytes >> 20);
  const Bench bench(bytes);
  const double copied = BenchMemcpy(bench, (*shard)->data(), other->data(), bytes);
  BenchParts(bench, layout, source, storage->data());
  const auto listener = testing::ListenOnLoopback();
  if (!listener.ok()) return 1;
  struct Way {
    const char* what;
    bool direct;
    SlotListener* listener;
    const char* target;
  };
  double through_slots = 0;
  for (const Way& way : {Way{"update, through slots", false, nullptr, ""},
                         Way{"update, over TCP", false, listener->get(), ""},
                         Way{"update, direct", true, nullptr, " (target 0.60)"}}) {
    source.set_direct(way.direct);
    const double updated =
        BenchUpdate(bench, way.what, layout, source, storage->data(), slot_bytes, way.listener);
    if (updated < 0) return 1;
    fmt::print("  {:.2f} of memcpy on two threads{}\n", copied / updated, way.target);
    if (through_slots == 0) through_slots = updated;
    if (way.listener != nullptr) {
      fmt::print("  {:.2f} of an update through slots\n", through_slots / updated);
    }
  }
  return 0;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) { return tandem::Run((argc > 1 ? std::atoll(argv[1]) : 4) << 20); }
