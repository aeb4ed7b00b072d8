// This rank's part of the model: fp32 masters, their rounding to the compute dtype, gradients and
// Adam moments, each one array in the order of the ShardPlan. Masters and moments may be offloaded:
// then they lie in files, of a GPU in pinned host memory, and an optimizer step streams them
// through the device.
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
  std::string offload_dir;  // where files go; exists
  bool offload_master = false;
  bool offload_moments = false;
  bool direct = false;  // a rollout reads the rounded masters where they lie; not with fp32 compute
};

// What computes on a shard; both outlive it.
struct ShardCompute {
  Device* device = nullptr;
  ShardOps* ops = nullptr;
};

// Lifecycle: Create (all masters 0) → WriteMasters, range by range → train. Addresses are the
// device's; HostValues makes them the host's. Not thread-safe.
class ParameterShard : public WeightRows {
 public:
  // Writes elements to the address that it gets.
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
  // Elements [first, first + count) of master() become what `fill` writes to host memory, are
  // rounded and digested, and are let go of where they are offloaded. The calls together pass over
  // the shard in ascending order. Errors: fill's, and the device's.
  absl::Status WriteMasters(int64_t first, int64_t count, const Fill& fill);
  // The same without `fill`: they were written where they lie.
  absl::Status MastersWritten(int64_t first, int64_t count);
  // The same of exp_avg() or exp_avg_sq(), which are neither rounded nor digested, at `values`.
  absl::Status WriteMoments(float* values, int64_t count, const Fill& fill);
  // Of the masters; of offloaded ones the process lets go again.
  absl::Status CopyRows(size_t tensor, int64_t row, int64_t rows, DType dtype, void* out) override;
  // The rounded masters, in the compute dtype; what gathers and sync read. With fp32 compute it is
  // the master itself.
  const std::byte* compute() const;
  StoredShard stored() const override { return {.data = compute()}; }
  // Null unless `direct`.
  const ShareableMemory* shared() const override { return shared_.get(); }
  // Of the masters as they are.
  const MasterDigests& digests() const { return digests_; }

  // Takes the memory if it is not held and sets all gradients to zero.
  absl::Status ZeroGradients();
  absl::Status ReleaseGradients() { return gradients_->Release(); }
  float* gradients() { return reinterpret_cast<float*>(gradients_->data()); }
  const float* gradients() const { return reinterpret_cast<const float*>(gradients_->data()); }

  // Adam's moments, made (as zeros) by the first call.
  absl::Status MapMoments();
  bool has_moments() const { return exp_avg_ != nullptr; }
  float* exp_avg() { return Floats(exp_avg_); }
  float* exp_avg_sq() { return Floats(exp_avg_sq_); }
  // Where the host has elements of master() or of the moments, until the next call or Evict. Those
  // of the call before leave the process where they are offloaded.
  absl::StatusOr<const float*> HostValues(const float* values, int64_t count);
  // What was read or written of offloaded arrays by the pointers above leaves the process, and so
  // does what HostValues took.
  void Evict();

  // One stretch of an optimizer's pass; everything is on the device.
  struct OptimizerChunk {
    int64_t count = 0;
    float* master = nullptr;
    const float* gradient = nullptr;
    float* exp_avg = nullptr;
    float* exp_avg_sq = nullptr;
    Bf16* rounded = nullptr;  // for `update` to keep; null with fp32 compute
  };
  // A pass that has all the memory it needs: only a device that breaks can fail it.
  class Pass;
  // Makes the moments and takes the buffers that offloaded arrays are streamed through, until the
  // pass ends. ResourceExhausted: there is no memory, or no disk, for them.
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
  // The windows of the arrays that are offloaded.
  absl::StatusOr<std::unique_ptr<OffloadStream>> StreamOffloaded(
      const std::vector<ShardWindow>& windows);
  absl::Status Write(ShardArray& array, float* values, int64_t count, const Fill& fill);
  // The array that an address of an element belongs to.
  ShardArray& ArrayOf(const float* values) const;
  // These elements of one array leave the process if they are offloaded.
  void Evict(const float* values, int64_t count);
  Bf16* rounded() const { return rounded_; }
  static float* Floats(const std::unique_ptr<ShardArray>& array) {
    return reinterpret_cast<float*>(array->data());
  }
  // The fp32 arrays that are there.
  std::vector<ShardArray*> Arrays() const;

  const ShardPlan* const plan_;
  const ShardOptions options_;
  Device* const device_;
  ShardOps* const ops_;
  Ledger* const ledger_;
  std::unique_ptr<ShardArray> master_, exp_avg_, exp_avg_sq_;
  // The rounded copy is in one of them; none with fp32 compute.
  std::unique_ptr<ShareableMemory> shared_;
  std::unique_ptr<MemoryRegion> unshared_;
  Bf16* rounded_ = nullptr;
  std::unique_ptr<MemoryRegion> gradients_;
  HostStaging staging_;
  const float* read_ = nullptr;  // what HostValues gave last
  int64_t read_count_ = 0;
  MasterDigests digests_;
};

class ParameterShard::Pass {
 public:
  // Passes over the shard once, in ascending order; each stretch is digested after `update`. To be
  // called once. Errors: the device's, after which the shard is neither old nor new.
  absl::Status Run(const std::function<absl::Status(const OptimizerChunk&)>& update);

 private:
  friend class ParameterShard;
  explicit Pass(ParameterShard* shard) : shard_(shard) {}
  ParameterShard* const shard_;
  std::vector<ShardWindow> windows_;
  std::unique_ptr<OffloadStream> stream_;  // of those arrays that are offloaded
};

// This rank's shard of the frozen reference policy, in memory or offloaded (shard_array.h).

// Immutable once made; counted under the tag reference.
class ReferenceShard : public WeightRows {
 public:
  // A copy of the rounded weights as they are now. With a directory they are offloaded: to a file
  // there on a CPU, group by group, and the process holds pages of it only while a group is
  // gathered. `ledger` outlives the shard. ResourceExhausted: memory or disk is short; names the
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
  // Bytes of pages of the file that this process holds now; 0 without one.
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
