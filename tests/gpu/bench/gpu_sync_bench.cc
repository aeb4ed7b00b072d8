// Figures of a weight sync between two processes on one GPU, for gpu_check.sh: a line "figure NAME
// VALUE UNIT" each.
//   gpu_sync_bench SIZE      Qwen3's shapes: 0.6b, 4b, 8b; tiny is for the emulator
//   gpu_sync_bench SIZE damaged      one element changes before it is sent: must be found
// This process is the trainer, which has the weights once, in bf16, a second one the rollout. Both
// run the code of a sync: publisher, gRPC client, transport; receiver, storage, state machine.
//   sync_SIZE_ms        one rank's way on a GPU: the rollout reads the shard where it lies
//   sync_SIZE_slots_ms  several ranks' way, through slots of CUDA IPC, less the ranks' gather
//   pinned_SIZE_s       through slots in pinned host memory, where a system refuses handles
//   copy_loop_gbps      payload of a direct sync ÷ time from its first bucket's call in the rollout
//                       until all rows are stored
// Times are from the pause of the rollout to its serving again: the call that pauses it and opens
// the update, all buckets, the commit, for which the rollout digests what it stored, and their
// replies. They are the median of five, of other weights each, after a first one that opens or pins
// what lasts. Not in them: what the optimizer step does (rounding the masters and digesting them),
// waiting for running requests, and waking memory that slept.
// Exits with 77 where there is no GPU or too little of its memory is free.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/weights/cuda/cuda_transport.h"
#include "tests/gpu/bench/bench_rollout.h"
#include "tests/gpu/bench/bench_shard.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/qwen3.h"
#include "tests/support/temp_dir.h"
#include "trainer_worker/weight_sync/grpc_update_client.h"

namespace tandem::testing {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int kSyncs = 5;
// Contexts of both processes, small arrays, masters of a piece.
constexpr int64_t kOtherBytes = 1536 * kMiB;

struct Sizes {
  std::string name;
  int64_t slot_bytes = 512 * kMiB;    // weight_sync.bucket_mb of a GPU
  int64_t direct_bytes = 256 * kMiB;  // of a bucket without slots
};

struct Times {
  double first = 0;  // seconds
  std::vector<double> syncs, copies;
  int64_t buckets = 0;

  static double Median(std::vector<double> seconds) {
    std::sort(seconds.begin(), seconds.end());
    return seconds[seconds.size() / 2];
  }
  void Print(const char* way) const {
    const auto [least, most] = std::minmax_element(syncs.begin(), syncs.end());
    std::printf("%s: %lld buckets; first %.4g ms, then %.4g ms (%.4g to %.4g)\n", way,
                static_cast<long long>(buckets), first * 1e3, Median(syncs) * 1e3, *least * 1e3,
                *most * 1e3);
  }
};

class Bench {
 public:
  Bench(const WeightLayout* layout, CudaDevice* device, BenchShard* shard, BenchRollout* rollout)
      : layout_(layout), device_(device), shard_(shard), rollout_(rollout) {}

  bool damaged = false;

  // `key`: weight_sync.transport.
  absl::StatusOr<Times> Measure(const Sizes& sizes, const char* key, bool direct) {
    shard_->set_direct(direct);
    TANDEM_ASSIGN_OR_RETURN(auto transport, CudaTransport::Create(&device_->context(), key));
    transports_.push_back(std::move(transport));
    publishers_.push_back(std::make_unique<WeightPublisher>(
        layout_, PublishOptions{.slot_bytes = sizes.slot_bytes,
                                .slots = 2,
                                .keep_bytes = int64_t{1} << 40,
                                .direct_bytes = sizes.direct_bytes,
                                .transport = transports_.back().get()}));
    WeightPublisher& publisher = *publishers_.back();
    Times times;
    for (int sync = 0; sync <= kSyncs; ++sync) {
      TANDEM_RETURN_IF_ERROR(shard_->Fill(static_cast<uint64_t>(++version_)));
      if (damaged) TANDEM_RETURN_IF_ERROR(shard_->Damage());
      TANDEM_ASSIGN_OR_RETURN(const double seconds, Sync(publisher, sync == 0, &times));
      if (sync == 0) {
        times.first = seconds;
        continue;
      }
      times.syncs.push_back(seconds);
      TANDEM_ASSIGN_OR_RETURN(times.copies.emplace_back(), rollout_->CopySeconds(version_));
    }
    if (direct_ != direct) return Internal("weights went {}", direct_ ? "direct" : "through slots");
    return times;
  }
  int64_t syncs() const { return version_; }

 private:
  absl::StatusOr<double> Sync(WeightPublisher& publisher, bool scramble, Times* times) {
    GrpcUpdateClient client(rollout_->channel(), {.scramble = scramble});
    const auto begin = std::chrono::steady_clock::now();
    TANDEM_ASSIGN_OR_RETURN(const PublishReport report,
                            publisher.Publish(version_, *shard_, &client));
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    times->buckets = report.buckets;
    direct_ = report.direct;
    return Arrived(client) ? absl::StatusOr<double>(seconds.count())
                           : Internal("version {} is not what the rollout holds", version_);
  }
  // Of the rollout's storage, re-read once more.
  bool Arrived(GrpcUpdateClient& client) {
    const auto held = client.Digests();
    return held.ok() && held->version == version_ && held->digests == *shard_->Digests();
  }

  const WeightLayout* const layout_;
  CudaDevice* const device_;
  BenchShard* const shard_;
  BenchRollout* const rollout_;
  // The rollout has open what they made until the next one's first sync, so that all stay.
  std::vector<std::unique_ptr<CudaTransport>> transports_;
  std::vector<std::unique_ptr<WeightPublisher>> publishers_;
  int64_t version_ = 0;
  bool direct_ = false;
};

// Whether what both processes will hold is free.
absl::StatusOr<bool> Fits(CudaApi& cuda, const WeightLayout& layout, const Sizes& sizes) {
  const int64_t weights = ManifestBytes(ManifestOf(layout));
  // Two, and one that pinned ones are filled through.
  const int64_t slots = 3 * std::min(sizes.slot_bytes, weights);
  const int64_t needed = weights + layout.total_bytes() + slots + kOtherBytes;
  TANDEM_ASSIGN_OR_RETURN(const int64_t free, cuda.FreeBytes());
  std::printf(
      "%s: %lld bytes of weights on either side, slots of %lld KiB; %lld MiB of the GPU are "
      "needed, "
      "%lld free\n",
      sizes.name.c_str(), static_cast<long long>(weights),
      static_cast<long long>(sizes.slot_bytes >> 10), static_cast<long long>(needed / kMiB),
      static_cast<long long>(free / kMiB));
  return needed <= free;
}

void PrintFigures(const std::string& size,
                  int64_t weights,
                  const Times& direct,
                  const Times& slots,
                  const Times& pinned) {
  std::printf("figure copy_loop_gbps %.4g GB/s\n",
              static_cast<double>(weights) * 1e-9 / Times::Median(direct.copies));
  std::printf("figure sync_%s_ms %.4g ms\n", size.c_str(), Times::Median(direct.syncs) * 1e3);
  std::printf("figure sync_%s_slots_ms %.4g ms\n", size.c_str(), Times::Median(slots.syncs) * 1e3);
  std::printf("figure pinned_%s_s %.4g s\n", size.c_str(), Times::Median(pinned.syncs));
}

// The program's exit code.
absl::StatusOr<int> Run(CudaApi* cuda, const Sizes& sizes, bool damaged) {
  const ModelSpec spec = Qwen3(sizes.name);
  const WeightLayout layout = WeightLayout::Build(spec, DType::kBFloat16, WeightFormat::kRowMajor);
  TANDEM_RETURN_IF_ERROR(SkipLateStream(*cuda));
  TANDEM_ASSIGN_OR_RETURN(auto context, CudaContext::Create(cuda, 0));
  CudaDevice device(std::move(context));
  TANDEM_ASSIGN_OR_RETURN(const bool fits, Fits(*cuda, layout, sizes));
  if (!fits) return Skipped(sizes.name + " does not fit beside what else the GPU holds");
  const TempDir directory;
  TANDEM_ASSIGN_OR_RETURN(const auto shard, BenchShard::Create(&device, &layout));
  TANDEM_ASSIGN_OR_RETURN(const auto rollout,
                          BenchRollout::Start(sizes.name, directory.path().string()));
  Bench bench(&layout, &device, shard.get(), rollout.get());
  bench.damaged = damaged;
  TANDEM_ASSIGN_OR_RETURN(const Times direct, bench.Measure(sizes, "ipc", true));
  direct.Print("direct");
  TANDEM_ASSIGN_OR_RETURN(const Times slots, bench.Measure(sizes, "ipc", false));
  slots.Print("slots of CUDA IPC");
  TANDEM_ASSIGN_OR_RETURN(const Times pinned, bench.Measure(sizes, "shm", false));
  pinned.Print("slots in pinned memory");
  std::printf("%lld syncs of %zu tensors arrived as they were meant\n",
              static_cast<long long>(bench.syncs()), layout.places().size());
  PrintFigures(sizes.name, ManifestBytes(ManifestOf(layout)), direct, slots, pinned);
  return 0;
}

absl::StatusOr<int> Main(CudaApi* cuda, const std::vector<std::string>& arguments) {
  if (arguments.size() == 3 && arguments[0] == "rollout") {
    return RunBenchRollout(cuda, arguments[1], arguments[2]);
  }
  const bool damaged = arguments.size() == 2 && arguments[1] == "damaged";
  if (arguments.size() != (damaged ? 2 : 1) || Qwen3(arguments[0]).num_layers == 0) {
    return InvalidArgument("usage: gpu_sync_bench 0.6b|4b|8b|tiny [damaged]");
  }
  Sizes sizes = {.name = arguments[0]};
  if (sizes.name == "tiny") sizes.slot_bytes = sizes.direct_bytes = 32 << 10;
  return Run(cuda, sizes, damaged);
}

}  // namespace
}  // namespace tandem::testing

int main(int argc, char** argv) {
  const auto gpu = tandem::testing::OpenGpu();
  if (!gpu.ok()) {
    std::printf("no GPU: %s\n", std::string(gpu.status().message()).c_str());
    return tandem::testing::kNoGpu;
  }
  tandem::InitLog("bench", -1);
  const auto code = tandem::testing::Main(gpu->get(), {argv + 1, argv + argc});
  if (!code.ok()) std::printf("%s\n", code.status().ToString().c_str());
  return code.value_or(1);
}
