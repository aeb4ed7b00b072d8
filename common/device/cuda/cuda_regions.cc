#include "common/device/cuda/cuda_regions.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/base/numeric.h"
#include "common/base/progress.h"
#include "common/base/status.h"
#include "common/device/device.h"

namespace tandem {
namespace {

// Interval at which the device's free bytes are checked.
constexpr absl::Duration kLookAgain = absl::Milliseconds(10);

}  // namespace

absl::StatusOr<std::unique_ptr<MemoryRegion>> CudaRegion::Reserve(CudaContext* context,
                                                                  const std::string& tag,
                                                                  int64_t bytes,
                                                                  Ledger* ledger,
                                                                  CudaRegionOptions options) {
  if (bytes <= 0) return InvalidArgument("memory region {}: {} bytes were requested", tag, bytes);
  if (!context->info().virtual_memory) {
    return FailedPrecondition(
        "memory region {}: {} (device {}) cannot reserve addresses without memory: use a GPU that "
        "has virtual memory management, or run with trainer.device=cpu",
        tag, context->info().name, context->device());
  }
  CudaApi& api = context->api();
  TANDEM_ASSIGN_OR_RETURN(const int64_t granularity, api.Granularity());
  options.chunk_bytes = RoundUp(options.chunk_bytes, granularity);
  const int64_t rounded = RoundUp(bytes, granularity);
  const absl::StatusOr<std::byte*> data = api.ReserveAddresses(rounded);
  if (!data.ok()) return Annotate(data.status(), "memory region " + tag);
  return std::unique_ptr<MemoryRegion>(
      new CudaRegion(context, tag, *data, rounded, ledger, options));
}

CudaRegion::~CudaRegion() {
  if (!chunks_.empty()) context_->api().Synchronize(context_->stream()).IgnoreError();
  // If the driver fails here, the end of the process frees the pages.
  if (Drop().ok()) context_->api().FreeAddresses(data(), bytes()).IgnoreError();
  if (ledger_ != nullptr) ledger_->RemoveRegion(this);
}

absl::Status CudaRegion::Map() {
  if (mapped()) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(Drop());  // what a failed release has left
  absl::Status status = MapChunks();
  if (status.ok()) status = context_->api().Fill(data(), 0, bytes(), context_->stream());
  if (!status.ok()) {
    const absl::StatusOr<int64_t> free = context_->api().FreeBytes();
    const int64_t got = ResidentBytes();
    const absl::Status undone = Drop();
    if (IsDeviceLost(status)) return Annotate(status, "memory region " + tag());
    return MakeStatus(
        status.code(),
        "memory region {}: cannot get {} bytes ({} MiB) of device {}: {}; after {} MiB of them {}; "
        "use a smaller model, KV pool or batch, or see who else uses the device{}",
        tag(), bytes(), bytes() >> 20, context_->device(), std::string(status.message()), got >> 20,
        Holders(free.value_or(0)),
        undone.ok() ? ""
                    : "; the memory that it already had could not be released: " +
                          std::string(undone.message()));
  }
  set_mapped(true);
  if (ledger_ != nullptr) {
    ledger_->AddRegion(this, tag(), Location::kDevice, bytes(), [] { return int64_t{0}; });
  }
  return absl::OkStatus();
}

absl::Status CudaRegion::MapChunks() {
  for (int64_t offset = 0; offset < bytes(); offset += options_.chunk_bytes) {
    const int64_t size = std::min(options_.chunk_bytes, bytes() - offset);
    TANDEM_ASSIGN_OR_RETURN(const CudaPages pages, context_->api().CreatePages(size));
    chunks_.push_back({pages, offset, size, false});
    TANDEM_RETURN_IF_ERROR(context_->api().MapPages(data() + offset, size, pages));
    chunks_.back().mapped = true;
  }
  return absl::OkStatus();
}

absl::Status CudaRegion::Drop() {
  while (!chunks_.empty()) {
    Chunk& chunk = chunks_.back();
    if (chunk.mapped) {
      TANDEM_RETURN_IF_ERROR(context_->api().UnmapPages(data() + chunk.offset, chunk.bytes));
      chunk.mapped = false;
    }
    TANDEM_RETURN_IF_ERROR(context_->api().ReleasePages(chunk.pages));
    chunks_.pop_back();
  }
  if (ledger_ != nullptr) ledger_->RemoveRegion(this);
  return absl::OkStatus();
}

absl::Status CudaRegion::Release() {
  if (chunks_.empty()) return absl::OkStatus();
  const std::string context = "memory region " + tag() + ": cannot be released";
  // Unmapping takes effect at once and not in stream order.
  TANDEM_RETURN_IF_ERROR(
      Annotate(context_->api().Synchronize(context_->stream()), context + ": work before it"));
  const absl::StatusOr<int64_t> free = context_->api().FreeBytes();
  if (!free.ok()) return Annotate(free.status(), context);
  const int64_t held = ResidentBytes();
  set_mapped(false);
  TANDEM_RETURN_IF_ERROR(Annotate(Drop(), context));
  return CheckFree(*free, held);
}

absl::Status CudaRegion::CheckFree(int64_t free_before, int64_t released) const {
  const int64_t allowed = std::min(options_.others_bytes, released / 2);
  const Instant deadline = options_.clock->Now() + options_.free_within;
  while (true) {
    TANDEM_ASSIGN_OR_RETURN(const int64_t free, context_->api().FreeBytes());
    const int64_t missing = free_before + released - free;
    if (missing <= allowed) return absl::OkStatus();
    if (options_.clock->Now() >= deadline) {
      return FailedPrecondition(
          "memory region {}: of {} bytes released, device {} misses {} ({} MiB) after {}: another "
          "process has opened these pages, or has taken memory meanwhile (nvidia-smi lists who "
          "does); {}",
          tag(), released, context_->device(), missing, missing >> 20,
          absl::FormatDuration(options_.free_within), Holders(free));
    }
    const OutsideWait wait;
    options_.clock->Sleep(kLookAgain);
  }
}

std::string CudaRegion::Holders(int64_t free) const {
  const int64_t total = context_->info().total_bytes;
  std::string text = fmt::format("{} of {} MiB are free", free >> 20, total >> 20);
  if (ledger_ == nullptr) return text;
  int64_t mine = 0;
  std::string tags;
  for (const LedgerEntry& entry : ledger_->Snapshot().entries) {
    if (entry.location != Location::kDevice || entry.current_bytes == 0) continue;
    mine += entry.current_bytes;
    tags +=
        fmt::format("{}{} {} MiB", tags.empty() ? "" : ", ", entry.tag, entry.current_bytes >> 20);
  }
  return fmt::format(
      "{}, {} MiB are in this process's ledger{}, the other {} MiB are other processes' and the "
      "driver's",
      text, mine >> 20, tags.empty() ? "" : " (" + tags + ")", (total - free - mine) >> 20);
}

int64_t CudaRegion::ResidentBytes() const {
  int64_t bytes = 0;
  for (const Chunk& chunk : chunks_) bytes += chunk.bytes;
  return bytes;
}

absl::StatusOr<std::unique_ptr<MemoryRegion>> PinnedRegion::Reserve(CudaContext* context,
                                                                    const std::string& tag,
                                                                    int64_t bytes,
                                                                    Ledger* ledger) {
  TANDEM_ASSIGN_OR_RETURN(auto host, HostDevice()->ReserveHost(tag, bytes, ledger));
  return std::unique_ptr<MemoryRegion>(new PinnedRegion(context, std::move(host)));
}

// The pages must be unpinned before they are unmapped.
PinnedRegion::~PinnedRegion() { Release().IgnoreError(); }

absl::Status PinnedRegion::Map() {
  if (mapped()) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(host_->Map());
  const absl::Status pinned = context_->api().RegisterHost(data(), bytes());
  if (!pinned.ok()) {
    const absl::Status undone = host_->Release();
    if (IsDeviceLost(pinned)) return pinned;
    return MakeStatus(pinned.code(),
                      "memory region {}: cannot pin {} bytes ({} MiB) of host memory: {}; give the "
                      "process more memory, or offload less{}",
                      tag(), bytes(), bytes() >> 20, std::string(pinned.message()),
                      undone.ok() ? "" : "; " + std::string(undone.message()));
  }
  set_mapped(true);
  return absl::OkStatus();
}

absl::Status PinnedRegion::Release() {
  if (!mapped()) return absl::OkStatus();
  const std::string context = "memory region " + tag() + ": cannot be released";
  TANDEM_RETURN_IF_ERROR(
      Annotate(context_->api().Synchronize(context_->stream()), context + ": work before it"));
  TANDEM_RETURN_IF_ERROR(Annotate(context_->api().UnregisterHost(data()), context));
  set_mapped(false);
  return host_->Release();
}

namespace {

// A smaller allocation shares a block of this size with others, and its handle exports the whole
// block (CUDA programming guide, "Interprocess Communication").
constexpr int64_t kBlockBytes = int64_t{2} << 20;

}  // namespace

class ShareablePool::Taken final : public ShareableMemory {
 public:
  Taken(ShareablePool* pool, const Block& block, const std::string& tag, Ledger* ledger)
      : pool_(pool), block_(block), ledger_(ledger) {
    if (ledger_ == nullptr) return;
    ledger_->AddRegion(this, tag, Location::kDevice, block.bytes, [] { return int64_t{0}; });
  }
  ~Taken() override {
    if (ledger_ != nullptr) ledger_->RemoveRegion(this);
    pool_->kept_.push_back(block_);
  }
  std::byte* data() const override { return block_.data; }
  int64_t bytes() const override { return block_.bytes; }
  int fd() const override { return -1; }

 private:
  ShareablePool* const pool_;
  const Block block_;
  Ledger* const ledger_;
};

ShareablePool::~ShareablePool() {
  if (!kept_.empty()) context_->api().Synchronize(context_->stream()).IgnoreError();
  for (const Block& block : kept_) context_->api().Free(block.data).IgnoreError();
}

absl::StatusOr<ShareablePool::Block> ShareablePool::Find(const std::string& tag, int64_t bytes) {
  const auto kept = std::find_if(kept_.begin(), kept_.end(),
                                 [bytes](const Block& block) { return block.bytes == bytes; });
  if (kept != kept_.end()) {
    const Block block = *kept;
    kept_.erase(kept);
    return block;
  }
  const absl::StatusOr<std::byte*> data = context_->api().Malloc(bytes);
  if (data.ok()) return Block{*data, bytes};
  const absl::StatusOr<int64_t> free = context_->api().FreeBytes();
  return MakeStatus(
      data.status().code(),
      "memory {}: cannot get {} bytes ({} MiB) of device {} in one allocation: {}; {} "
      "MiB are free; use a smaller model, KV pool or batch, or see who else uses the "
      "device",
      tag, bytes, bytes >> 20, context_->device(), std::string(data.status().message()),
      free.value_or(0) >> 20);
}

absl::StatusOr<std::unique_ptr<ShareableMemory>> ShareablePool::Take(const std::string& tag,
                                                                     int64_t bytes,
                                                                     Ledger* ledger) {
  if (bytes <= 0) return InvalidArgument("memory {}: {} bytes were requested", tag, bytes);
  TANDEM_ASSIGN_OR_RETURN(const Block block, Find(tag, RoundUp(bytes, kBlockBytes)));
  auto taken = std::make_unique<Taken>(this, block, tag, ledger);
  TANDEM_RETURN_IF_ERROR(context_->api().Fill(block.data, 0, block.bytes, context_->stream()));
  return taken;
}

}  // namespace tandem
