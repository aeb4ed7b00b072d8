// This rank's shard of the model: fp32 masters, their copy rounded to the compute dtype, gradients
// and Adam moments, each an array in the order of the ShardPlan. Masters and moments may be
// offloaded, to files on a CPU and to pinned host memory on a GPU; an optimizer step then streams
// them through the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/device/device.h"
#include "common/weights/shard_ops.h"
#include "trainer_worker/shard/master_digests.h"
#include "trainer_worker/shard/offload_windows.h"
#include "trainer_worker/shard/shard_array.h"
#include "trainer_worker/shard/shard_plan.h"
#include "trainer_worker/shard/weight_rows.h"

namespace tandem {

struct ShardOptions {
  std::string offload_dir;  // the folder for files; must exist
  bool offload_master = false;
  bool offload_moments = false;
  // The rollout reads the rounded masters directly; not possible with fp32 compute.
  bool direct = false;
};

// The device and the ops that compute on a shard; both outlive it.
struct ShardCompute {
  Device* device = nullptr;
  ShardOps* ops = nullptr;
};

// Lifecycle: Create (all masters 0) → WriteMasters, range by range → train. Addresses are the
// device's; HostValues copies to host memory if needed. Not thread-safe.
class ParameterShard : public WeightRows {
 public:
  // Writes elements to the address that it is given.
  using Fill = std::function<absl::Status(float*)>;

  // `plan` and `ledger` must outlive the shard. ResourceExhausted names the region that does not
  // fit.
  static absl::StatusOr<std::unique_ptr<ParameterShard>> Create(const ShardPlan* plan,
                                                                ShardOptions options,
                                                                const ShardCompute& compute,
                                                                Ledger* ledger);

  const ShardPlan& plan() const override { return *plan_; }
  int64_t elements() const { return plan_->elements(plan_->rank()); }
  Device* device() const override { return device_; }
  ShardOps* ops() const { return ops_; }

  float* master() { return Floats(master_); }
  const float* master() const { return Floats(master_); }
  // Sets elements [first, first + count) of master() to the values that `fill` writes to host
  // memory, rounds and digests them, and evicts them if they are offloaded. Together the calls
  // cover the shard in ascending order. Errors: fill's, and the device's.
  absl::Status WriteMasters(int64_t first, int64_t count, const Fill& fill);
  // The same for masters that the caller has already written to master().
  absl::Status MastersWritten(int64_t first, int64_t count);
  // Writes `count` elements of exp_avg() or exp_avg_sq(), starting at `values`; these are neither
  // rounded nor digested.
  absl::Status WriteMoments(float* values, int64_t count, const Fill& fill);
  // Copies rows of the masters, and evicts offloaded ones again.
  absl::Status CopyRows(size_t tensor, int64_t row, int64_t rows, DType dtype, void* out) override;
  // The rounded masters, in the compute dtype, which gathers and syncs read. With fp32 compute
  // these are the masters themselves.
  const std::byte* compute() const;
  StoredShard stored() const override { return {.data = compute()}; }
  // Null unless `direct`.
  const ShareableMemory* shared() const override { return shared_.get(); }
  // The digests of the current masters.
  const MasterDigests& digests() const { return digests_; }

  // Allocates the gradients if they are not allocated, and zeroes them.
  absl::Status ZeroGradients();
  absl::Status ReleaseGradients() { return gradients_->Release(); }
  float* gradients() { return reinterpret_cast<float*>(gradients_->data()); }
  const float* gradients() const { return reinterpret_cast<const float*>(gradients_->data()); }

  // Allocates Adam's moments, as zeros, in the first call.
  absl::Status MapMoments();
  bool has_moments() const { return exp_avg_ != nullptr; }
  float* exp_avg() { return Floats(exp_avg_); }
  float* exp_avg_sq() { return Floats(exp_avg_sq_); }
  // Returns an address at which the host can read elements of master() or of the moments, valid
  // until the next call or Evict. Each call evicts the elements of the previous one if they are
  // offloaded.
  absl::StatusOr<const float*> HostValues(const float* values, int64_t count);
  // Evicts all pages of offloaded arrays that were touched through the pointers above, and frees
  // the memory of HostValues.
  void Evict();

  // The part of the shard that an optimizer's pass updates in one call; all addresses are on the
  // device.
  struct OptimizerChunk {
    int64_t count = 0;
    float* master = nullptr;
    const float* gradient = nullptr;
    float* exp_avg = nullptr;
    float* exp_avg_sq = nullptr;
    Bf16* rounded = nullptr;  // written by `update`; null with fp32 compute
  };
  // A pass with all the memory that it needs: only a device failure can fail it.
  class Pass;
  // Allocates the moments, and the buffers for streaming offloaded arrays until the pass ends.
  // ResourceExhausted: there is not enough memory or disk.
  absl::StatusOr<std::unique_ptr<Pass>> BeginUpdate();

 private:
  ParameterShard(const ShardPlan* plan,
                 ShardOptions options,
                 const ShardCompute& compute,
                 Ledger* ledger)
      : plan_(plan),
        options_(std::move(options)),
        device_(compute.device),
        ops_(compute.ops),
        ledger_(ledger),
        staging_(compute.device, ledger),
        digests_(plan) {}
  absl::StatusOr<std::unique_ptr<ShardArray>> Array(const char* tag, bool offloaded);
  absl::Status MakeRounded();
  // Opens a stream of the windows of all offloaded arrays.
  absl::StatusOr<std::unique_ptr<OffloadStream>> StreamOffloaded(
      const std::vector<ShardWindow>& windows);
  absl::Status Write(ShardArray& array, float* values, int64_t count, const Fill& fill);
  // The array that contains the element at an address.
  ShardArray& ArrayOf(const float* values) const;
  // Evicts these elements of one array if they are offloaded.
  void Evict(const float* values, int64_t count);
  Bf16* rounded() const { return rounded_; }
  static float* Floats(const std::unique_ptr<ShardArray>& array) {
    return reinterpret_cast<float*>(array->data());
  }
  // The fp32 arrays that are allocated.
  std::vector<ShardArray*> Arrays() const;

  const ShardPlan* const plan_;
  const ShardOptions options_;
  Device* const device_;
  ShardOps* const ops_;
  Ledger* const ledger_;
  std::unique_ptr<ShardArray> master_, exp_avg_, exp_avg_sq_;
  // One of these holds the rounded copy; neither does with fp32 compute.
  std::unique_ptr<ShareableMemory> shared_;
  std::unique_ptr<MemoryRegion> unshared_;
  Bf16* rounded_ = nullptr;
  std::unique_ptr<MemoryRegion> gradients_;
  HostStaging staging_;
  const float* read_ = nullptr;  // the values that HostValues returned last
  int64_t read_count_ = 0;
  MasterDigests digests_;
};

class ParameterShard::Pass {
 public:
  // Passes over the shard once, in ascending order, and digests each chunk after `update`. Must be
  // called only once. Errors: the device's, after which the shard is a mix of old and new values.
  absl::Status Run(const std::function<absl::Status(const OptimizerChunk&)>& update);

 private:
  friend class ParameterShard;
  explicit Pass(ParameterShard* shard) : shard_(shard) {}
  ParameterShard* const shard_;
  std::vector<ShardWindow> windows_;
  std::unique_ptr<OffloadStream> stream_;  // of the offloaded arrays
};

// This rank's shard of the frozen reference policy, in memory or offloaded (shard_array.h).
// Immutable once created; counted under the tag reference.
class ReferenceShard : public WeightRows {
 public:
  // Copies the rounded weights as they are now. With a directory the copy is offloaded: on a CPU to
  // a file there, group by group, whose pages the process holds only while a group is gathered.
  // `ledger` outlives the shard. ResourceExhausted: memory or disk is short; the message names the
  // tag and the bytes.
  static absl::StatusOr<std::unique_ptr<ReferenceShard>> Copy(const ParameterShard& shard,
                                                              const std::string& offload_dir,
                                                              Ledger* ledger);
  const ShardPlan& plan() const override { return *plan_; }
  Device* device() const override { return device_; }
  StoredShard stored() const override {
    return {.data = array_->data(), .file = array_->file(), .offloaded = array_->offloaded()};
  }
  absl::Status CopyRows(size_t tensor, int64_t row, int64_t rows, DType dtype, void* out) override;
  // Bytes of the file's pages that this process holds now; 0 without a file.
  int64_t held_bytes() const {
    return array_->file() == nullptr ? 0 : array_->file()->BytesInUse();
  }

 private:
  explicit ReferenceShard(const ParameterShard& shard)
      : plan_(&shard.plan()), device_(shard.device()), ops_(shard.ops()) {}
  const ShardPlan* const plan_;
  Device* const device_;
  ShardOps* const ops_;
  std::unique_ptr<ShardArray> array_;
};

}  // namespace tandem
