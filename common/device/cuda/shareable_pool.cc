#include "common/device/cuda/shareable_pool.h"

#include <algorithm>

#include "common/base/round_up.h"
#include "common/base/status_macros.h"

namespace tandem {
namespace {

// A smaller allocation shares a block of this size with others, and its handle passes all of the
// block on (CUDA programming guide, "Interprocess Communication").
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
  if (bytes <= 0) return InvalidArgument("memory {}: {} bytes asked for", tag, bytes);
  TANDEM_ASSIGN_OR_RETURN(const Block block, Find(tag, RoundUp(bytes, kBlockBytes)));
  auto taken = std::make_unique<Taken>(this, block, tag, ledger);
  TANDEM_RETURN_IF_ERROR(context_->api().Fill(block.data, 0, block.bytes, context_->stream()));
  return taken;
}

}  // namespace tandem
