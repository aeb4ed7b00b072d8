// tandem-sync-bench [SLOT_MiB]: GB/s of a whole update of a 135M model (268 MB in bf16) from
// gathered tensors to committed weights, and of its parts, beside memcpy. Both sides run in this
// process, the rollout on a thread of its own; the parts are measured alone.
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "common/base/bounded_queue.h"
#include "common/device/memory_region.h"
#include "common/ops/cpu/thread_pool.h"
#include "common/weights/update_receiver.h"
#include "common/weights/weight_publisher.h"
#include "tests/fakes/memory_weights.h"

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

// A receiver on a thread of its own, as in the rollout process.
class ThreadClient : public UpdateClient {
 public:
  explicit ThreadClient(UpdateReceiver* receiver)
      : receiver_(receiver),
        orders_(4),
        replies_{BoundedQueue<absl::Status>(1), BoundedQueue<absl::Status>(1)} {
    thread_ = std::jthread([this] {
      while (auto order = orders_.Pop()) (*order)();
    });
  }
  ~ThreadClient() override { orders_.Close(); }

  absl::Status Begin(const UpdateOffer& offer, const SlotMemory& slots) override {
    offer_ = offer;
    slots_ = &slots;
    return receiver_->Begin(offer.version, offer.generation, offer.manifest);
  }
  absl::Status StartApply(int slot, const std::vector<BucketEntry>& entries) override {
    outstanding_[slot] = true;
    orders_.Push([this, slot, entries] {
      replies_[slot].Push(receiver_->Apply(offer_.version, offer_.generation, slots_->slot(slot),
                                           slots_->slot_bytes(), entries));
    });
    return absl::OkStatus();
  }
  absl::Status WaitApply(int slot) override {
    if (!std::exchange(outstanding_[slot], false)) return absl::OkStatus();
    return *replies_[slot].Pop();
  }
  absl::Status Commit(const std::vector<Digest>& digests) override {
    return receiver_->Commit(offer_.version, offer_.generation, digests);
  }
  absl::Status Abort(const std::string&) override {
    receiver_->Abort();
    return absl::OkStatus();
  }

 private:
  UpdateReceiver* const receiver_;
  UpdateOffer offer_;
  const SlotMemory* slots_ = nullptr;
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

int Run(int64_t slot_bytes) {
  const WeightLayout layout = WeightLayout::Build(BenchSpec(), DType::kBFloat16);
  const Manifest manifest = ManifestOf(layout);
  const double bytes = static_cast<double>(ManifestBytes(manifest));
  testing::MemoryWeights weights(layout, 1);
  auto region = MemoryRegion::Reserve("weights", layout.total_bytes(), nullptr);
  if (!region.ok() || !(*region)->Map().ok()) return 1;
  std::byte* const storage = (*region)->data();
  memset(storage, 0, layout.total_bytes());
  const auto print = [&](const char* what, const Seconds& seconds) {
    fmt::print("{:<26} {:7.1f} ms {:7.2f} GB/s {:7.1f} ms of processor time\n", what,
               seconds.wall * 1e3, bytes / seconds.wall / 1e9, seconds.processor * 1e3);
  };
  fmt::print("{} tensors, {:.1f} MB, slots of {} MiB\n", manifest.size(), bytes / 1e6,
             slot_bytes >> 20);
  const auto each = [&](const std::function<void(const TensorPlace&, std::byte*)>& body) {
    for (const TensorPlace& place : layout.places()) body(place, weights.tensor(place.name));
  };
  std::vector<std::byte> copy(54 << 20 | 1 << 20);
  print("memcpy", Best([&] {
          each([&](const TensorPlace& p, std::byte* data) {
            memcpy(copy.data(), data, testing::MemoryWeights::Bytes(layout, p));
          });
        }));
  uint64_t sink = 0;
  print("digest", Best([&] {
          each([&](const TensorPlace& p, std::byte* data) {
            sink += DigestOf(data, testing::MemoryWeights::Bytes(layout, p)).low;
          });
        }));
  print("write through the layout", Best([&] {
          each([&](const TensorPlace& p, std::byte* data) {
            layout.WriteRows(storage + layout.group_offset(p.layer), p, 0, p.rows(), data);
          });
        }));
  print("read back and digest", Best([&] {
          each([&](const TensorPlace& p, std::byte*) {
            sink += DigestStored(layout, storage, p).low;
          });
        }));
  UpdateReceiver receiver(&layout, storage, std::make_shared<ThreadPool>(2));
  ThreadClient client(&receiver);
  WeightPublisher publisher(&layout, {slot_bytes, 2, nullptr});
  PublishReport best;
  best.seconds = 1e9;
  absl::Status status;
  int64_t version = 0;
  print("update, begin to commit", Best([&] {
          const auto report = publisher.Publish(++version, weights, &client);
          if (!report.ok()) status = report.status();
          if (report.ok() && report->seconds < best.seconds) best = *report;
        }));
  if (!status.ok()) {
    fmt::print(stderr, "{}\n", status.ToString());
    return 1;
  }
  fmt::print(
      "  {} buckets; trainer: gather {:.1f} ms, digest and copy {:.1f} ms, waiting {:.1f} ms\n",
      best.buckets, best.gather_seconds * 1e3, best.fill_seconds * 1e3, best.wait_seconds * 1e3);
  return sink == 42 ? 2 : 0;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) { return tandem::Run((argc > 1 ? std::atoll(argv[1]) : 4) << 20); }
